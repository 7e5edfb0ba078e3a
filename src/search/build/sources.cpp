// The nodes of inputs and parameters, from which they choose how they are stored.
#include "search/boundary.hpp"
#include "search/build/mesh_build.hpp"

namespace autopar {
namespace {

const Spec* narrowed_stored(const SearchRequest& request, ValueId id) {
  if (!request.narrowing) return nullptr;
  const auto found = request.narrowing->stored.find(id);
  return found == request.narrowing->stored.end() ? nullptr : &found->second;
}

// As an op needs it, without sums where it may not be stored as one.
int as_needed(SpecTables& tables, const Value& value, std::vector<int> lists) {
  if (value.accumulates) return tables.united(lists, true);
  for (int& list : lists) list = tables.list_of(reduced(tables.specs(list)));
  return tables.united(lists, false);
}

// The specs that a value may be stored in, pins and layouts aside.
int stored_specs(MeshBuild& build, ValueId id) {
  SpecTables& tables = build.tables;
  const SearchRequest& request = build.request;
  const Value& value = build.graph.value(id);
  std::vector<int> lists = build.needed_lists(id);
  const StoredRule* rule = build.stored_rule(id);
  if (rule != nullptr && rule->kind == StoredRule::Kind::kSplit) {
    const int any_spec = tables.canonical_and(build.type_of(id), {});
    return tables.list_of(most_parts(tables.specs(any_spec), build.out.mesh));
  }
  if (rule != nullptr) return tables.canonical_and(build.type_of(id), lists, value.accumulates);
  if (const Spec* stored = narrowed_stored(request, id)) return tables.list_of({*stored});
  if (request.narrowing && !request.narrowing->all_stored_specs) {
    lists.insert(lists.begin(), tables.list_of({replicated(value.shape.size())}));
    return tables.united(lists, false);
  }
  const bool shared = build.readers[id.index()].uses.size() > 1;
  if (build.model.has_free_boundary(value, shared)) {
    return tables.canonical_and(build.type_of(id), lists, value.accumulates);
  }
  lists.push_back(build.common_layouts(id));
  return as_needed(tables, value, std::move(lists));
}

// What is stored like another value.
void link_alike(MeshBuild& build) {
  for (const auto& [id, rule] : build.request.stored_rules) {
    if (rule.kind != StoredRule::Kind::kLike || build.stored_rule(id) == nullptr) continue;
    const MeshBuild::End& from = build.supplier[rule.like.index()];
    const MeshBuild::End& to = build.supplier[id.index()];
    AUTOPAR_CHECK(from.node >= 0 && to.node >= 0, "stored like what is not stored");
    build.out.problem.edges.push_back(
        {from.node, to.node, build.tables.alike(from.list, to.list).cost, {}});
  }
}

}  // namespace

Status add_sources(MeshBuild& build) {
  MeshProblem& out = build.out;
  out.source_node.assign(build.graph.values.size(), -1);
  for (std::size_t v = 0; v < build.graph.values.size(); ++v) {
    const Value& value = build.graph.values[v];
    if (value.kind != ValueKind::kInput && value.kind != ValueKind::kParameter) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    AUTOPAR_TRY(list, build.restricted(stored_specs(build, id), [&](SpecList& specs) {
      return restrict_source(build.request, build.pins, id, build.inputs.count(id) != 0, out.mesh,
                             specs);
    }));
    build.supplier[v] = build.add_value_node(value.name, list);
    out.source_node[v] = build.supplier[v].node;
  }
  link_alike(build);
  return Ok{};
}

}  // namespace autopar
