#include "search/build/mesh_build.hpp"

#include <algorithm>

#include "search/batch.hpp"
#include "search/boundary.hpp"

namespace autopar {

MeshBuild::MeshBuild(const SearchRequest& asked, CostModel& by, KeptPins kept, Allowance& within)
    : request(asked),
      pins(std::move(kept)),
      allowance(within),
      graph(asked.graph),
      model(by),
      prices(asked, by),
      readers(readers_of(graph)),
      phase_ops(graph),
      inputs(graph.inputs.begin(), graph.inputs.end()),
      updated(updated_inputs(graph, asked.updates)),
      tables(out.problem, by, asked.limit_memory, within) {
  out.mesh = model.mesh();
  const auto types = [&](const ReshardWeights& weights) {
    std::vector<int> of_values;
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const bool inside = graph.is_inside(ValueId(static_cast<std::int64_t>(v)));
      of_values.push_back(tables.type_of(graph.values[v], weights, inside));
    }
    return of_values;
  };
  types_ = types({});
  types_in_passes_ =
      graph.passes > 1 ? types(everything_times(static_cast<double>(graph.passes))) : types_;
}

int MeshBuild::add_node(std::string name, std::vector<double> cost) {
  out.problem.nodes.push_back({std::move(name), std::move(cost), {}});
  out.specs_of_node.emplace_back();
  out.op_of_node.emplace_back();
  return static_cast<int>(out.problem.nodes.size()) - 1;
}

MeshBuild::End MeshBuild::add_value_node(std::string name, int list) {
  std::vector<double> no_cost(tables.specs(list).size(), 0.0);
  const End end{add_node(std::move(name), std::move(no_cost)), list};
  out.specs_of_node.back() = tables.shared_specs(list);
  return end;
}

void MeshBuild::use(int node, int begin, int end, std::vector<double> bytes) {
  if (begin >= end || !limited()) return;
  out.problem.nodes[static_cast<std::size_t>(node)].uses.push_back({begin, end, std::move(bytes)});
}

int MeshBuild::copies_at(int time) const {
  const bool in_pass = graph.ops[static_cast<std::size_t>(time)].phase != Phase::kUpdate;
  return in_pass ? static_cast<int>(graph.copies) : 1;
}

int MeshBuild::type_of(ValueId id, OpId when) {
  if (prices.are_weighted() && when.valid()) {
    return tables.type_of(graph.value(id), prices.of_reshards(id, when), graph.is_inside(id));
  }
  const int runs = when.valid() ? graph.kernel(graph.op(when)).runs : 1;
  if (runs > 1) {
    const auto times = static_cast<double>(runs * graph.times(graph.op(when)));
    return tables.type_of(graph.value(id), everything_times(times), graph.is_inside(id));
  }
  const bool once = !when.valid() || graph.times(graph.op(when)) == 1;
  return once ? types_[id.index()] : types_in_passes_[id.index()];
}

int MeshBuild::needed_list(const Use& use) const {
  return table_of_op[use.op.index()]->input_lists[static_cast<std::size_t>(use.port)];
}

std::vector<int> MeshBuild::needed_lists(ValueId id) const {
  std::vector<int> lists;
  for (const Use& use : readers[id.index()].uses) {
    const int list = needed_list(use);
    if (std::find(lists.begin(), lists.end(), list) == lists.end()) lists.push_back(list);
  }
  return lists;
}

int MeshBuild::common_layouts(ValueId id) {
  const Shape& shape = graph.value(id).shape;
  return tables.list_of({replicated(shape.size()), data_parallel_spec(shape, out.mesh)});
}

const StoredRule* MeshBuild::stored_rule(ValueId id) const {
  const auto found = request.stored_rules.find(id);
  if (found == request.stored_rules.end() || pins.stored.count(id) != 0) return nullptr;
  const bool is_fixed = inputs.count(id) != 0 && is_fixed_input(request.inputs, graph.value(id));
  return is_fixed ? nullptr : &found->second;
}

}  // namespace autopar
