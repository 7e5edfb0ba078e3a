// Pins of tensors, and the out_strategy that a ReduceScatter reaches, on one mesh.
#include <algorithm>
#include <optional>

#include "autopar/phase_ops.hpp"
#include "layout/tensor_map.hpp"
#include "search/counts.hpp"
#include "search/pins.hpp"

namespace autopar {

namespace {

std::string to_text(const std::vector<std::vector<int>>& tensor_map) {
  std::string text = "[";
  for (const std::vector<int>& axes : tensor_map) {
    text += text.size() == 1 ? "" : ",";
    if (axes.empty()) text += "-1";
    if (axes.size() > 1) text += "[";
    for (std::size_t i = 0; i < axes.size(); ++i) text += (i ? "," : "") + std::to_string(axes[i]);
    if (axes.size() > 1) text += "]";
  }
  return text + "]";
}

class Keeper {
 public:
  Keeper(const SearchRequest& request, CostModel& model)
      : request_(request),
        graph_(request.graph),
        model_(model),
        mesh_(model.mesh()),
        phase_ops_(graph_) {
    kept_.ops = request.pins.ops;
  }

  Result<KeptPins> run() {
    const auto reads_outputs = [](const auto& pin) { return pin.second.out_strategy.has_value(); };
    const Pins& pins = request_.pins;
    if (pins.values.empty() && std::none_of(pins.ops.begin(), pins.ops.end(), reads_outputs)) {
      return std::move(kept_);
    }
    readers_ = readers_of(graph_);
    updated_ = updated_inputs(graph_, request_.updates);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const auto pin = pins.values.find(graph_.values[v].name);
      if (pin == pins.values.end()) continue;
      AUTOPAR_RETURN_IF_ERROR(keep(ValueId(static_cast<std::int64_t>(v)), pin->second));
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const auto pin = pins.ops.find(graph_.ops[o].name);
      if (pin == pins.ops.end() || !pin->second.out_strategy) continue;
      AUTOPAR_RETURN_IF_ERROR(scatter_outputs(OpId(static_cast<std::int64_t>(o)), pin->second));
    }
    return std::move(kept_);
  }

 private:
  static std::string named(const Value& value) { return "tensor '" + value.name + "'"; }

  Error wrong(const Value& value, const char* field, const Error& error) const {
    return input_error(named(value) + " " + autopar::to_text(value.shape) + ": " + field + ": " +
                       error.message);
  }

  Result<SpecPin> read(const Value& value, const char* field, const std::string& text) const {
    const auto spec = parse_spec(text, mesh_);
    if (!spec) return wrong(value, field, spec.error());
    if (Status valid = verify(*spec, value.shape, mesh_); !valid) {
      return input_error(named(value) + ": " + field + " " + text + ": " + valid.error().message);
    }
    return SpecPin{{*spec}, false, named(value) + ": " + field + " " + text};
  }

  // What the device matrix and the tensor map say, and the spec beside them, if there is one.
  Result<SpecPin> read_map(const Value& value, const ValuePin& pin) const {
    const std::string text = "device_matrix " + autopar::to_text(pin.device_matrix) +
                             " with tensor_map " + to_text(pin.tensor_map);
    const auto dims = read_tensor_map(pin.device_matrix, pin.tensor_map, mesh_);
    if (!dims) return input_error(named(value) + ": " + dims.error().message);
    Spec spec{*dims, {}, Reduction::kSum};
    if (Status valid = verify(spec, value.shape, mesh_); !valid) {
      return input_error(named(value) + ": " + text + ": " + valid.error().message);
    }
    if (pin.spec.empty()) return SpecPin{{std::move(spec)}, true, named(value) + ": " + text};
    AUTOPAR_TRY(named_spec, read(value, "spec", pin.spec));
    // The one axis of one device splits nothing.
    const bool agree = named_spec.specs[0].dims == spec.dims || mesh_.size() == 1;
    if (agree) return std::move(named_spec);
    return input_error(named_spec.wish + " and its " + text + ", which is " +
                       autopar::to_text(spec, mesh_) + ", disagree; give one of them");
  }

  Status keep(ValueId id, const ValuePin& pin) {
    const Value& value = graph_.value(id);
    if (!pin.device_matrix.empty() || !pin.tensor_map.empty()) {
      AUTOPAR_TRY(spec, read_map(value, pin));
      AUTOPAR_RETURN_IF_ERROR(keep_spec(id, spec));
    } else if (!pin.spec.empty()) {
      AUTOPAR_TRY(spec, read(value, "spec", pin.spec));
      AUTOPAR_RETURN_IF_ERROR(keep_spec(id, spec));
    }
    AUTOPAR_RETURN_IF_ERROR(keep_hubs(id, pin));
    if (pin.output_spec.empty()) return Ok{};
    AUTOPAR_TRY(output, read(value, "output_spec", pin.output_spec));
    if (!readers_[id.index()].is_output) {
      return input_error(output.wish + " cannot be kept: it is not an output of the model");
    }
    return keep_output(id, output);
  }

  // Beside a kept_spec the hub_spec is of the forward pass.
  Status keep_hubs(ValueId id, const ValuePin& pin) {
    const Value& value = graph_.value(id);
    struct Field {
      const char* name;
      const std::string& text;
      std::optional<Phase> phase;  // none: the hub itself
    };
    std::optional<Phase> of_hub;
    if (!pin.kept_spec.empty()) of_hub = Phase::kForward;
    for (const Field& field :
         {Field{"kept_spec", pin.kept_spec, {}}, Field{"hub_spec", pin.hub_spec, of_hub},
          Field{"backward_hub_spec", pin.backward_hub_spec, Phase::kBackward},
          Field{"update_hub_spec", pin.update_hub_spec, Phase::kUpdate}}) {
      if (field.text.empty()) continue;
      AUTOPAR_TRY(wanted, read(value, field.name, field.text));
      AUTOPAR_RETURN_IF_ERROR(field.phase ? keep_in_phase(id, *field.phase, wanted)
                                          : keep_hub(id, wanted));
    }
    return Ok{};
  }

  // By the phase op, or what the readers of a phase need, which are one where there is none.
  Status keep_in_phase(ValueId id, Phase phase, const SpecPin& pin) {
    const OpId phase_op = phase_ops_.of(id, phase);
    if (phase_op.valid()) return keep_hub(graph_.op(phase_op).outputs[0], pin);
    bool found = false;
    for (const Use& use : readers_[id.index()].uses) {
      if (phase_ops_.contains(use.op) || graph_.op(use.op).phase != phase) continue;
      kept_.ports[use.op].push_back({true, static_cast<std::size_t>(use.port), pin});
      found = true;
    }
    if (found) return Ok{};
    return input_error(pin.wish + " cannot be kept: no op of that phase reads it");
  }

  // Constants lie whole on every device.
  Status keep_constant(const SpecPin& pin) const {
    if (is_replicated(pin.specs[0])) return Ok{};
    return input_error(pin.wish +
                       " cannot be kept: it is a constant, which lies whole on every device");
  }

  Status keep_spec(ValueId id, const SpecPin& pin) {
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::kConstant) return keep_constant(pin);
    if (value.kind != ValueKind::kActivation) {
      const Readers& readers = readers_[id.index()];
      if (meets_phases(graph_, readers)) hand_on(readers, pin);
      return meet(kept_.stored, id, pin);
    }
    const Op& producer = graph_.op(value.producer);
    for (std::size_t j = 0; j < producer.outputs.size(); ++j) {
      if (producer.outputs[j] == id) kept_.ports[value.producer].push_back({false, j, pin});
    }
    return Ok{};
  }

  bool has_shared_hub(const Value& value) const {
    return model_.may_reshard(graph_, value, Leg::kToHub);
  }

  // Without readers, and where none of them shares a reshard with another, the hub is the spec.
  Status keep_hub(ValueId id, const SpecPin& pin) {
    const Value& value = graph_.value(id);
    const Readers& readers = readers_[id.index()];
    if (value.kind == ValueKind::kConstant) return keep_constant(pin);
    if (readers.count() == 0) return keep_spec(id, pin);
    if (readers.count() == 1) return keep_readers(id, pin);
    if (!has_shared_hub(value) || meets_phases(graph_, readers)) return keep_spec(id, pin);
    if (value.kind != ValueKind::kActivation && !value.accumulates) {
      AUTOPAR_RETURN_IF_ERROR(not_partial(pin));
    }
    hand_on(readers, pin);
    return meet(kept_.hub, id, pin, false);
  }

  // Phase ops leave the hub as it is.
  void hand_on(const Readers& readers, const SpecPin& pin) {
    for (const Use& use : readers.uses) {
      if (phase_ops_.contains(use.op)) kept_.ports[use.op].push_back({true, 0, pin});
    }
  }

  // What every reader needs.
  Status keep_readers(ValueId id, const SpecPin& pin) {
    for (const Use& use : readers_[id.index()].uses) {
      kept_.ports[use.op].push_back({true, static_cast<std::size_t>(use.port), pin});
    }
    return readers_[id.index()].is_output ? keep_output(id, pin) : Status(Ok{});
  }

  // The next value of an input leaves as that comes in.
  Status keep_output(ValueId id, const SpecPin& pin) {
    if (graph_.value(id).kind == ValueKind::kConstant) return keep_constant(pin);
    const ValueId updated = updated_[id.index()];
    return updated.valid() ? meet(kept_.stored, updated, pin) : meet(kept_.output, id, pin);
  }

  static Status not_partial(const SpecPin& pin) {
    const bool partial = std::any_of(pin.specs.begin(), pin.specs.end(),
                                     [](const Spec& spec) { return !spec.partial.empty(); });
    if (!partial) return Ok{};
    return input_error(pin.wish + " must not be a partial sum: only what an op makes is one");
  }

  // What is left of two pins of one thing.
  Status meet(std::map<ValueId, SpecPin>& pins, ValueId id, const SpecPin& pin,
              bool reduced = true) {
    const bool may_be_partial = !reduced || graph_.value(id).accumulates;
    if (!may_be_partial) AUTOPAR_RETURN_IF_ERROR(not_partial(pin));
    const auto [found, is_new] = pins.try_emplace(id, pin);
    if (is_new) return Ok{};
    SpecPin& other = found->second;
    std::erase_if(other.specs, [&](const Spec& spec) { return !pin.keeps(spec); });
    if (!other.specs.empty()) return Ok{};
    return input_error(pin.wish + " and " + other.wish + " disagree");
  }

  // In place of the counts of the outputs of an op, if that is how they can be kept: what it may
  // leave, and how that is read.
  Status scatter_outputs(OpId id, OpPin pin) {
    const Op& op = graph_.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    const SplitCounts counts = *pin.out_strategy;
    MeshProblem::OpChoices all;
    for (Assignment& a : model_.choices_of_pin(op, rule)) {
      all.specs.push_back(*specs_of(rule, a, mesh_));
      all.assignments.push_back(std::move(a));
    }
    if (pinned(all, pin, graph_, id, rule, mesh_)) return Ok{};
    pin.out_strategy.reset();
    const auto kept = pinned(all, pin, graph_, id, rule, mesh_);
    if (!kept || counts.size() > op.outputs.size()) return Ok{};
    const std::string wish =
        "op '" + op.name + "' (" + op.type + "): out_strategy " + autopar::to_text(counts);
    std::vector<SpecPin> made(counts.size(), {{}, false, wish}), read = made;
    const bool possible =
        std::any_of(kept->specs.begin(), kept->specs.end(), [&](const OpSpecs& specs) {
          return scattered_outputs(specs, counts, op, false).has_value();
        });
    if (!possible) return Ok{};
    for (const OpSpecs& specs : kept->specs) {
      const auto found = scattered_outputs(specs, counts, op, true);
      if (found) add_scattered(specs, *found, made, read);
    }
    kept_.ops[op.name] = std::move(pin);
    for (std::size_t j = 0; j < counts.size(); ++j) {
      kept_.ports[id].push_back({false, j, made[j]});
      AUTOPAR_RETURN_IF_ERROR(keep_read(op.outputs[j], made[j], read[j]));
    }
    return Ok{};
  }

  // What can be made of the outputs of an assignment; nothing where one cannot get its counts.
  std::optional<std::vector<std::vector<Spec>>> scattered_outputs(const OpSpecs& specs,
                                                                  const SplitCounts& counts,
                                                                  const Op& op,
                                                                  bool slices_too) const {
    std::vector<std::vector<Spec>> found;
    for (std::size_t j = 0; j < counts.size(); ++j) {
      if (!op.has_output(j)) return std::nullopt;
      const Shape& shape = graph_.value(op.outputs[j]).shape;
      found.push_back(scattered(specs.outputs[j], counts[j], shape, mesh_, slices_too));
      if (found.back().empty()) return std::nullopt;
    }
    return found;
  }

  static void add_scattered(const OpSpecs& specs, const std::vector<std::vector<Spec>>& found,
                            std::vector<SpecPin>& made, std::vector<SpecPin>& read) {
    const auto add = [](const Spec& spec, std::vector<Spec>& list) {
      if (std::find(list.begin(), list.end(), spec) == list.end()) list.push_back(spec);
    };
    for (std::size_t j = 0; j < found.size(); ++j) {
      add(specs.outputs[j], made[j].specs);
      for (const Spec& spec : found[j]) add(spec, read[j].specs);
    }
  }

  Status keep_read(ValueId id, const SpecPin& made, const SpecPin& read) {
    const Readers& readers = readers_[id.index()];
    if (made.specs == read.specs || readers.count() == 0) return Ok{};
    if (readers.count() == 1 || !has_shared_hub(graph_.value(id))) return keep_readers(id, read);
    return meet(kept_.hub, id, read, false);
  }

  const SearchRequest& request_;
  const Graph& graph_;
  CostModel& model_;
  const Mesh& mesh_;
  const PhaseOps phase_ops_;
  std::vector<Readers> readers_;
  std::vector<ValueId> updated_;  // per value the input whose next value it is
  KeptPins kept_;
};

}  // namespace

Result<KeptPins> keep_pins(const SearchRequest& request, CostModel& model) {
  return Keeper(request, model).run();
}

}  // namespace autopar
