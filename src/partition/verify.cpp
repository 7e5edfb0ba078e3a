#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "autopar/step.hpp"
#include "partition/calls.hpp"
#include "partition/collectives.hpp"
#include "partition/program.hpp"

namespace autopar {
namespace {

Error plan_error(const std::string& what) { return input_error("plan: " + what); }
Error op_error(const Op& op, const std::string& what) {
  return plan_error("op '" + op.name + "' (" + op.type + "): " + what);
}

Status verify_boundary(const Plan& plan, const char* what, const std::vector<ValueId>& ids,
                       const std::vector<BoundaryValue>& boundary) {
  if (ids.size() != boundary.size()) {
    return plan_error("the program has " + std::to_string(ids.size()) + " " + what +
                      "s, but specs are there for " + std::to_string(boundary.size()));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Value& value = plan.program.value(ids[i]);
    const BoundaryValue& whole = boundary[i];
    const std::string where = std::string(what) + " " + std::to_string(i) + " '" + whole.name + "'";
    if (value.name != whole.name) {
      return plan_error(where + " is called '" + value.name + "' in the program");
    }
    if (Status valid = verify(whole.spec, whole.shape, plan.mesh); !valid) {
      return plan_error(where + ": " + valid.error().message);
    }
    const bool may_be_partial = is_accumulator(whole.name) || is_next_accumulator(whole.name);
    if (!whole.spec.partial.empty() && !may_be_partial) {
      return plan_error(where + " is a partial sum, " + to_text(whole.spec, plan.mesh));
    }
    const Shape expected = local_shape(whole.spec, whole.shape, plan.mesh);
    if (value.shape != expected || value.dtype != whole.dtype) {
      return plan_error(where + ": its slices are " + to_text(expected) + " of " +
                        name_of(whole.dtype) + ", the program has " + to_text(value.shape) +
                        " of " + name_of(value.dtype));
    }
  }
  return Ok{};
}

class CollectiveCheck {
 public:
  // `ranks`: of the world, by place in the mesh.
  CollectiveCheck(const Plan& plan, Stage stage, const std::vector<std::int64_t>& ranks)
      : plan_(plan), stage_(stage), ranks_(ranks) {}

  Status run() {
    for (const Op& op : plan_.program.ops) {
      if (is_collective(op)) AUTOPAR_RETURN_IF_ERROR(check(op));
    }
    return Ok{};
  }

 private:
  Status check(const Op& op) {
    const bool message =
        op.type == name_of(CollectiveKind::kSend) || op.type == name_of(CollectiveKind::kRecv);
    if (message) return check_seq(op);  // it has pairs of ranks, not groups along axes
    if (!op.has_input(0) || op.outputs.size() != 1 || !op.has_output(0)) {
      return op_error(op, "expected an input and one output");
    }
    // Groups say all; where they do not run along axes of the mesh, the order proof reads them.
    if (stage_ == Stage::kOrdered && op.attributes.count("mesh_axes") == 0) return check_seq(op);
    AUTOPAR_TRY(axes, axes_of(op, plan_.mesh));
    const Value& input = plan_.program.value(op.inputs[0]);
    const Value& output = plan_.program.value(op.outputs[0]);
    AUTOPAR_TRY(shape, collective_output_shape(op, axes_size(plan_.mesh, axes), input.shape));
    if (shape != output.shape || input.dtype != output.dtype) {
      return op_error(op, "gives " + to_text(shape) + " of " + name_of(input.dtype) +
                              ", but its output '" + output.name + "' is " + to_text(output.shape) +
                              " of " + name_of(output.dtype));
    }
    if (stage_ == Stage::kAbstract) return Ok{};
    if (op.type == name_of(CollectiveKind::kMakePartial)) return op_error(op, "is not lowered");
    AUTOPAR_RETURN_IF_ERROR(check_groups(op, axes));
    return check_seq(op);
  }

  Status check_groups(const Op& op, const std::vector<int>& axes) {
    auto [expected, added] = groups_.try_emplace(axes);
    if (added) expected->second = groups_along(axes);
    const auto groups = op.attributes.find("groups");
    const auto* found =
        groups == op.attributes.end() ? nullptr : std::get_if<IntList>(&groups->second);
    const std::int64_t size = op.int_attribute("group_size", -1);
    const bool same = found != nullptr && *found == expected->second;
    // The next op with the same list need not be read element by element.
    if (same) expected->second = *found;
    if (!same || size != axes_size(plan_.mesh, axes)) {
      return op_error(op,
                      "groups and group_size must be those of the devices along its mesh_axes: "
                      "every rank in exactly one group, in order");
    }
    const std::int64_t root = op.int_attribute("root", 0);
    if (root < 0 || root >= size) {
      return op_error(op, "root " + std::to_string(root) + " is no position in a group of " +
                              std::to_string(size));
    }
    return Ok{};
  }

  std::vector<std::int64_t> groups_along(const std::vector<int>& axes) const {
    std::vector<std::int64_t> groups = device_groups(plan_.mesh, axes);
    for (std::int64_t& rank : groups) rank = ranks_[static_cast<std::size_t>(rank)];
    return groups;
  }

  Status check_seq(const Op& op) {
    if (stage_ != Stage::kOrdered) return Ok{};
    const std::int64_t seq = op.int_attribute("seq", -1);
    if (seq <= last_seq_) {
      return op_error(op, "seq " + std::to_string(seq) + " must be above " +
                              std::to_string(last_seq_) + ", that of the collective before");
    }
    last_seq_ = seq;
    return Ok{};
  }

  const Plan& plan_;
  const Stage stage_;
  const std::vector<std::int64_t>& ranks_;
  std::int64_t last_seq_ = -1;
  // Every collective over the same axes has the same groups.
  std::map<std::vector<int>, IntList> groups_;
};

Status verify_graph(const Plan& plan) {
  AUTOPAR_RETURN_IF_ERROR(verify(plan.program));
  AUTOPAR_RETURN_IF_ERROR(verify_boundary(plan, "input", plan.program.inputs, plan.inputs));
  return verify_boundary(plan, "output", plan.program.outputs, plan.outputs);
}

std::vector<std::int64_t> all_ranks(const Mesh& mesh) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(mesh.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Status verify(const Plan& plan, Stage stage) {
  const std::vector<std::int64_t> ranks = all_ranks(plan.mesh);
  AUTOPAR_RETURN_IF_ERROR(verify_graph(plan));
  // First the proof: it says more exactly what is wrong with groups.
  if (stage == Stage::kOrdered) {
    const Status proven = prove_order({{&plan.program, ranks}}, plan.mesh.size());
    if (!proven) return plan_error(proven.error().message);
  }
  return CollectiveCheck(plan, stage, ranks).run();
}

Status verify(const Plan& plan) { return verify(plan, Stage::kOrdered); }

Status verify(const Plan& plan, const std::vector<std::int64_t>& ranks, std::int64_t world_size) {
  if (static_cast<std::int64_t>(ranks.size()) != plan.mesh.size()) {
    return plan_error("its mesh " + to_text(plan.mesh) + " has " +
                      std::to_string(plan.mesh.size()) + " places, but " +
                      std::to_string(ranks.size()) + " ranks are given for them");
  }
  AUTOPAR_RETURN_IF_ERROR(verify_graph(plan));
  AUTOPAR_RETURN_IF_ERROR(check_ranks({{&plan.program, ranks}}, world_size, false));
  const auto calls = calls_of({&plan.program, ranks}, world_size);
  if (!calls) return plan_error(calls.error().message);
  return CollectiveCheck(plan, Stage::kOrdered, ranks).run();
}

}  // namespace autopar
