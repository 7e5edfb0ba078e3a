// Following the batch, restating it, and telling where it was not: one walk, whose state (which
// dimensions are of the batch) all three read, so they are one class and one file.
#include "autopar/rebatch.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "ops/table.hpp"

namespace autopar {
namespace {

class Rebatch {
 public:
  Rebatch(Graph graph, const GraphRules& rules, std::size_t batch_dim, std::int64_t batch,
          std::function<bool(const std::string&)> is_frozen = {})
      : rules_(rules), is_frozen_(std::move(is_frozen)), dim_(batch_dim), batch_(batch) {
    result_.graph = std::move(graph);
    uses_ = uses_of(result_.graph);
    for (const Value& value : result_.graph.values) {
      of_batch_.emplace_back(value.shape.size(), false);
    }
    for (std::size_t o = 0; o < result_.graph.ops.size(); ++o) {
      const Op& op = result_.graph.ops[o];
      if (!op.domain.empty()) continue;
      if (auto rule = op.type == "Dropout" ? on_elements(op) : on_own_rows(op)) {
        own_rules_.emplace(o, std::move(*rule));
      }
    }
  }

  // See batch_mixing_op().
  std::optional<std::string> mixing_op() {
    if (!begin()) return std::nullopt;
    std::vector<bool> of_statistics(graph().values.size());
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      const Op& op = graph().ops[o];
      if (op.phase != Phase::kForward) continue;
      bool reads_statistics = false;
      for (ValueId input : op.inputs) {
        reads_statistics = reads_statistics || (input.valid() && of_statistics[input.index()]);
      }
      const std::set<int> factors = factors_of(o);
      // It draws for all of them at once.
      if (is_random(op) && !factors.empty()) return op.name;
      // Of several, it pairs every sample with every other.
      if (factors.size() > 1) return op.name;
      const bool lost = !follow(o);
      bool reduces = false;
      for (int factor : factors) {
        const FactorKind kind = rule_at(o).factors[static_cast<std::size_t>(factor)].kind;
        reduces = reduces || kind == FactorKind::kSum;
        if (kind != FactorKind::kSum && kind != FactorKind::kParallel) return op.name;
      }
      if (lost || (reads_statistics && !factors.empty())) return op.name;
      for (ValueId output : op.outputs) {
        if (output.valid()) of_statistics[output.index()] = reduces || reads_statistics;
      }
      // What it makes of every sample and what it makes of all of them, in one op.
      bool keeps = false;
      for (ValueId output : op.outputs) keeps = keeps || (output.valid() && is_of_batch(output));
      if (reduces && keeps) return op.name;
    }
    return std::nullopt;
  }

  // See op_of_own_batch(). `twin` is the same model on another batch. Ops that this one alone has
  // are told by `alone`, others by `alike` from what their constants have in common.
  using Test = bool (Rebatch::*)(const Op&, const std::vector<std::int64_t>&) const;
  std::optional<std::string> find_reshape(const Graph& twin, Test alone, Test alike) {
    if (!begin()) return std::nullopt;
    follow_all();
    std::map<std::string, const Op*> twins;
    for (const Op& op : twin.ops) twins[op.name] = &op;
    for (const Op& op : graph().ops) {
      const auto target = constant_ints(graph(), op, 1);
      if (op.type != "Reshape" || !target) continue;
      const auto other = twins.find(op.name);
      if (other == twins.end()) {
        if ((this->*alone)(op, *target)) return label_of(op);
        continue;
      }
      // What the import has found out for -1 and 0 is another number there.
      auto same = constant_ints(twin, *other->second, 1);
      if (!same || same->size() != target->size()) continue;
      for (std::size_t d = 0; d < same->size(); ++d) {
        if ((*same)[d] != (*target)[d]) (*same)[d] = -1;
      }
      if ((this->*alike)(op, *same)) return label_of(op);
    }
    return std::nullopt;
  }

  // See op_of_own_batch(). The first op that makes as much on the batch of the twin as on the own,
  // or reads as much along it: a constant or a weight, or what it is told to make.
  std::optional<std::string> keeps_batch(const Graph& twin) {
    if (!begin()) return std::nullopt;
    follow_all();
    std::map<std::string, const Value*> twins;
    for (const Value& value : twin.values) twins[value.name] = &value;
    const auto keeps = [&](ValueId id, std::size_t d) {
      const Value& value = graph().value(id);
      const auto other = twins.find(value.name);
      if (other == twins.end() || other->second->shape.size() != value.shape.size()) return false;
      return value.shape[d] > 1 && other->second->shape[d] == value.shape[d];
    };
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      for (ValueId output : graph().ops[o].outputs) {
        if (!output.valid()) continue;
        for (std::size_t d = 0; d < graph().value(output).shape.size(); ++d) {
          if (of_batch_[output.index()][d] && keeps(output, d)) return label(o);
        }
      }
      if (looks_up_samples(o)) return label(o);
      const std::set<int> factors = factors_of(o);
      bool reads = false;
      each_dim(o, [&](ValueId id, std::size_t d, const TensorFactors& dims) {
        reads =
            reads || (is_constant(id) && factors.count(outermost(dims, d)) != 0 && keeps(id, d));
      });
      if (reads) return label(o);
    }
    return std::nullopt;
  }

  // By constant numbers of theirs, several at once: those of the own batch.
  bool looks_up_samples(std::size_t o) const {
    static const std::set<std::string> kTypes = {"Gather",          "GatherND",  "GatherElements",
                                                 "ScatterElements", "ScatterND", "Slice"};
    const Op& op = graph().ops[o];
    if (!op.domain.empty() || kTypes.count(op.type) == 0) return false;
    bool lost = false;
    const Rule& rule = rule_at(o);
    const Value& data = graph().value(op.inputs[0]);
    std::size_t along = 0;
    for (std::size_t d = 0; d < data.shape.size(); ++d) {
      const bool runs = !rule.inputs.empty() && outermost(rule.inputs[0], d) >= 0;
      if (!of_batch_[op.inputs[0].index()][d] || runs || data.shape[d] == 1) continue;
      lost = true;
      along = d;
    }
    if (!lost) return false;
    if (op.type == "Slice") return graph().value(op.outputs[0]).shape[along] > 1;
    const Value& places = graph().value(op.inputs[1]);
    return places.kind != ValueKind::kInput && !places.producer.valid() &&
           element_count(places.shape) > 1;
  }

  bool never(const Op&, const std::vector<std::int64_t>&) const { return false; }

  // What changes nothing on the own batch is not in the graph of it.
  bool reshapes_batch(const Op& op, const std::vector<std::int64_t>&) const {
    return is_of_batch(op.inputs[0]);
  }

  bool states_batch(const Op& op, const std::vector<std::int64_t>& target) const {
    const std::vector<bool>& of_batch = of_batch_[op.outputs[0].index()];
    for (std::size_t d = 0; d < std::min(target.size(), of_batch.size()); ++d) {
      if (of_batch[d] && target[d] > 1) return true;
    }
    return false;
  }

  // Whether the batch leaves the dimension in which it is, where there shall be 1, for another one
  // that had something else in it.
  bool folds_batch(const Op& op, const std::vector<std::int64_t>& target) const {
    const std::vector<bool>&in = of_batch_[op.inputs[0].index()],
          &out = of_batch_[op.outputs[0].index()];
    const Shape &from = graph().value(op.inputs[0]).shape, &to = graph().value(op.outputs[0]).shape;
    for (std::size_t d = 0; d < std::min({in.size(), out.size(), target.size()}); ++d) {
      if (!in[d] || target[d] != 1) continue;
      for (std::size_t other = 0; other < out.size(); ++other) {
        if (out[other] && to[other] > from[d]) return true;
      }
    }
    return false;
  }

  Result<Rebatched> run() {
    AUTOPAR_RETURN_IF_ERROR(begin());
    if (before_ == 1 && batch_ != 1) {
      return input_error("its batch of 1 cannot be told from other dimensions of 1");
    }
    // Forward first; what only a constant made as long as the batch is found from its reader.
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (std::size_t o = 0; o < result_.graph.ops.size(); ++o) {
        AUTOPAR_RETURN_IF_ERROR(follow(o));
      }
    }
    for (std::size_t o = 0; o < result_.graph.ops.size(); ++o) {
      AUTOPAR_RETURN_IF_ERROR(restate(OpId(static_cast<std::int64_t>(o))));
    }
    for (std::size_t v = 0; v < of_batch_.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      AUTOPAR_TRY(shape, scaled(id));
      result_.graph.value(id).shape = std::move(shape);
    }
    return std::move(result_);
  }

 private:
  const Graph& graph() const { return result_.graph; }

  // A Dropout that trains is not split, but each element is made of the one at its place.
  std::optional<Rule> on_elements(Op op) const {
    if (op.inputs.size() < 2) return std::nullopt;
    op.inputs.resize(1);
    const auto found = rule_of(graph(), op);
    return found ? std::optional(found->rule) : std::nullopt;
  }

  // A GatherND or ScatterND that reads or writes of each sample at its own number alone, such as
  // x[arange(batch), position].
  std::optional<Rule> on_own_rows(const Op& op) const {
    const bool writes = op.type == "ScatterND";
    if ((!writes && op.type != "GatherND") || op.int_attribute("batch_dims", 0) != 0) {
      return std::nullopt;
    }
    const OpShapes shapes = shapes_of(graph(), op);
    const Shape &data = shapes.inputs[0], &indices = shapes.inputs[1];
    const auto along = indices.empty() ? std::nullopt : counted_dim(op.inputs[1], indices, data[0]);
    if (!along) return std::nullopt;
    const auto depth = static_cast<std::size_t>(indices.back());
    std::string of_data = "b", of_index, of_rest;
    for (std::size_t d = 1; d < data.size(); ++d) {
      const std::string name = d < depth ? " _" : " d" + std::to_string(d);
      of_data += name;
      if (d >= depth) of_rest += name;
    }
    for (std::size_t d = 0; d + 1 < indices.size(); ++d) of_index += d == *along ? "b " : "_ ";
    const std::string at_index = of_index + of_rest;
    const auto rule = parse_rule(of_data + ", " + of_index + "_" + (writes ? ", " + at_index : "") +
                                     " -> " + (writes ? of_data : at_index),
                                 shapes);
    return rule ? std::optional(*rule) : std::nullopt;
  }

  // The dimension, `count` long, along which the first index counts 0, 1, 2, ...
  std::optional<std::size_t> counted_dim(ValueId indices, const Shape& shape,
                                         std::int64_t count) const {
    const auto numbers = first_indices(indices);
    if (!numbers || count < 2) return std::nullopt;
    std::size_t stride = numbers->size();
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) {
      stride /= static_cast<std::size_t>(shape[d]);
      if (shape[d] != count) continue;
      bool counts = true;
      for (std::size_t i = 0; i < numbers->size() && counts; ++i) {
        counts = (*numbers)[i] == static_cast<std::int64_t>(i / stride) % count;
      }
      if (counts) return d;
    }
    return std::nullopt;
  }

  // The first of each place's indices, where they are constant.
  std::optional<std::vector<std::int64_t>> first_indices(ValueId indices) const {
    const Value& value = graph().value(indices);
    if (value.producer.valid()) {
      const Op& op = graph().op(value.producer);
      const auto rank = static_cast<std::int64_t>(value.shape.size());
      const std::int64_t axis = op.int_attribute("axis", 0);
      const bool joins =
          op.type == "Concat" && op.domain.empty() && (axis == -1 || axis == rank - 1);
      return joins ? first_indices(op.inputs[0]) : std::nullopt;
    }
    const auto all = value.tensor() != nullptr ? int_values(*value.tensor()) : std::nullopt;
    if (!all || all->empty() || value.shape.back() < 1) return std::nullopt;
    std::vector<std::int64_t> first;
    for (std::size_t i = 0; i < all->size(); i += static_cast<std::size_t>(value.shape.back())) {
      first.push_back((*all)[i]);
    }
    return first;
  }

  Status begin() {
    for (ValueId id : graph().inputs) {
      const Value& value = graph().value(id);
      if (value.kind != ValueKind::kInput || value.shape.size() <= dim_) continue;
      if (before_ != 0 && before_ != value.shape[dim_]) {
        return input_error("data input '" + value.name + "' has " +
                           std::to_string(value.shape[dim_]) + " in dimension " +
                           std::to_string(dim_) + ", others have " + std::to_string(before_));
      }
      before_ = value.shape[dim_];
      of_batch_[id.index()][dim_] = true;
    }
    if (before_ > 0) return Ok{};
    return input_error("no data input has a dimension " + std::to_string(dim_));
  }

  // The loop dimension that a dimension begins with; -1: none.
  static int outermost(const TensorFactors& dims, std::size_t d) {
    return d < dims.size() && !dims[d].empty() ? dims[d].front() : -1;
  }

  template <class Visit>
  void each_dim(std::size_t o, const Visit& visit) const {
    const Op& op = graph().ops[o];
    const Rule& rule = rule_at(o);
    const auto all = [&](const std::vector<ValueId>& ids, const std::vector<TensorFactors>& dims) {
      for (std::size_t i = 0; i < ids.size() && i < dims.size(); ++i) {
        if (!ids[i].valid()) continue;
        for (std::size_t d = 0; d < of_batch_[ids[i].index()].size(); ++d) {
          visit(ids[i], d, dims[i]);
        }
      }
    };
    all(op.inputs, rule.inputs);
    all(op.outputs, rule.outputs);
  }

  const Rule& rule_at(std::size_t o) const {
    const auto found = own_rules_.find(o);
    return found == own_rules_.end() ? rules_.rules[o] : found->second;
  }

  bool is_constant(ValueId id) const { return graph().value(id).kind == ValueKind::kConstant; }

  // Loop dimensions of an op that run over the batch.
  std::set<int> factors_of(std::size_t o) const {
    std::set<int> factors;
    each_dim(o, [&](ValueId id, std::size_t d, const TensorFactors& dims) {
      if (of_batch_[id.index()][d] && outermost(dims, d) >= 0) factors.insert(outermost(dims, d));
    });
    return factors;
  }

  // Constants are no way from one op to another: ops that have nothing in common share them.
  Status follow(std::size_t o) {
    const std::set<int> factors = factors_of(o);
    Status status = Ok{};
    each_dim(o, [&](ValueId id, std::size_t d, const TensorFactors& dims) {
      const bool lost =
          of_batch_[id.index()][d] && outermost(dims, d) < 0 && graph().value(id).shape[d] > 1;
      if (!lost || !status) return;
      status = input_error(label(o) + " does not run over dimension " + std::to_string(d) +
                           " of '" + graph().value(id).name + "', which is of the batch");
    });
    if (factors.empty() || !status) return status;
    each_dim(o, [&](ValueId id, std::size_t d, const TensorFactors& dims) {
      if (d >= dims.size() || is_constant(id)) return;
      const bool leads = factors.count(outermost(dims, d)) != 0;
      const bool inside = !leads && std::any_of(dims[d].begin(), dims[d].end(), [&](int factor) {
        return factors.count(factor) != 0;
      });
      if (inside && status) {
        status = input_error(label(o) + ": dimension " + std::to_string(d) + " of '" +
                             graph().value(id).name + "' has the batch inside it");
      }
      if (!leads || of_batch_[id.index()][d]) return;
      of_batch_[id.index()][d] = true;
      changed_ = true;
    });
    return status;
  }

  // As far as rules go. What only a constant made as long as the batch is found from its reader.
  void follow_all() {
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (std::size_t o = 0; o < graph().ops.size(); ++o) static_cast<void>(follow(o));
    }
  }

  static std::string label_of(const Op& op) { return "op '" + op.name + "' (" + op.type + ")"; }
  std::string label(std::size_t o) const { return label_of(graph().ops[o]); }

  bool is_of_batch(ValueId id) const {
    const auto& dims = of_batch_[id.index()];
    return std::find(dims.begin(), dims.end(), true) != dims.end();
  }

  Result<Shape> scaled(ValueId id) const {
    Shape shape = graph().value(id).shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (!of_batch_[id.index()][d]) continue;
      if (shape[d] * batch_ % before_ != 0) {
        return input_error("dimension " + std::to_string(d) + " of '" + graph().value(id).name +
                           "' is " + std::to_string(shape[d]) + " for a batch of " +
                           std::to_string(before_) + ", and has no whole size for one of " +
                           std::to_string(batch_));
      }
      shape[d] = shape[d] * batch_ / before_;
    }
    return shape;
  }

  // The constants of an op that say how long the batch is.
  Status restate(OpId id) {
    bool restated = false;
    for (std::size_t port = 0; port < graph().op(id).inputs.size(); ++port) {
      if (!graph().op(id).has_input(port)) continue;
      const ValueId input = graph().op(id).inputs[port];
      if (repeated_.count(input) != 0) continue;
      const Value& value = graph().value(input);
      if (is_operand_constant(graph().op(id), port)) {
        AUTOPAR_TRY(done, restate_target(id, port));
        restated = restated || done;
      } else if (value.kind == ValueKind::kConstant) {
        AUTOPAR_TRY(done, repeat(id, port));
        restated = restated || done;
      } else if (value.kind == ValueKind::kParameter && is_of_batch(input)) {
        AUTOPAR_TRY(done, repeat_weight(id, port));
        restated = restated || done;
      }
    }
    if (restated) result_.restated.push_back(graph().op(id).name);
    return Ok{};
  }

  static bool counts_classes(const Op& op, std::size_t port) {
    return op.type == "OneHot" && port == 1;
  }

  // Whole shapes that ops are told.
  Result<bool> restate_target(OpId id, std::size_t port) {
    const Op op = graph().op(id);
    const bool repeats = op.type == "Tile" && port == 1;
    const bool tells = ((op.type == "Reshape" || op.type == "Expand") && port == 1) ||
                       (op.type == "Resize" && port == 3) || repeats ||
                       (op.type == "AffineGrid" && port == 1) || counts_classes(op, port);
    const ValueId output = op.outputs[0];
    if (!tells || !is_of_batch(output)) return false;
    const auto target = constant_ints(graph(), op, port);
    if (!target) return false;
    AUTOPAR_TRY(shape, scaled(output));
    std::vector<std::int64_t> stated = *target;
    const std::size_t skipped = shape.size() - std::min(shape.size(), stated.size());
    for (std::size_t d = 0; d < stated.size(); ++d) {
      if (!of_batch_[output.index()][d + skipped] || stated[d] <= 1) continue;
      if (!repeats) stated[d] = shape[d + skipped];
      if (repeats && !of_batch_[op.inputs[0].index()][d]) {
        stated[d] = shape[d] / std::max<std::int64_t>(1, graph().value(op.inputs[0]).shape[d]);
      }
    }
    if (counts_classes(op, port)) {
      const auto axis = normal_axis(op.int_attribute("axis", -1), shape.size());
      stated = {shape[*axis]};
      if (stated == *target) return false;
      give(id, port, int64_tensor({}, stated));
      return true;
    }
    if (stated == *target) return false;
    give(id, port, int64_tensor({static_cast<std::int64_t>(stated.size())}, stated));
    return true;
  }

  // Whether the first of its last dimension is the number of a sample, for ops that read or write
  // of each sample at that alone, and for nothing else.
  bool counts_samples(OpId op, std::size_t port) const {
    const auto of_own_rows = [&](const Op& reader, OpId id, std::size_t at) {
      return at == 1 && own_rules_.count(id.index()) != 0 && reader.type != "Dropout";
    };
    const Op& reader = graph().op(op);
    if (of_own_rows(reader, op, port)) return true;
    const std::vector<Use>& uses = uses_[reader.outputs[0].index()];
    return reader.type == "Concat" && port == 0 &&
           std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
             return of_own_rows(graph().op(use.op), use.op, use.port);
           });
  }

  // A constant that is one slice over and over, along the batch of the op that reads it.
  Result<bool> repeat(OpId op, std::size_t port) {
    AUTOPAR_TRY(made, repeated(op, port));
    if (!made) return false;
    give(op, port, std::move(*made));
    return true;
  }

  // What an exporter has computed for each sample, and nobody trains, is a constant.
  Result<bool> repeat_weight(OpId op, std::size_t port) {
    const ValueId id = graph().op(op).inputs[port];
    const std::string name = graph().value(id).name;
    if (!is_frozen_ || !is_frozen_(name)) {
      return input_error(label(op.index()) + ": the weight '" + name +
                         "' is as long as the batch; if it holds the same for every sample, "
                         "--freeze " +
                         name + " repeats that");
    }
    AUTOPAR_TRY(made, repeated(op, port));
    if (!made) return false;
    Value& value = result_.graph.value(id);
    value.kind = ValueKind::kConstant;
    value.shape = made->shape;
    value.data = std::move(*made);
    of_batch_[id.index()].assign(value.shape.size(), false);
    repeated_.insert(id);
    return true;
  }

  // Nothing where the input is not along the batch.
  Result<std::optional<Tensor>> repeated(OpId op, std::size_t port) const {
    const Rule& rule = rule_at(op.index());
    const ValueId id = graph().op(op).inputs[port];
    const Value& value = graph().value(id);
    const std::set<int> factors = factors_of(op.index());
    Shape shape = value.shape, slice = value.shape;
    std::size_t cut = 0;
    for (std::size_t d = 0; port < rule.inputs.size() && d < shape.size(); ++d) {
      if (shape[d] == 1 || factors.count(outermost(rule.inputs[port], d)) == 0) continue;
      if (shape[d] % before_ != 0) return error_of(op, value, "has no whole part of the batch");
      slice[d] = shape[d] / before_;
      shape[d] = slice[d] * batch_;
      cut = d;
    }
    if (slice == value.shape) return std::optional<Tensor>();
    if (value.tensor() == nullptr) return error_of(op, value, "is not at hand");
    // Where the first slice has the element.
    const auto in_slice = [&](std::size_t element, const Shape& of) {
      std::size_t at = 0, stride = 1;
      for (std::size_t d = of.size(); d-- > 0;) {
        const std::size_t index = element % static_cast<std::size_t>(of[d]);
        element /= static_cast<std::size_t>(of[d]);
        at += index % static_cast<std::size_t>(slice[d]) * stride;
        stride *= static_cast<std::size_t>(value.shape[d]);
      }
      return at;
    };
    // Numbers of samples are other ones in each slice.
    const bool counts = counts_samples(op, port);
    const auto is_number = [&](std::size_t e) {
      return counts && e % static_cast<std::size_t>(shape.back()) == 0;
    };
    const auto size = static_cast<std::size_t>(size_of(value.dtype));
    const std::string& old = value.tensor()->bytes;
    for (std::size_t e = 0; e < old.size() / size; ++e) {
      const std::size_t first = in_slice(e, value.shape);
      if (!is_number(e) && old.compare(e * size, size, old, first * size, size) != 0) {
        return error_of(op, value, "has slices that differ");
      }
    }
    const std::int64_t inside =
        element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(cut) + 1, shape.end()));
    Tensor made{value.dtype, shape, {}};
    for (std::int64_t e = 0; e < element_count(shape); ++e) {
      const auto at = static_cast<std::size_t>(e);
      if (is_number(at)) {
        made.bytes += int64_tensor({1}, {e / inside % shape[cut]}).bytes;
      } else {
        made.bytes.append(old, in_slice(at, shape) * size, size);
      }
    }
    return std::optional<Tensor>(std::move(made));
  }

  Error error_of(OpId op, const Value& value, const std::string& what) const {
    return input_error(label(op.index()) + ": " +
                       (value.kind == ValueKind::kParameter ? "the weight '" : "the constant '") +
                       value.name + "' is as long as the batch, and " + what);
  }

  void give(OpId op, std::size_t port, Tensor tensor) {
    const std::string name = graph().value(graph().op(op).inputs[port]).name + "/batch/" +
                             graph().op(op).name + "/" + std::to_string(port);
    const ValueId added = result_.graph.add_value({.name = name,
                                                   .dtype = tensor.dtype,
                                                   .shape = tensor.shape,
                                                   .kind = ValueKind::kConstant,
                                                   .data = tensor});
    of_batch_.emplace_back(tensor.shape.size(), false);
    result_.graph.op(op).inputs[port] = added;
  }

  Rebatched result_;
  const GraphRules& rules_;
  std::map<std::size_t, Rule> own_rules_;  // by op, where those of splitting are not enough
  const std::function<bool(const std::string&)> is_frozen_;
  const std::size_t dim_;
  const std::int64_t batch_;
  std::int64_t before_ = 0;
  std::vector<std::vector<bool>> of_batch_;  // per value and dimension
  std::vector<std::vector<Use>> uses_;       // as the graph came
  std::set<ValueId> repeated_;               // weights that are constants now
  bool changed_ = false;
};

}  // namespace

std::optional<std::string> batch_mixing_op(const Graph& graph, const GraphRules& rules,
                                           std::size_t batch_dim) {
  return Rebatch(graph, rules, batch_dim, 1).mixing_op();
}

namespace {

// Of the first data input that has such a dimension; 0: none has.
std::int64_t batch_of(const Graph& graph, std::size_t batch_dim) {
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind == ValueKind::kInput && value.shape.size() > batch_dim) {
      return value.shape[batch_dim];
    }
  }
  return 0;
}

}  // namespace

Result<std::optional<std::string>> op_of_own_batch(const Graph& own, const Graph& other,
                                                   std::size_t batch_dim) {
  const std::int64_t own_batch = batch_of(own, batch_dim), other_batch = batch_of(other, batch_dim);
  if (own_batch == other_batch) return std::optional<std::string>();
  AUTOPAR_TRY(other_rules, rules_of(other));
  Rebatch of_other(other, other_rules, batch_dim, 1);
  // What runs over a batch of 1 its rules do not show.
  if (own_batch == 1)
    return of_other.find_reshape(own, &Rebatch::folds_batch, &Rebatch::folds_batch);
  const auto alone = of_other.find_reshape(own, &Rebatch::reshapes_batch, &Rebatch::never);
  if (alone) return alone;
  AUTOPAR_TRY(own_rules, rules_of(own));
  const auto op = Rebatch(own, own_rules, batch_dim, 1).keeps_batch(other);
  if (op) return op;
  return Rebatch(own, own_rules, batch_dim, 1)
      .find_reshape(other, &Rebatch::never, &Rebatch::states_batch);
}

Result<Rebatched> rebatch(Graph graph, const GraphRules& rules, std::size_t batch_dim,
                          std::int64_t batch, std::function<bool(const std::string&)> is_frozen) {
  return Rebatch(std::move(graph), rules, batch_dim, batch, std::move(is_frozen)).run();
}

}  // namespace autopar
