// Graph + cost model -> Problem. One node per op (its assignments), per stored value (where inputs
// and parameters lie), per value with several readers (its hub) and per graph output (how it
// leaves). Ops with equal signatures share their candidates and cost tables.
#include <algorithm>
#include <set>
#include <utility>

#include "autopar/search.hpp"
#include "search/batch.hpp"
#include "search/boundary.hpp"
#include "search/pins.hpp"
#include "search/signature.hpp"
#include "search/spec_lists.hpp"

namespace autopar {

namespace {

// Everything that ops of one signature have in common.
struct OpTable {
  std::shared_ptr<const MeshProblem::OpChoices> choices;
  std::vector<double> cost;
  std::vector<int> input_lists;   // per port: list id of the needed specs per choice
  std::vector<int> output_lists;  // per output: list id of the produced specs
};

class Builder {
 public:
  Builder(const SearchRequest& request, CostModel& model)
      : request_(request),
        graph_(request.graph),
        model_(model),
        readers_(readers_of(graph_)),
        conventions_(model.conventions()) {
    out_.mesh = model.mesh();
    inputs_.insert(graph_.inputs.begin(), graph_.inputs.end());
    updated_ = updated_inputs(graph_, request.updates);
    charges_.resize(graph_.values.size());
    for (const MemoryCharge& charge : memory_charges(graph_, readers_, updated_)) {
      charges_[charge.value.index()].push_back(charge);
    }
  }

  Result<MeshProblem> build() {
    out_.problem.horizon = static_cast<int>(graph_.ops.size());
    out_.problem.use_limit = kInfinity;
    if (request_.limit_memory) {
      out_.problem.use_limit = static_cast<double>(
          request_.memory_limit > 0 ? request_.memory_limit : request_.cluster.device.memory_bytes);
    }
    for (const Value& value : graph_.values) {
      if (value.kind == ValueKind::kConstant) {
        out_.problem.base_use += static_cast<double>(value.bytes());
      }
    }
    AUTOPAR_RETURN_IF_ERROR(add_ops());
    AUTOPAR_RETURN_IF_ERROR(add_sources());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      AUTOPAR_RETURN_IF_ERROR(connect(ValueId(static_cast<std::int64_t>(v))));
    }
    return std::move(out_);
  }

 private:
  // One end of an edge: a node and the spec that each of its choices stands for.
  struct End {
    int node = -1;
    int list = -1;
  };

  // Shared tables of an edge: seconds, and peak bytes of temporaries.
  struct Edge {
    int cost = -1;
    int peak = -1;
    bool free = false;  // nothing is ever resharded
  };

  int list_id(const SpecList& list) {
    auto [it, inserted] = list_ids_.try_emplace(list, static_cast<int>(lists_.size()));
    if (inserted) lists_.push_back(list);
    return it->second;
  }

  int add_node(std::string name, std::vector<double> cost, SpecList specs) {
    out_.problem.nodes.push_back({std::move(name), std::move(cost), {}});
    out_.specs_of_node.push_back(std::move(specs));
    out_.op_of_node.emplace_back();
    return static_cast<int>(out_.problem.nodes.size()) - 1;
  }

  Status add_ops() {
    const std::vector<int> batch = batch_factors(graph_, request_.rules);
    out_.node_of_op.resize(graph_.ops.size());
    out_.choices_of_op.resize(graph_.ops.size());
    table_of_op_.resize(graph_.ops.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const OpId id(static_cast<std::int64_t>(o));
      AUTOPAR_TRY(table, table_for(id, batch[o]));
      table_of_op_[o] = table;
      const int node = add_node(graph_.op(id).name, table->cost, {});
      out_.op_of_node.back() = id;
      out_.node_of_op[o] = node;
      out_.choices_of_op[o] = table->choices;
    }
    return Ok{};
  }

  Result<std::shared_ptr<const OpTable>> table_for(OpId id, int batch_factor) {
    const Op& op = graph_.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    std::string key = signature(graph_, op, rule);
    const auto pin = request_.pins.ops.find(op.name);
    const bool has_pin = pin != request_.pins.ops.end();
    const std::vector<Assignment>* narrowed = nullptr;
    if (request_.narrowing && !request_.narrowing->assignments[id.index()].empty()) {
      narrowed = &request_.narrowing->assignments[id.index()];
      for (const Assignment& a : *narrowed) {
        key += "%";
        for (int factor : a.factor_of_axis) key += std::to_string(factor) + ",";
      }
    } else if (has_pin) {
      key += "#" + op.name;
    } else if (request_.fill == Fill::kDataParallel) {
      key += "@" + std::to_string(batch_factor);
    }
    const auto found = tables_.find(key);
    if (found != tables_.end()) return found->second;

    MeshProblem::OpChoices all;
    for (Assignment& a : narrowed ? std::vector(*narrowed) : model_.choices(op, rule, has_pin)) {
      auto specs = specs_of(rule, a, model_.mesh());
      AUTOPAR_CHECK(specs.has_value(), "candidate without specs: " + op.name);
      all.assignments.push_back(std::move(a));
      all.specs.push_back(std::move(*specs));
    }
    if (narrowed) {
      // Chosen by a searcher that knows the pins.
    } else if (has_pin) {
      AUTOPAR_TRY(kept, pinned(all, pin->second, graph_, id, rule, model_.mesh()));
      all = std::move(kept);
    } else if (request_.fill != Fill::kSearch) {
      keep_one(all, request_.fill == Fill::kDataParallel ? batch_factor : -1);
    }
    AUTOPAR_TRY(table, price(id, std::move(all)));
    tables_[key] = table;
    return table;
  }

  void keep_one(MeshProblem::OpChoices& all, int factor) const {
    std::size_t kept = data_parallel_choice(all.assignments, factor, model_.mesh());
    if (kept == all.assignments.size()) kept = all.assignments.size() - 1;  // all-none comes last
    all.assignments = {all.assignments[kept]};
    all.specs = {all.specs[kept]};
  }

  Result<std::shared_ptr<const OpTable>> price(OpId id, MeshProblem::OpChoices choices) {
    const Op& op = graph_.op(id);
    auto table = std::make_shared<OpTable>();
    for (std::size_t c = 0; c < choices.assignments.size(); ++c) {
      AUTOPAR_TRY(price, model_.op_price(graph_, op, request_.rules.rules[id.index()],
                                         choices.assignments[c], choices.specs[c]));
      table->cost.push_back(price.total());
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      SpecList list;
      for (const OpSpecs& specs : choices.specs) list.push_back(specs.inputs[i]);
      table->input_lists.push_back(list_id(list));
    }
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      SpecList list;
      for (const OpSpecs& specs : choices.specs) list.push_back(specs.outputs[j]);
      table->output_lists.push_back(list_id(list));
    }
    table->choices = std::make_shared<const MeshProblem::OpChoices>(std::move(choices));
    return std::shared_ptr<const OpTable>(std::move(table));
  }

  Status add_sources() {
    out_.source_node.assign(graph_.values.size(), -1);
    out_.hub_node.assign(graph_.values.size(), -1);
    out_.output_node.assign(graph_.values.size(), -1);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.kind != ValueKind::kInput && value.kind != ValueKind::kParameter) continue;
      const ValueId id(static_cast<std::int64_t>(v));
      SpecList specs;
      if (request_.narrowing && !request_.narrowing->all_stored_specs) {
        specs = {replicated(value.shape.size())};
      } else if (conventions_.any_boundary || readers_[v].uses.empty()) {
        specs = canonical_specs(value.shape, out_.mesh);
      }
      std::set<Spec> have(specs.begin(), specs.end());
      for (const Use& use : readers_[v].uses) add_missing(specs, have, needed(use), false);
      AUTOPAR_RETURN_IF_ERROR(
          restrict_source(request_, value, inputs_.count(id) != 0, out_.mesh, specs));
      std::vector<double> no_cost(specs.size(), 0.0);
      out_.source_node[id.index()] = add_node(value.name, std::move(no_cost), std::move(specs));
    }
    return Ok{};
  }

  const SpecList& needed(const Use& use) const {
    const OpTable& table = *table_of_op_[use.op.index()];
    return lists_[static_cast<std::size_t>(table.input_lists[static_cast<std::size_t>(use.port)])];
  }

  double bytes_of(const Value& value, const Spec& spec) const {
    return static_cast<double>(local_bytes(spec, value.shape, value.dtype, out_.mesh));
  }

  void use(int node, int begin, int end, std::vector<double> bytes) {
    if (begin >= end || out_.problem.use_limit == kInfinity) return;
    out_.problem.nodes[static_cast<std::size_t>(node)].uses.push_back(
        {begin, end, std::move(bytes)});
  }

  std::vector<double> bytes_of_list(const Value& value, int list) const {
    std::vector<double> bytes;
    for (const Spec& spec : lists_[static_cast<std::size_t>(list)]) {
      bytes.push_back(bytes_of(value, spec));
    }
    return bytes;
  }

  // Who supplies a value: its producer's node or its source node.
  End supplier(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::kActivation) {
      const int node = out_.source_node[id.index()];
      return {node, list_id(out_.specs_of_node[static_cast<std::size_t>(node)])};
    }
    const Op& op = graph_.op(value.producer);
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      if (op.outputs[j] == id) {
        return {out_.node_of_op[value.producer.index()],
                table_of_op_[value.producer.index()]->output_lists[j]};
      }
    }
    fail_bug(__FILE__, __LINE__, "value without producer port: " + value.name);
  }

  Status connect(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::kConstant) return Ok{};
    const Readers& readers = readers_[id.index()];
    Places places;
    End from = places.spec = supplier(id);
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
        lists.push_back(
            table_of_op_[op.index()]->input_lists[static_cast<std::size_t>(readers.uses[u].port)]);
      }
      std::sort(lists.begin(), lists.end());
      lists.erase(std::unique(lists.begin(), lists.end()), lists.end());
      const int edge = connect_op(value, from, op, lists);
      if (is_view(graph_.op(op))) places.reader_edges[op] = edge;
    }
    if (limited()) charge(id, places);
    return Ok{};
  }

  // Where a value is, for what it takes there.
  struct Places {
    End spec, hub, output;
    int hub_edge = -1, output_edge = -1;
    std::map<OpId, int> reader_edges;  // of views; -1: no edge
  };

  void charge(ValueId id, const Places& places) {
    using Kind = MemoryCharge::Kind;
    const Value& value = graph_.value(id);
    const End& source = places.hub.node >= 0 ? places.hub : places.spec;
    for (const MemoryCharge& c : charges_[id.index()]) {
      switch (c.kind) {
        case Kind::kSpec:
          use(places.spec.node, c.begin, c.end, bytes_of_list(value, places.spec.list));
          break;
        case Kind::kHub:
          use(places.hub.node, c.begin, c.end, bytes_of_list(value, places.hub.list));
          break;
        case Kind::kOutput:
          use(places.output.node, c.begin, c.end, bytes_of_list(value, places.output.list));
          break;
        case Kind::kToHub:
          use_of_edge(places.hub_edge, c, copy_table(value, places.spec.list, places.hub.list));
          break;
        case Kind::kToOutput:
          use_of_edge(places.output_edge, c, copy_table(value, source.list, places.output.list));
          break;
        case Kind::kToReader: {
          const int edge = places.reader_edges.at(c.reader);
          if (edge < 0) break;
          use_of_edge(
              edge, c,
              copy_table(value, source.list, table_of_op_[c.reader.index()]->input_lists.front()));
          break;
        }
      }
    }
  }

  void use_of_edge(int edge, const MemoryCharge& charge, int table) {
    out_.problem.edges[static_cast<std::size_t>(edge)].uses.push_back(
        {charge.begin, charge.end, table});
  }

  Result<End> add_hub(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    const Readers& readers = readers_[id.index()];
    SpecList specs;
    std::set<Spec> have;
    const bool stored = value.kind != ValueKind::kActivation;
    for (const Use& use : readers.uses) {
      if (conventions_.shared_reshards) add_missing(specs, have, needed(use), !stored);
    }
    add_missing(specs, have, lists_[static_cast<std::size_t>(from.list)], !stored);
    AUTOPAR_RETURN_IF_ERROR(restrict_hub(request_, value, out_.mesh, specs));
    std::vector<double> no_cost(specs.size(), 0.0);
    const End hub{add_node(value.name + " (hub)", std::move(no_cost), specs), list_id(specs)};
    out_.hub_node[id.index()] = hub.node;
    Edge edge = edge_between(value, from.list, {hub.list});
    if (!conventions_.shared_reshards) edge = equal_only(edge, from.list, hub.list);
    edge_index = add_edge(from.node, hub.node, edge, readers.first);
    return hub;
  }

  int add_edge(int from, int to, const Edge& edge, int time) {
    out_.problem.edges.push_back({from, to, edge.cost, temporaries(edge, time)});
    return static_cast<int>(out_.problem.edges.size()) - 1;
  }

  Result<End> connect_output(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    const Readers& readers = readers_[id.index()];
    End sink;
    const ValueId updated = updated_[id.index()];
    if (updated.valid()) {
      sink.node = out_.source_node[updated.index()];
      sink.list = list_id(out_.specs_of_node[static_cast<std::size_t>(sink.node)]);
    } else {
      SpecList specs;
      std::set<Spec> have;
      if (pinned_producer(value) || !conventions_.any_boundary) {
        add_missing(specs, have, reduced(lists_[static_cast<std::size_t>(supplier(id).list)]),
                    false);
      } else {
        specs = canonical_specs(value.shape, out_.mesh);
        have = {specs.begin(), specs.end()};
        add_missing(specs, have, lists_[static_cast<std::size_t>(from.list)], false);
      }
      const bool only_reader = readers.count() == 1;
      AUTOPAR_RETURN_IF_ERROR(restrict_output(request_, value, only_reader, out_.mesh, specs));
      sink.list = list_id(specs);
      std::vector<double> no_cost(specs.size(), 0.0);
      sink.node = add_node(value.name + " (output)", std::move(no_cost), std::move(specs));
    }
    out_.output_node[id.index()] = sink.node;
    edge_index = add_edge(from.node, sink.node, edge_between(value, from.list, {sink.list}),
                          readers.produced);
    return sink;
  }

  // Who pins an op says how its outputs lie: they leave as it makes them, partial sums reduced.
  bool pinned_producer(const Value& value) const {
    return request_.outputs.kind == BoundaryLayout::Kind::kFree && value.producer.valid() &&
           request_.pins.ops.count(graph_.op(value.producer).name) != 0;
  }

  // -1: nothing is ever resharded, so there is no edge.
  int connect_op(const Value& value, const End& from, OpId op, const std::vector<int>& lists) {
    Edge edge = edge_between(value, from.list, lists);
    const bool shared = readers_[value_index(value)].count() > 1;
    if (model_.keeps_layout(graph_, value, graph_.op(op), shared)) {
      for (int list : lists) edge = equal_only(edge, from.list, list);
    }
    if (edge.free) return -1;
    return add_edge(from.node, out_.node_of_op[op.index()], edge, static_cast<int>(op.value));
  }

  bool limited() const { return out_.problem.use_limit != kInfinity; }

  std::vector<EdgeUse> temporaries(const Edge& edge, int time) const {
    if (!limited() || edge.peak < 0) return {};
    return {{time, time + 1, edge.peak}};
  }

  Edge edge_between(const Value& value, int from, const std::vector<int>& to) {
    const auto key = std::tuple(value.shape, value.dtype, from, to);
    const auto found = edges_.find(key);
    if (found != edges_.end()) return found->second;
    const SpecList& rows = lists_[static_cast<std::size_t>(from)];
    const std::size_t columns = lists_[static_cast<std::size_t>(to.front())].size();
    CostTable cost{static_cast<int>(rows.size()), static_cast<int>(columns), {}};
    CostTable peak = cost;
    cost.values.assign(rows.size() * columns, 0.0);
    if (limited()) peak.values.assign(rows.size() * columns, 0.0);
    for (std::size_t t = 0; t < to.size(); ++t) add_prices(value, from, to, t, cost, peak);
    Edge edge;
    edge.free =
        std::all_of(cost.values.begin(), cost.values.end(), [](double c) { return c == 0.0; });
    edge.cost = out_.problem.add_table(std::move(cost));
    if (limited()) edge.peak = out_.problem.add_table(std::move(peak));
    edges_[key] = edge;
    return edge;
  }

  std::size_t value_index(const Value& value) const {
    return static_cast<std::size_t>(&value - graph_.values.data());
  }

  // The same edge where both ends have the same spec, otherwise never.
  Edge equal_only(Edge edge, int from, int to) {
    const SpecList& rows = lists_[static_cast<std::size_t>(from)];
    const SpecList& columns = lists_[static_cast<std::size_t>(to)];
    CostTable cost = out_.problem.tables[static_cast<std::size_t>(edge.cost)];
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < columns.size(); ++c) {
        if (!(rows[r] == columns[c])) cost.values[r * columns.size() + c] = kInfinity;
      }
    }
    edge.cost = out_.problem.add_table(std::move(cost));
    edge.free = false;
    return edge;
  }

  // Adds the prices of reaching list to[t]; where an earlier port of the op needs the same spec,
  // nothing more is to pay.
  void add_prices(const Value& value, int from, const std::vector<int>& to, std::size_t t,
                  CostTable& cost, CostTable& peak) {
    const SpecList& rows = lists_[static_cast<std::size_t>(from)];
    const SpecList& columns = lists_[static_cast<std::size_t>(to[t])];
    SpecList unique_rows, unique_columns;
    const std::vector<std::size_t> row_of = unique(rows, unique_rows);
    const std::vector<std::size_t> column_of = unique(columns, unique_columns);
    const auto prices =
        model_.reshard_prices(value.shape, value.dtype, unique_rows, unique_columns);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      bool again = false;
      for (std::size_t earlier = 0; earlier < t; ++earlier) {
        again |= lists_[static_cast<std::size_t>(to[earlier])][c] == columns[c];
      }
      if (again) continue;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const ReshardPrice& price = prices[row_of[r]][column_of[c]];
        cost.values[r * columns.size() + c] += price.seconds;
        if (!limited() || unique_rows[row_of[r]] == unique_columns[column_of[c]]) continue;
        const double bytes = std::max(static_cast<double>(price.peak_bytes),
                                      bytes_of(value, unique_columns[column_of[c]]));
        peak.values[r * columns.size() + c] += bytes;
      }
    }
  }

  // Bytes of the target where it is a copy of its own.
  int copy_table(const Value& value, int from, int to) {
    const auto key = std::tuple(value.shape, value.dtype, from, to);
    const auto found = copies_.find(key);
    if (found != copies_.end()) return found->second;
    const SpecList& rows = lists_[static_cast<std::size_t>(from)];
    const SpecList& columns = lists_[static_cast<std::size_t>(to)];
    CostTable table{static_cast<int>(rows.size()), static_cast<int>(columns.size()), {}};
    for (const Spec& row : rows) {
      for (const Spec& column : columns) {
        table.values.push_back(row == column ? 0.0 : bytes_of(value, column));
      }
    }
    return copies_[key] = out_.problem.add_table(std::move(table));
  }

  const SearchRequest& request_;
  const Graph& graph_;
  CostModel& model_;
  std::vector<Readers> readers_;
  std::set<ValueId> inputs_;
  std::vector<ValueId> updated_;                    // per value the input whose next value it is
  std::vector<std::vector<MemoryCharge>> charges_;  // per value
  Conventions conventions_;
  MeshProblem out_;
  std::vector<std::shared_ptr<const OpTable>> table_of_op_;
  std::map<std::string, std::shared_ptr<const OpTable>> tables_;
  std::vector<SpecList> lists_;
  std::map<SpecList, int> list_ids_;
  std::map<std::tuple<Shape, DType, int, std::vector<int>>, Edge> edges_;
  std::map<std::tuple<Shape, DType, int, int>, int> copies_;
};

}  // namespace

Result<MeshProblem> build_problem(const SearchRequest& request, CostModel& model) {
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  return Builder(request, model).build();
}

Strategy strategy_of(const Graph& graph, const MeshProblem& problem,
                     const std::vector<int>& choices) {
  Strategy strategy;
  strategy.mesh = problem.mesh;
  std::vector<OpSpecs> specs;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto choice =
        static_cast<std::size_t>(choices[static_cast<std::size_t>(problem.node_of_op[o])]);
    strategy.assignments.push_back(problem.choices_of_op[o]->assignments[choice]);
    specs.push_back(problem.choices_of_op[o]->specs[choice]);
  }
  const auto chosen = [&](int node) {
    const auto n = static_cast<std::size_t>(node);
    return problem.specs_of_node[n][static_cast<std::size_t>(choices[n])];
  };
  const std::vector<Readers> readers = readers_of(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    ValueSpecs entry;
    if (problem.source_node[v] >= 0) {
      entry.spec = chosen(problem.source_node[v]);
    } else if (value.producer.valid()) {
      const Op& op = graph.op(value.producer);
      for (std::size_t j = 0; j < op.outputs.size(); ++j) {
        if (op.outputs[j].index() == v) entry.spec = specs[value.producer.index()].outputs[j];
      }
    } else {
      entry.spec = replicated(value.shape.size());
    }
    entry.hub = entry.spec;
    if (problem.output_node[v] >= 0) entry.output = chosen(problem.output_node[v]);
    if (problem.hub_node[v] >= 0) {
      entry.hub = chosen(problem.hub_node[v]);
    } else if (problem.output_node[v] >= 0) {
      entry.hub = entry.output;
    } else if (readers[v].uses.size() == 1 && value.kind != ValueKind::kConstant) {
      const Use& use = readers[v].uses[0];
      entry.hub = specs[use.op.index()].inputs[static_cast<std::size_t>(use.port)];
    }
    if (problem.output_node[v] < 0) entry.output = entry.hub;
    strategy.values.push_back(std::move(entry));
  }
  return strategy;
}

}  // namespace autopar
