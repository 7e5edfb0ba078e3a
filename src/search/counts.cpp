#include "search/counts.hpp"

#include <algorithm>

namespace autopar {

namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

std::string place(const char* side, std::size_t tensor, std::size_t d) {
  return "dimension " + std::to_string(d) + " of " + side + " " + std::to_string(tensor);
}

bool is_used(const Spec& spec, int axis) {
  const auto has = [&](const AxisList& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  return has(spec.partial) || std::any_of(spec.dims.begin(), spec.dims.end(), has);
}

void scatter(Spec& spec, const AxisList& axes, std::size_t next,
             const std::vector<std::int64_t>& counts, const Shape& shape, const Mesh& mesh,
             std::vector<Spec>& found) {
  if (next == axes.size()) {
    if (split_counts(spec, mesh) == counts && verify(spec, shape, mesh)) found.push_back(spec);
    return;
  }
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const AxisList before = spec.dims[d];
    spec.dims[d].push_back(axes[next]);
    std::sort(spec.dims[d].begin(), spec.dims[d].end());
    if (counts[d] % axes_size(mesh, spec.dims[d]) == 0) {
      scatter(spec, axes, next + 1, counts, shape, mesh, found);
    }
    spec.dims[d] = before;
  }
  scatter(spec, axes, next + 1, counts, shape, mesh, found);
}

// The parts of each dimension of some tensors so far, against those that are asked for.
class Parts {
 public:
  Parts(const std::optional<SplitCounts>& asked, const std::vector<TensorFactors>& tensors)
      : tensors_(tensors) {
    if (!asked) return;
    for (std::size_t t = 0; t < std::min(asked->size(), tensors.size()); ++t) {
      std::vector<std::int64_t> counts = (*asked)[t];
      if (counts.empty()) counts.assign(tensors[t].size(), 1);
      if (counts.size() != tensors[t].size()) possible_ = false;
      so_far_.emplace_back(counts.size(), 1);
      asked_.push_back(std::move(counts));
    }
    possible_ = possible_ && asked->size() <= tensors.size();
  }

  bool possible() const { return possible_; }

  // False where a dimension then has more parts than asked, or they cannot become as many.
  bool multiply(int factor, std::int64_t size) {
    bool fits = true;
    each(factor, [&](std::int64_t& parts, std::int64_t asked) {
      parts *= size;
      fits = fits && asked % parts == 0;
    });
    return fits;
  }
  void divide(int factor, std::int64_t size) {
    each(factor, [&](std::int64_t& parts, std::int64_t) { parts /= size; });
  }
  bool complete() const { return so_far_ == asked_; }

 private:
  template <class Change>
  void each(int factor, const Change& change) {
    for (std::size_t t = 0; t < asked_.size(); ++t) {
      for (std::size_t d = 0; d < asked_[t].size(); ++d) {
        const std::vector<int>& factors = tensors_[t][d];
        if (std::find(factors.begin(), factors.end(), factor) == factors.end()) continue;
        change(so_far_[t][d], asked_[t][d]);
      }
    }
  }

  const std::vector<TensorFactors>& tensors_;
  SplitCounts asked_, so_far_;
  bool possible_ = true;
};

class CountSearch {
 public:
  CountSearch(const OpPin& pin, const Graph& graph, const Op& op, const Rule& rule,
              const Mesh& mesh)
      : pin_(pin),
        graph_(graph),
        op_(op),
        rule_(rule),
        mesh_(mesh),
        inputs_(pin.in_strategy, rule.inputs),
        outputs_(pin.out_strategy, rule.outputs),
        assignment_{std::vector<int>(mesh.axes.size(), -1)} {}

  bool run() { return inputs_.possible() && outputs_.possible() && extend(0); }

 private:
  bool extend(std::size_t axis) {
    if (axis == mesh_.axes.size()) return inputs_.complete() && is_kept();
    const std::int64_t size = mesh_.axes[axis].size;
    for (int f = 0; size > 1 && f < static_cast<int>(rule_.factors.size()); ++f) {
      if (rule_.factors[static_cast<std::size_t>(f)].kind == FactorKind::kMoving) continue;
      assignment_.factor_of_axis[axis] = f;
      const bool inputs_fit = inputs_.multiply(f, size);
      const bool outputs_fit = outputs_.multiply(f, size);
      const bool found = inputs_fit && outputs_fit && extend(axis + 1);
      inputs_.divide(f, size);
      outputs_.divide(f, size);
      if (found) return true;
    }
    assignment_.factor_of_axis[axis] = -1;
    return extend(axis + 1);
  }

  bool is_kept() const {
    const auto specs = specs_of(rule_, assignment_, mesh_);
    if (!specs) return false;
    if (!pin_.out_strategy) return true;
    for (std::size_t j = 0; j < pin_.out_strategy->size(); ++j) {
      const std::vector<std::int64_t>& counts = (*pin_.out_strategy)[j];
      if (agrees({counts}, {split_counts(specs->outputs[j], mesh_)})) continue;
      if (!op_.has_output(j)) return false;
      const Shape& shape = graph_.value(op_.outputs[j]).shape;
      if (scattered(specs->outputs[j], counts, shape, mesh_).empty()) return false;
    }
    return true;
  }

  const OpPin& pin_;
  const Graph& graph_;
  const Op& op_;
  const Rule& rule_;
  const Mesh& mesh_;
  Parts inputs_, outputs_;
  Assignment assignment_;
};

// The rows that a part of the dimension needs of a neighbour.
std::int64_t halo_of(const Rule& rule, const std::vector<int>& factors) {
  if (factors.empty()) return 0;
  const Factor& factor = rule.factors[static_cast<std::size_t>(factors[0])];
  return std::max(factor.halo_before, factor.halo_after);
}

// What stands in the way of counts for the inputs (or outputs), whatever the mesh.
class Objection {
 public:
  Objection(const Graph& graph, const Op& op, const Rule& rule)
      : graph_(graph), op_(op), rule_(rule), parts_(rule.factors.size()) {}

  std::string of(const char* side, const SplitCounts& asked, const std::vector<ValueId>& values,
                 const std::vector<TensorFactors>& tensors) {
    if (asked.size() > values.size()) {
      return "the op has " + std::to_string(values.size()) + " " + side + "s, the strategy has " +
             std::to_string(asked.size());
    }
    for (std::size_t t = 0; t < asked.size(); ++t) {
      if (!values[t].valid() || asked[t].empty()) continue;
      const Shape& shape = graph_.value(values[t]).shape;
      if (asked[t].size() != shape.size()) {
        return std::string(side) + " " + std::to_string(t) + " has shape " +
               autopar::to_text(shape) + ", its strategy " + autopar::to_text(asked[t]) + " has " +
               std::to_string(asked[t].size()) + " dimensions";
      }
      for (std::size_t d = 0; d < shape.size(); ++d) {
        std::string text = of_extent(side, t, d, shape[d], asked[t][d], tensors[t][d]);
        if (text.empty()) text = of_factors(place(side, t, d), asked[t][d], tensors[t][d]);
        if (!text.empty()) return text;
      }
    }
    return "";
  }

  // How many devices the loop dimensions take that were named so far, and which.
  std::int64_t devices() const {
    std::int64_t product = 1;
    for (const Cut& cut : parts_) product *= std::max<std::int64_t>(1, cut.parts);
    return product;
  }
  std::string cuts() const {
    std::string text;
    for (std::size_t f = 0; f < parts_.size(); ++f) {
      if (parts_[f].parts < 2) continue;
      text += (text.empty() ? "" : ", ") + rule_.factors[f].name + "=" + number(parts_[f].parts);
    }
    return text;
  }

 private:
  struct Cut {
    std::int64_t parts = 0;  // 0: not said
    std::string where;
  };

  std::string of_extent(const char* side, std::size_t t, std::size_t d, std::int64_t extent,
                        std::int64_t parts, const std::vector<int>& factors) const {
    if (parts < 1 || extent % parts != 0) {
      return place(side, t, d) + " is " + number(extent) + ", which cannot be cut into " +
             number(parts) + " equal parts";
    }
    const std::int64_t rows = extent / parts, halo = halo_of(rule_, factors);
    if (parts == 1 || rows >= halo) return "";
    return "a part of " + place(side, t, d) + " has " + number(rows) + " of " + number(extent) +
           " rows, the windows of the part beside it reach over " + number(halo) +
           "; take fewer parts";
  }

  std::string of_factors(const std::string& where, std::int64_t parts,
                         const std::vector<int>& factors) {
    if (factors.size() > 1) return "";
    const Factor* factor =
        factors.empty() ? nullptr : &rule_.factors[static_cast<std::size_t>(factors[0])];
    if (parts > 1 && (factor == nullptr || factor->kind == FactorKind::kWhole)) {
      return where + " stays whole in " + op_.type + ", found " + number(parts) + " parts";
    }
    if (factor == nullptr) return "";
    Cut& cut = parts_[static_cast<std::size_t>(factors[0])];
    if (cut.parts == 0) cut = {parts, where};
    if (cut.parts == parts) return "";
    return where + " and " + cut.where + " are one loop dimension, " + factor->name +
           ", and are cut alike; found " + number(parts) + " and " + number(cut.parts) + " parts";
  }

  const Graph& graph_;
  const Op& op_;
  const Rule& rule_;
  std::vector<Cut> parts_;  // per factor
};

// Of the inputs; "" where there is none.
std::string objection_to(Objection& objection, const OpPin& pin, const Op& op, const Rule& rule,
                         std::int64_t all_devices) {
  if (pin.in_strategy) {
    std::string text = objection.of("input", *pin.in_strategy, op.inputs, rule.inputs);
    if (!text.empty()) return text;
  }
  const std::int64_t devices = objection.devices();
  if (all_devices % devices == 0) return "";
  return objection.cuts() + " takes " + number(devices) + " devices, and the cluster has " +
         number(all_devices) + (devices < all_devices ? ", which that does not divide" : "");
}

}  // namespace

std::string to_text(const SplitCounts& counts) {
  std::string text = "[";
  for (std::size_t i = 0; i < counts.size(); ++i) {
    text += (i ? "," : "") + autopar::to_text(counts[i]);
  }
  return text + "]";
}

std::string counts_text(const Op& op, const OpPin& pin) {
  std::string text = "op '" + op.name + "' (" + op.type + "):";
  if (pin.in_strategy) text += " in_strategy " + to_text(*pin.in_strategy);
  if (pin.out_strategy) text += " out_strategy " + to_text(*pin.out_strategy);
  return text;
}

bool agrees(const SplitCounts& asked, const SplitCounts& have) {
  if (asked.size() > have.size()) return false;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].empty() &&
        std::all_of(have[i].begin(), have[i].end(), [](std::int64_t n) { return n == 1; })) {
      continue;
    }
    if (asked[i] != have[i]) return false;
  }
  return true;
}

std::vector<Spec> scattered(const Spec& spec, const std::vector<std::int64_t>& counts,
                            const Shape& shape, const Mesh& mesh, bool slices_too) {
  std::vector<Spec> found;
  if (counts.size() != spec.dims.size()) return found;
  if (split_counts(spec, mesh) == counts) return {spec};
  Spec reduced = spec;
  reduced.partial.clear();
  reduced.reduction = Reduction::kSum;
  AxisList axes = spec.partial;
  for (int axis = 0; slices_too && axis < mesh.rank(); ++axis) {
    if (!is_used(spec, axis)) axes.push_back(axis);
  }
  scatter(reduced, axes, 0, counts, shape, mesh, found);
  return found;
}

bool gives_counts(const OpPin& pin, const Graph& graph, const Op& op, const Rule& rule,
                  const Mesh& mesh) {
  return CountSearch(pin, graph, op, rule, mesh).run();
}

Status check_counts(const SearchRequest& request) {
  if (request.pins.ops.empty()) return Ok{};
  for (std::size_t o = 0; o < request.graph.ops.size(); ++o) {
    const Op& op = request.graph.ops[o];
    const auto pin = request.pins.ops.find(op.name);
    if (pin == request.pins.ops.end() || pin->second.assignment) continue;
    const Rule& rule = request.rules.rules[o];
    Objection objection(request.graph, op, rule);
    const std::string text =
        objection_to(objection, pin->second, op, rule, request.cluster.device_count());
    if (text.empty()) continue;
    return input_error(counts_text(op, pin->second) + " cannot be kept: " + text);
  }
  return Ok{};
}

std::string why_not(const OpPin& pin, const Graph& graph, const Op& op, const Rule& rule,
                    const Mesh& mesh) {
  Objection objection(graph, op, rule);
  const std::string text = objection_to(objection, pin, op, rule, mesh.size());
  if (!text.empty()) return text;
  const OpPin inputs{std::nullopt, pin.in_strategy, std::nullopt};
  if (pin.out_strategy && gives_counts(inputs, graph, op, rule, mesh)) {
    Objection of_outputs(graph, op, rule);
    const std::string wrong = of_outputs.of("output", *pin.out_strategy, op.outputs, rule.outputs);
    if (!wrong.empty()) return wrong;
    return pin.in_strategy
               ? "with that in_strategy no output comes out so on the mesh " +
                     autopar::to_text(mesh) + ", not by a ReduceScatter of partial sums either"
               : "no assignment of the axes of mesh " + autopar::to_text(mesh) +
                     " leaves the output so, not by a ReduceScatter of partial sums either";
  }
  const std::string cuts = objection.cuts();
  return "the mesh " + autopar::to_text(mesh) + " has no axes to give " +
         (cuts.empty() ? "these counts" : cuts);
}

}  // namespace autopar
