// Hubs and outputs of values, and the edges from where a value is made or stored to where it goes.
#include <algorithm>

#include "search/boundary.hpp"
#include "search/build/memory_uses.hpp"
#include "search/stored_rules.hpp"

namespace autopar {
namespace {

class Connections {
 public:
  explicit Connections(MeshBuild& build)
      : build_(build),
        request_(build.request),
        graph_(build.graph),
        tables_(build.tables),
        as_read_(as_read_values(build.request,
                                [&](ValueId id) { return build.stored_rule(id) != nullptr; })),
        memory_(build) {
    build.out.hub_node.assign(graph_.values.size(), -1);
    build.out.output_node.assign(graph_.values.size(), -1);
  }

  Status connect(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::kConstant) return Ok{};
    const Readers& readers = build_.readers[id.index()];
    MemoryUses::Places places;
    End from = places.spec = build_.supplier[id.index()];
    AUTOPAR_CHECK(from.node >= 0, "value without producer port: " + value.name);
    if (readers.count() > 1) {
      AUTOPAR_TRY(hub, add_hub(id, from, places.hub_edge));
      from = places.hub = hub;
    }
    if (readers.is_output) {
      AUTOPAR_TRY(output, connect_output(id, from, places.output_edge));
      places.output = output;
    }
    // The ports of one op that read this value share an edge.
    for (std::size_t u = 0; u < readers.uses.size();) {
      std::vector<int> lists;
      const OpId op = readers.uses[u].op;
      for (; u < readers.uses.size() && readers.uses[u].op == op; ++u) {
        lists.push_back(build_.needed_list(readers.uses[u]));
      }
      std::sort(lists.begin(), lists.end());
      lists.erase(std::unique(lists.begin(), lists.end()), lists.end());
      places.reader_edges.emplace_back(op, connect_op(id, from, op, lists));
    }
    memory_.charge(id, places);
    return Ok{};
  }

 private:
  using Edge = SpecTables::Edge;
  using End = MeshBuild::End;

  Result<End> add_hub(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    const Readers& readers = build_.readers[id.index()];
    const bool stored = value.kind != ValueKind::kActivation;
    const bool shared =
        build_.model.may_reshard(graph_, value, Leg::kToHub) && !meets_phases(graph_, readers);
    std::vector<int> lists;
    if (shared) lists = build_.needed_lists(id);
    lists.push_back(from.list);
    const bool made_whole = shared && !as_read_[id.index()] && is_better_whole(value);
    const bool partial_too = (!stored && !is_handed_over(id) && !made_whole) || value.accumulates;
    int all = tables_.united(lists, partial_too);
    // Of few candidates perhaps all make and read partial sums.
    if (tables_.specs(all).empty()) all = tables_.list_of(reduced(tables_.specs(from.list)));
    AUTOPAR_TRY(list, build_.restricted(all, [&](SpecList& specs) {
      restrict_hub(build_.pins, id, specs);
      return Status(Ok{});
    }));
    const End hub = build_.add_value_node(value.name + " (hub)", list);
    build_.out.hub_node[id.index()] = hub.node;
    const OpId first(static_cast<std::int64_t>(readers.first));
    Edge edge = tables_.edge(build_.type_of(id, first), from.list, {hub.list});
    if (!shared || as_read_[id.index()]) edge = tables_.equal_only(edge, from.list, hub.list);
    const bool unreduced =
        std::any_of(readers.uses.begin(), readers.uses.end(),
                    [&](const Use& use) { return graph_.op(use.op).sums == SumsAt::kAfter; });
    if (unreduced) edge = tables_.unreduced_only(edge, from.list, hub.list);
    edge_index = add_edge(from.node, hub.node, edge, readers.first);
    return hub;
  }

  // One number, made once: as a partial sum it would have to be added up behind each of its
  // readers, by a collective of no less. Scalars that all updates read, such as Adam's bias
  // corrections, else tie all of a training step together by choices that differ by nothing.
  bool is_better_whole(const Value& value) const {
    return element_count(value.shape) == 1 && value.producer.valid() &&
           graph_.times(graph_.op(value.producer)) == 1;
  }

  Result<End> connect_output(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    End sink;
    if (const ValueId input = leaves_as(id); input.valid()) {
      sink = build_.supplier[input.index()];
    } else {
      AUTOPAR_TRY(list, build_.restricted(left_specs(id, from.list), [&](SpecList& specs) {
        return restrict_output(request_, build_.pins, id, build_.out.mesh, specs);
      }));
      sink = build_.add_value_node(value.name + " (output)", list);
    }
    build_.out.output_node[id.index()] = sink.node;
    const Edge edge = tables_.edge(build_.type_of(id, value.producer), from.list, {sink.list});
    edge_index = add_edge(from.node, sink.node, edge, build_.readers[id.index()].produced);
    return sink;
  }

  // The specs that an output may leave in, pins of it and layouts aside. Who pins an op says how
  // its outputs lie: they leave as it makes them, or as the hub that is pinned beside it, partial
  // sums reduced.
  int left_specs(ValueId id, int hub) {
    const Value& value = graph_.value(id);
    const bool is_pinned_hub = build_.pins.hub.count(id) != 0;
    const int made = is_pinned_hub ? hub : build_.supplier[id.index()].list;
    const int whole_sums = tables_.list_of(reduced(tables_.specs(made)));
    if (pinned_producer(value)) return tables_.united({whole_sums}, false);
    if (!build_.model.has_free_boundary(value, false)) {
      return tables_.united({whole_sums, build_.common_layouts(id)}, false);
    }
    return tables_.canonical_and(build_.type_of(id), {hub, whole_sums});
  }

  // Invalid: it may leave in any layout.
  ValueId leaves_as(ValueId id) const {
    const auto handed_on = request_.leaves_as.find(id);
    return handed_on == request_.leaves_as.end() ? build_.updated[id.index()] : handed_on->second;
  }

  bool pinned_producer(const Value& value) const {
    return request_.outputs.kind == BoundaryLayout::Kind::kFree && value.producer.valid() &&
           build_.pins.ops.count(graph_.op(value.producer).name) != 0;
  }

  // From one program to another, on the same device.
  bool is_handed_over(ValueId id) const {
    const OpId producer = graph_.value(id).producer;
    const auto& uses = build_.readers[id.index()].uses;
    return request_.phases_apart && producer.valid() &&
           graph_.op(producer).phase == Phase::kForward &&
           std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return graph_.op(use.op).phase == Phase::kBackward; });
  }

  // -1: nothing is ever resharded, so there is no edge.
  int connect_op(ValueId id, const End& from, OpId op, const std::vector<int>& lists) {
    Edge edge = tables_.edge(build_.type_of(id, op), from.list, lists);
    const Leg leg = build_.readers[id.index()].count() > 1 ? Leg::kFromHub : Leg::kToOnlyReader;
    const bool as_read = as_read_[id.index()] && graph_.op(op).phase != Phase::kUpdate;
    if (as_read || build_.phase_ops.contains(op) ||
        !build_.model.may_reshard(graph_, graph_.value(id), leg)) {
      for (int list : lists) edge = tables_.equal_only(edge, from.list, list);
    }
    if (graph_.op(op).sums == SumsAt::kAfter) {
      for (int list : lists) edge = tables_.unreduced_only(edge, from.list, list);
    }
    if (leg == Leg::kToOnlyReader && is_handed_over(id)) {
      for (int list : lists) edge = tables_.whole_only(edge, from.list, list);
    }
    if (edge.free) return -1;
    const int to = build_.out.node_of_op[op.index()];
    return add_edge(from.node, to, edge, static_cast<int>(op.value));
  }

  int add_edge(int from, int to, const Edge& edge, int time) {
    build_.out.problem.edges.push_back({from, to, edge.cost, temporaries(edge, time)});
    return static_cast<int>(build_.out.problem.edges.size()) - 1;
  }

  std::vector<EdgeUse> temporaries(const Edge& edge, int time) const {
    if (!build_.limited() || edge.peak < 0) return {};
    return std::vector<EdgeUse>(static_cast<std::size_t>(build_.copies_at(time)),
                                {time, time + 1, edge.peak});
  }

  MeshBuild& build_;
  const SearchRequest& request_;
  const Graph& graph_;
  SpecTables& tables_;
  const std::vector<bool> as_read_;  // per value
  MemoryUses memory_;
};

}  // namespace

Status connect_values(MeshBuild& build) {
  Connections connections(build);
  for (std::size_t v = 0; build.out.whole && v < build.graph.values.size(); ++v) {
    AUTOPAR_RETURN_IF_ERROR(connections.connect(ValueId(static_cast<std::int64_t>(v))));
    build.out.whole = !build.allowance.over();
  }
  return Ok{};
}

}  // namespace autopar
