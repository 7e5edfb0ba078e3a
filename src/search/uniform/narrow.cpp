// Which candidates of the ops that no pin names are in the spirit of a template.
#include <algorithm>
#include <map>

#include "search/batch.hpp"
#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

class TemplateNarrowing {
 public:
  TemplateNarrowing(const SearchRequest& asked, const TemplateRoles& roles, const Template& wanted)
      : asked_(asked),
        graph_(asked.graph),
        mesh_(*asked.mesh),
        axes_(axes_of(mesh_, wanted)),
        batch_(batch_factors(graph_, asked.rules)),
        sequence_(factors_along(graph_, asked.rules, 1)),
        updated_as_(graph_.values.size()) {
    find_stored(roles);
  }

  std::shared_ptr<const Narrowing> run() {
    auto narrowing = std::make_shared<Narrowing>();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (asked_.pins.ops.count(op.name) != 0) {
        narrowing->assignments.emplace_back();
      } else if (op.phase == Phase::kUpdate) {
        narrowing->assignments.push_back(kept(o, {}, spec_of_update(op)));
      } else {
        narrowing->assignments.push_back(kept(o, along_of(o), nullptr));
      }
    }
    return narrowing;
  }

 private:
  // What updates calculate lies like the states of the parameter, accumulators as they are read.
  void find_stored(const TemplateRoles& roles) {
    using Kind = TemplateStored::Kind;
    std::map<ValueId, Spec> of_states;  // by what the passes read
    for (const Kind kind : {Kind::kRead, Kind::kState}) {
      for (const TemplateStored& stored : roles.stored) {
        const auto pin = asked_.pins.values.find(graph_.value(stored.value).name);
        if (stored.kind != kind || pin == asked_.pins.values.end()) continue;
        const auto spec = parse_spec(pin->second.spec, mesh_);
        if (spec) of_states[stored.of.valid() ? stored.of : stored.value] = *spec;
      }
    }
    for (const TemplateStored& stored : roles.stored) {
      const auto spec = of_states.find(stored.of.valid() ? stored.of : stored.value);
      if (spec != of_states.end()) updated_as_[stored.value.index()] = spec->second;
    }
  }

  // Of an op on elements that are those of a parameter; null: none.
  const Spec* spec_of_update(const Op& op) {
    if (!is_on_elements(op) && !is_identity(op)) return nullptr;
    const Shape& shape = graph_.value(op.outputs[0]).shape;
    for (ValueId input : op.inputs) {
      if (!input.valid() || graph_.value(input).shape != shape) continue;
      const std::optional<Spec>& spec = updated_as_[input.index()];
      if (!spec) continue;
      for (ValueId output : op.outputs) {
        if (output.valid()) updated_as_[output.index()] = spec;
      }
      return &*updated_as_[op.outputs[0].index()];
    }
    return nullptr;
  }

  // Factor of the batch, -1: none; those of the sequence.
  struct Along {
    int batch = -1;
    std::vector<int> sequence = {};
    auto operator<=>(const Along&) const = default;
  };

  // Those that divide.
  Along along_of(std::size_t o) const {
    const auto divides = [&](int factor, const AxisList& axes) {
      const Factor& split = asked_.rules.rules[o].factors[static_cast<std::size_t>(factor)];
      return split.size % axes_size(mesh_, axes) == 0;
    };
    Along along;
    if (batch_[o] >= 0 && divides(batch_[o], axes_.data)) along.batch = batch_[o];
    for (const int factor : sequence_[o]) {
      if (factor != batch_[o] && divides(factor, axes_.context)) along.sequence.push_back(factor);
    }
    return along;
  }

  bool is_kept(const Assignment& assignment, const Along& along) const {
    const auto factor_of = [&](int axis) {
      return assignment.factor_of_axis[static_cast<std::size_t>(axis)];
    };
    for (const int axis : axes_.data) {
      if (along.batch >= 0 && factor_of(axis) != along.batch) return false;
    }
    const std::vector<int>& sequence = along.sequence;
    for (const int axis : axes_.context) {
      const bool is_one =
          std::find(sequence.begin(), sequence.end(), factor_of(axis)) != sequence.end();
      // Keys and values are gathered, and what is made of them then is whole.
      if (!sequence.empty() && !is_one && factor_of(axis) >= 0) return false;
    }
    // Axes of one kind of parallelism split the same.
    for (const AxisList* axes : {&axes_.data, &axes_.context, &axes_.tensor}) {
      int split = -1;
      for (const int axis : *axes) {
        const int factor = assignment.factor_of_axis[static_cast<std::size_t>(axis)];
        if (factor < 0) continue;
        if (split >= 0 && factor != split) return false;
        split = factor;
      }
    }
    return true;
  }

  // Empty: all.
  const std::vector<Assignment>& kept(std::size_t o, const Along& along, const Spec* spec) {
    const std::tuple key(asked_.rules.class_of_op[o], along, spec ? to_text(*spec, mesh_) : "");
    const auto [known, is_new] = kept_.try_emplace(key);
    if (!is_new) return known->second;
    const Rule& rule = asked_.rules.rules[o];
    for (Assignment& assignment : candidates(rule, mesh_)) {
      if (!is_kept(assignment, along)) continue;
      const auto specs = spec == nullptr ? std::nullopt : specs_of(rule, assignment, mesh_);
      const bool is_like = spec == nullptr || (specs && specs->outputs[0] == *spec);
      if (is_like) known->second.push_back(std::move(assignment));
    }
    return known->second;
  }

  const SearchRequest& asked_;
  const Graph& graph_;
  const Mesh& mesh_;
  const TemplateAxes axes_;
  const std::vector<int> batch_;
  const std::vector<std::vector<int>> sequence_;
  std::vector<std::optional<Spec>> updated_as_;  // per value
  std::map<std::tuple<int, Along, std::string>, std::vector<Assignment>> kept_;
};

}  // namespace

TemplateAxes axes_of(const Mesh& mesh, const Template& wanted) {
  TemplateAxes axes;
  std::int64_t taken = 1;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const std::int64_t size = mesh.axes[static_cast<std::size_t>(axis)].size;
    const bool is_data = taken < wanted.data;
    const bool is_replica = taken < wanted.data * wanted.context;
    if (size > 1) (is_data ? axes.data : is_replica ? axes.context : axes.tensor).push_back(axis);
    taken *= size;
  }
  return axes;
}

std::shared_ptr<const Narrowing> narrowed_to(const SearchRequest& asked, const TemplateRoles& roles,
                                             const Template& wanted) {
  return TemplateNarrowing(asked, roles, wanted).run();
}

}  // namespace autopar
