// Graph + cost model -> Problem. One node per op (its assignments), per stored value (where inputs
// and parameters lie), per value with several readers (its hub) and per graph output (how it
// leaves). Ops of one class share their candidates and cost tables. One class, since nodes, edges
// and memory of a mesh are added in one order and share its lists, tables and charges.
#include "search/build.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "autopar/phase_ops.hpp"
#include "autopar/search.hpp"
#include "search/batch.hpp"
#include "search/boundary.hpp"
#include "search/execution_order.hpp"
#include "search/no_plan.hpp"
#include "search/pins.hpp"
#include "search/spec_tables.hpp"
#include "search/stored_rules.hpp"

namespace autopar {

namespace {

// Of pricing a candidate of an op: as much as so many entries of a table, and what it takes.
constexpr double kCandidateWork = 200;
constexpr double kCandidateBytes = 200;
// In place of an op's batch factor.
constexpr int kFollows = -2;

// Everything that ops of one class have in common.
struct OpTable {
  std::shared_ptr<const MeshProblem::OpChoices> choices;
  std::vector<double> cost;
  std::vector<double> temporaries;  // bytes while the op runs; empty: none
  std::vector<int> input_lists;     // per port: list id of the needed specs per choice
  std::vector<int> output_lists;    // per output: list id of the produced specs
};

ReshardWeights everything_times(double times) {
  ReshardWeights weights{times};
  weights.sums.fill(times);
  weights.others.fill(times);
  return weights;
}

class Builder {
 public:
  Builder(const SearchRequest& request, CostModel& model, KeptPins pins, Allowance& allowance)
      : request_(request),
        pins_(std::move(pins)),
        allowance_(allowance),
        graph_(request.graph),
        model_(model),
        readers_(readers_of(graph_)),
        phase_ops_(graph_),
        tables_(out_.problem, model, request.limit_memory, allowance) {
    out_.mesh = model.mesh();
    if (request.weights) {
      streams_.emplace(graph_, request.updates, model.mesh(), model.cluster().profile);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      types_.push_back(tables_.type_of(graph_.values[v], {}, is_inside(v)));
    }
    types_in_passes_ = types_;
    const auto passes = static_cast<double>(graph_.passes);
    for (std::size_t v = 0; graph_.passes > 1 && v < types_.size(); ++v) {
      types_in_passes_[v] =
          tables_.type_of(graph_.values[v], everything_times(passes), is_inside(v));
    }
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
      out_.problem.use_limit = static_cast<double>(plan_limit(request_));
    }
    for (const Value& value : graph_.values) {
      if (value.kind == ValueKind::kConstant) {
        out_.problem.base_use += static_cast<double>(value.bytes());
      }
    }
    as_read_ = as_read_values(request_, [&](ValueId id) { return stored_rule(id) != nullptr; });
    AUTOPAR_RETURN_IF_ERROR(add_ops());
    if (out_.whole) AUTOPAR_RETURN_IF_ERROR(add_sources());
    if (out_.whole) link_alike();
    for (std::size_t v = 0; out_.whole && v < graph_.values.size(); ++v) {
      AUTOPAR_RETURN_IF_ERROR(connect(ValueId(static_cast<std::int64_t>(v))));
      out_.whole = !allowance_.over();
    }
    if (!out_.whole) return std::move(out_);
    number_in_execution_order(graph_, readers_, out_);
    return std::move(out_);
  }

  Result<Seconds> least_of_ops() {
    AUTOPAR_RETURN_IF_ERROR(add_ops());
    if (!out_.whole) return 0.0;
    Seconds sum = 0;
    for (const ProblemNode& node : out_.problem.nodes) {
      sum += *std::min_element(node.cost.begin(), node.cost.end());
    }
    return sum;
  }

 private:
  using Edge = SpecTables::Edge;

  // One end of an edge: a node and the spec that each of its choices stands for.
  struct End {
    int node = -1;
    int list = -1;
  };

  int add_node(std::string name, std::vector<double> cost) {
    out_.problem.nodes.push_back({std::move(name), std::move(cost), {}});
    out_.specs_of_node.emplace_back();
    out_.op_of_node.emplace_back();
    return static_cast<int>(out_.problem.nodes.size()) - 1;
  }

  End add_value_node(std::string name, int list) {
    std::vector<double> no_cost(tables_.specs(list).size(), 0.0);
    const End end{add_node(std::move(name), std::move(no_cost)), list};
    out_.specs_of_node.back() = tables_.shared_specs(list);
    return end;
  }

  // The list that is left where a layout or a pin may say something about a value.
  template <class Restrict>
  Result<int> restricted(int list, const Restrict& restrict) {
    const bool free = request_.inputs.kind == BoundaryLayout::Kind::kFree &&
                      request_.outputs.kind == BoundaryLayout::Kind::kFree && !pins_.has_values();
    if (free) return list;
    SpecList specs = tables_.specs(list);
    AUTOPAR_RETURN_IF_ERROR(restrict(specs));
    return tables_.list_of(std::move(specs));
  }

  bool is_inside(std::size_t v) const {
    return graph_.is_inside(ValueId(static_cast<std::int64_t>(v)));
  }
  int type_of(ValueId id) const { return types_[id.index()]; }
  // The same of reshards that happen when the op runs.
  int type_of(ValueId id, OpId when) {
    if (streams_ && when.valid()) {
      return tables_.type_of(graph_.value(id), weights_of(id, when), is_inside(id.index()));
    }
    const bool once = !when.valid() || graph_.times(graph_.op(when)) == 1;
    return once ? types_[id.index()] : types_in_passes_[id.index()];
  }

  const StreamTimes& weights_at(OpId when) const {
    return request_.prices_of_ops == nullptr ? *request_.weights
                                             : (*request_.prices_of_ops)[when.index()].weights;
  }

  // Where compute waits for a collective over a link: for what goes over it before.
  double behind_at(Streams::Kind kind, OpId when, int link) const {
    if (request_.prices_of_ops == nullptr || kind != Streams::Kind::kBlocking) return 0;
    const StreamPrices& prices = (*request_.prices_of_ops)[when.index()];
    return prices.weights.compute * prices.behind[static_cast<std::size_t>(link)] *
           static_cast<double>(graph_.times(graph_.op(when)));
  }

  // A second of a kernel, or of a collective of a reshard.
  double weight_of(Streams::Kind kind, ValueId value, OpId when, int link) const {
    return streams_->shares(kind, value, when, link).weighted(weights_at(when));
  }

  ReshardWeights weights_of(ValueId id, OpId when) const {
    ReshardWeights weights{weight_of(Streams::Kind::kCompute, id, when, 0)};
    for (int link = 0; link < kLinks; ++link) {
      const auto of = [&](CollectiveKind kind) {
        return weight_of(streams_->kind(id, when, kind), id, when, link);
      };
      weights.sums[static_cast<std::size_t>(link)] = of(CollectiveKind::kAllReduce);
      weights.others[static_cast<std::size_t>(link)] = of(CollectiveKind::kAllGather);
      const auto behind = [&](CollectiveKind kind) {
        return behind_at(streams_->kind(id, when, kind), when, link);
      };
      weights.more_sums[static_cast<std::size_t>(link)] = behind(CollectiveKind::kAllReduce);
      weights.more_others[static_cast<std::size_t>(link)] = behind(CollectiveKind::kAllGather);
    }
    weights.in_buckets = streams_->in_buckets(id, when);
    weights.issuing = streams_->issuing(when) * weights_at(when).host;
    const double host = static_cast<double>(graph_.times(graph_.op(when))) * weights_at(when).host;
    const auto waited = [&](CollectiveKind kind) {
      return streams_->holds_host(streams_->kind(id, when, kind), when) ? host : 0;
    };
    weights.waited_sums = waited(CollectiveKind::kAllReduce);
    weights.waited_others = waited(CollectiveKind::kAllGather);
    return weights;
  }

  // Of an op, in all its passes.
  double seconds_of(OpId id, const OpPrice& price) const {
    const Op& op = graph_.op(id);
    if (!streams_) return price.total() * static_cast<double>(graph_.times(op));
    using Kind = Streams::Kind;
    const Profile& profile = model_.cluster().profile;
    const double compute = weight_of(Kind::kCompute, {}, id, 0);
    const Seconds issuing = streams_->issuing(id) * weights_at(id).host;
    double sum = price.compute * compute + (graph_.kernel(op).launches ? issuing : 0);
    for (const PricedCollective& c : price.collectives) {
      if (!communicates(c.collective.kind)) {
        sum += c.seconds * compute;
        continue;
      }
      const Seconds latency =
          streams_->in_buckets({}, id)
              ? collective_seconds(c.collective, 1, model_.mesh(), model_.cluster())
              : 0;
      const Seconds saved = saved_in_bucket(profile, c.seconds, latency, c.sent_bytes);
      const int link = link_of(c.collective.axes, model_.mesh());
      sum += (c.seconds - saved) * weight_of(Kind::kBlocking, {}, id, link);
      sum += behind_at(Kind::kBlocking, id, link);
      sum += streams_->issuing(Kind::kBlocking, id, axes_size(model_.mesh(), c.collective.axes)) *
             weights_at(id).host;
    }
    return sum;
  }

  Status add_ops() {
    std::vector<int> batch(graph_.ops.size(), -1);
    if (request_.fill == Fill::kDataParallel) batch = batch_factors(graph_, request_.rules);
    out_.node_of_op.resize(graph_.ops.size());
    out_.choices_of_op.resize(graph_.ops.size());
    table_of_op_.resize(graph_.ops.size());
    supplier_.resize(graph_.values.size());
    // About as many nodes as there are: ops, stored values and hubs.
    out_.problem.nodes.reserve(graph_.values.size());
    out_.specs_of_node.reserve(graph_.values.size());
    out_.op_of_node.reserve(graph_.values.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const OpId id(static_cast<std::int64_t>(o));
      AUTOPAR_TRY(table, table_for(id, batch[o]));
      out_.whole = !allowance_.over();
      if (!out_.whole) return Ok{};
      table_of_op_[o] = table;
      const int node = add_node(graph_.op(id).name, table->cost);
      const int time = static_cast<int>(o);
      if (!table->temporaries.empty()) {
        use(node, time, time + 1, times(copies_at(time), table->temporaries));
      }
      out_.op_of_node.back() = id;
      out_.node_of_op[o] = node;
      out_.choices_of_op[o] = table->choices;
      for (std::size_t j = 0; j < graph_.op(id).outputs.size(); ++j) {
        const ValueId made = graph_.op(id).outputs[j];
        if (made.valid()) supplier_[made.index()] = {node, table->output_lists[j]};
      }
    }
    return Ok{};
  }

  Result<std::shared_ptr<const OpTable>> table_for(OpId id, int batch_factor) {
    const Op& op = graph_.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    const bool has_pin = pins_.concerns(graph_, id);
    static const std::vector<Assignment> kAny;
    // A phase op follows the hub that it hands on, whatever is filled in for others.
    const bool follows = phase_ops_.contains(id);
    const std::vector<Assignment>& narrowed =
        request_.narrowing && !follows ? request_.narrowing->assignments[id.index()] : kAny;
    const bool is_filled =
        request_.fill != Fill::kSearch && !is_never_filled(request_, phase_ops_, id);
    if (!is_filled) batch_factor = kFollows;
    const std::tuple key(
        request_.rules.class_of_op[id.index()], has_pin ? static_cast<int>(id.value) : -1,
        has_pin ? -1 : batch_factor, streams_ ? static_cast<int>(op.phase) : -1,
        request_.prices_of_ops ? (*request_.prices_of_ops)[id.index()] : StreamPrices(), narrowed);
    const auto found = tables_of_class_.find(key);
    if (found != tables_of_class_.end()) return found->second;

    MeshProblem::OpChoices all;
    count_candidates(rule);
    if (allowance_.over()) return std::shared_ptr<const OpTable>();
    std::vector<Assignment> assignments = !narrowed.empty() ? narrowed
                                          : has_pin         ? model_.choices_of_pin(op, rule)
                                                            : model_.choices(op, rule);
    if (narrowed.empty() && !has_pin && is_filled) {
      keep_one(assignments, batch_factor);
    } else if (narrowed.empty() && may_move(op, rule, has_pin)) {
      std::vector<Assignment> moving = moving_candidates(rule, model_.mesh());
      assignments.insert(assignments.end() - 1, moving.begin(), moving.end());
    }
    all.assignments.reserve(assignments.size());
    all.specs.reserve(assignments.size());
    for (Assignment& a : assignments) {
      auto specs = specs_of(rule, a, model_.mesh());
      AUTOPAR_CHECK(specs.has_value(), "candidate without specs: " + op.name);
      all.assignments.push_back(std::move(a));
      all.specs.push_back(std::move(*specs));
    }
    if (has_pin) {
      auto kept = left_by(pins_, std::move(all), graph_, id, rule, model_.mesh());
      if (!kept && kept.error().code == ErrorCode::kInput && model_.leaves_out(rule)) {
        return input_error(kept.error().message + "; " + picked_from_a_part(op, model_.mesh()));
      }
      if (!kept) return kept.error();
      all = std::move(*kept);
    }
    AUTOPAR_TRY(table, price(id, std::move(all)));
    tables_of_class_[key] = table;
    return table;
  }

  // A pin of slices never means parts that move: who wants those names their factors.
  bool may_move(const Op& op, const Rule& rule, bool has_pin) const {
    if (!model_.prices_moving()) return false;
    const auto pin = pins_.ops.find(op.name);
    if (!has_pin || pin == pins_.ops.end()) return request_.moving != SearchRequest::Moving::kNo;
    if (!pin->second.assignment) return false;
    return std::any_of(
        pin->second.assignment->begin(), pin->second.assignment->end(), [&](const auto& entry) {
          const int f = rule.factor_index(entry.second);
          return f >= 0 && rule.factors[static_cast<std::size_t>(f)].kind == FactorKind::kMoving;
        });
  }

  // At most so many are there, and each has its price.
  void count_candidates(const Rule& rule) {
    const bool moving = request_.moving != SearchRequest::Moving::kNo;
    const std::size_t factors = moving ? rule.factors.size() : resting_factors(rule);
    const double count = std::pow(factors + 1, model_.mesh().rank());
    allowance_.add(kCandidateWork * count, kCandidateBytes * count);
  }

  void keep_one(std::vector<Assignment>& assignments, int factor) const {
    std::size_t kept = data_parallel_choice(assignments, factor, model_.mesh());
    if (kept == assignments.size()) kept = assignments.size() - 1;  // all-none comes last
    assignments = {Assignment(assignments[kept])};
  }

  Result<std::shared_ptr<const OpTable>> price(OpId id, MeshProblem::OpChoices choices) {
    const Op& op = graph_.op(id);
    auto table = std::make_shared<OpTable>();
    const std::size_t count = choices.assignments.size();
    table->cost.reserve(count);
    for (std::size_t c = 0; c < count; ++c) {
      AUTOPAR_TRY(price, model_.op_price(graph_, op, request_.rules.rules[id.index()],
                                         choices.assignments[c], choices.specs[c]));
      table->cost.push_back(seconds_of(id, price));
      if (price.temporaries > 0) table->temporaries.resize(count, 0);
      if (price.temporaries > 0) table->temporaries[c] = static_cast<double>(price.temporaries);
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      table->input_lists.push_back(tables_.list_of(
          count, [&](std::size_t c) -> const Spec& { return choices.specs[c].inputs[i]; }));
    }
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      table->output_lists.push_back(tables_.list_of(
          count, [&](std::size_t c) -> const Spec& { return choices.specs[c].outputs[j]; }));
    }
    choices.follower_prices = model_.follower_prices(graph_, op, choices.specs);
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
      const bool any = model_.has_free_boundary() || readers_[v].uses.empty();
      std::vector<int> lists = needed_lists(id);
      int all = -1;
      const StoredRule* rule = stored_rule(id);
      const Spec* stored = rule == nullptr ? narrowed_stored(id) : nullptr;
      if (rule != nullptr && rule->kind == StoredRule::Kind::kSplit) {
        const int any_spec = tables_.canonical_and(type_of(id), {});
        all = tables_.list_of(most_parts(tables_.specs(any_spec), out_.mesh));
      } else if (rule != nullptr) {
        all = tables_.canonical_and(type_of(id), lists, value.accumulates);
      } else if (stored != nullptr) {
        all = tables_.list_of({*stored});
      } else if (request_.narrowing && !request_.narrowing->all_stored_specs) {
        lists.insert(lists.begin(), tables_.list_of({replicated(value.shape.size())}));
        all = tables_.united(lists, false);
      } else {
        all = any ? tables_.canonical_and(type_of(id), lists, value.accumulates)
                  : as_needed(value, lists);
      }
      AUTOPAR_TRY(list, restricted(all, [&](SpecList& specs) {
                    return restrict_source(request_, pins_, id, inputs_.count(id) != 0, out_.mesh,
                                           specs);
                  }));
      supplier_[v] = add_value_node(value.name, list);
      out_.source_node[v] = supplier_[v].node;
    }
    return Ok{};
  }

  // As an op needs it, without sums where it may not be stored as one.
  int as_needed(const Value& value, std::vector<int> lists) {
    if (value.accumulates) return tables_.united(lists, true);
    for (int& list : lists) list = tables_.list_of(reduced(tables_.specs(list)));
    return tables_.united(lists, false);
  }

  // What a pin or a layout says comes before it.
  const StoredRule* stored_rule(ValueId id) const {
    const auto found = request_.stored_rules.find(id);
    if (found == request_.stored_rules.end() || pins_.stored.count(id) != 0) return nullptr;
    const bool is_fixed =
        inputs_.count(id) != 0 && is_fixed_input(request_.inputs, graph_.value(id));
    return is_fixed ? nullptr : &found->second;
  }

  void link_alike() {
    for (const auto& [id, rule] : request_.stored_rules) {
      if (rule.kind != StoredRule::Kind::kLike || stored_rule(id) == nullptr) continue;
      const End& from = supplier_[rule.like.index()];
      const End& to = supplier_[id.index()];
      AUTOPAR_CHECK(from.node >= 0 && to.node >= 0, "stored like what is not stored");
      out_.problem.edges.push_back(
          {from.node, to.node, tables_.alike(from.list, to.list).cost, {}});
    }
  }

  const Spec* narrowed_stored(ValueId id) const {
    if (!request_.narrowing) return nullptr;
    const auto found = request_.narrowing->stored.find(id);
    return found == request_.narrowing->stored.end() ? nullptr : &found->second;
  }

  int needed_list(const Use& use) const {
    return table_of_op_[use.op.index()]->input_lists[static_cast<std::size_t>(use.port)];
  }

  // Of all readers, each list once.
  std::vector<int> needed_lists(ValueId id) const {
    std::vector<int> lists;
    for (const Use& use : readers_[id.index()].uses) {
      const int list = needed_list(use);
      if (std::find(lists.begin(), lists.end(), list) == lists.end()) lists.push_back(list);
    }
    return lists;
  }

  void use(int node, int begin, int end, std::vector<double> bytes) {
    if (begin >= end || out_.problem.use_limit == kInfinity) return;
    out_.problem.nodes[static_cast<std::size_t>(node)].uses.push_back(
        {begin, end, std::move(bytes)});
  }

  const std::vector<double>& bytes_of_list(ValueId id, int list) {
    return tables_.bytes(type_of(id), list);
  }

  Status connect(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::kConstant) return Ok{};
    const Readers& readers = readers_[id.index()];
    Places places;
    End from = places.spec = supplier_[id.index()];
    AUTOPAR_CHECK(from.node >= 0, "value without producer port: " + value.name);
    if (readers.count() > 1) {
      AUTOPAR_TRY(hub, add_hub(id, from, places.hub_edge));
      from = places.hub = hub;
    }
    if (readers.is_output) {
      AUTOPAR_TRY(output, connect_output(id, from, places.output_edge));
      places.output = output;
    }
    reader_edges_.clear();
    // The ports of one op that read this value share an edge.
    for (std::size_t u = 0; u < readers.uses.size();) {
      std::vector<int> lists;
      const OpId op = readers.uses[u].op;
      for (; u < readers.uses.size() && readers.uses[u].op == op; ++u) {
        lists.push_back(needed_list(readers.uses[u]));
      }
      std::sort(lists.begin(), lists.end());
      lists.erase(std::unique(lists.begin(), lists.end()), lists.end());
      reader_edges_.emplace_back(op, connect_op(id, from, op, lists));
    }
    if (limited()) charge(id, places);
    return Ok{};
  }

  // Where a value is, for what it takes there.
  struct Places {
    End spec, hub, output;
    int hub_edge = -1, output_edge = -1;
  };

  // How many passes may be at that op at once.
  int copies_at(int time) const {
    const bool in_pass = graph_.ops[static_cast<std::size_t>(time)].phase != Phase::kUpdate;
    return in_pass ? static_cast<int>(graph_.copies) : 1;
  }

  static std::vector<double> times(int copies, std::vector<double> bytes) {
    for (double& b : bytes) b *= copies;
    return bytes;
  }

  void charge(ValueId id, const Places& places) {
    using Kind = MemoryCharge::Kind;
    if (graph_.is_inside(id)) return;
    const End& source = places.hub.node >= 0 ? places.hub : places.spec;
    for (const MemoryCharge& c : charges_[id.index()]) {
      switch (c.kind) {
        case Kind::kSpec:
          use(places.spec.node, c.begin, c.end,
              times(c.copies, bytes_of_list(id, places.spec.list)));
          break;
        case Kind::kHub:
          use(places.hub.node, c.begin, c.end, times(c.copies, bytes_of_list(id, places.hub.list)));
          break;
        case Kind::kOutput:
          use(places.output.node, c.begin, c.end,
              times(c.copies, bytes_of_list(id, places.output.list)));
          break;
        case Kind::kToHub:
          use_of_edge(places.hub_edge, c,
                      tables_.copies(type_of(id), places.spec.list, places.hub.list));
          break;
        case Kind::kToOutput:
          use_of_edge(places.output_edge, c,
                      tables_.copies(type_of(id), source.list, places.output.list));
          break;
        case Kind::kToReader: {
          const int edge = reader_edge(c.reader);
          if (edge < 0) break;
          use_of_edge(edge, c,
                      tables_.copies(type_of(id), source.list,
                                     table_of_op_[c.reader.index()]->input_lists.front()));
          break;
        }
      }
    }
  }

  int reader_edge(OpId reader) const {
    const auto found = std::find_if(reader_edges_.begin(), reader_edges_.end(),
                                    [&](const auto& edge) { return edge.first == reader; });
    AUTOPAR_CHECK(found != reader_edges_.end(), "a charge for a reader that does not read");
    return found->second;
  }

  void use_of_edge(int edge, const MemoryCharge& charge, int table) {
    for (int copy = 0; copy < charge.copies; ++copy) {
      out_.problem.edges[static_cast<std::size_t>(edge)].uses.push_back(
          {charge.begin, charge.end, table});
    }
  }

  Result<End> add_hub(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    const Readers& readers = readers_[id.index()];
    const bool stored = value.kind != ValueKind::kActivation;
    const bool shared =
        model_.may_reshard(graph_, value, Leg::kToHub) && !meets_phases(graph_, readers);
    std::vector<int> lists;
    if (shared) lists = needed_lists(id);
    lists.push_back(from.list);
    const bool made_whole = shared && !as_read_[id.index()] && is_better_whole(value);
    const bool partial_too = (!stored && !is_handed_over(id) && !made_whole) || value.accumulates;
    AUTOPAR_TRY(list, restricted(tables_.united(lists, partial_too), [&](SpecList& specs) {
                  restrict_hub(pins_, id, specs);
                  return Status(Ok{});
                }));
    const End hub = add_value_node(value.name + " (hub)", list);
    out_.hub_node[id.index()] = hub.node;
    const OpId first(static_cast<std::int64_t>(readers.first));
    Edge edge = tables_.edge(type_of(id, first), from.list, {hub.list});
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

  int add_edge(int from, int to, const Edge& edge, int time) {
    out_.problem.edges.push_back({from, to, edge.cost, temporaries(edge, time)});
    return static_cast<int>(out_.problem.edges.size()) - 1;
  }

  Result<End> connect_output(ValueId id, const End& from, int& edge_index) {
    const Value& value = graph_.value(id);
    End sink;
    if (const ValueId input = leaves_as(id); input.valid()) {
      sink = supplier_[input.index()];
    } else {
      const int all = pinned_producer(value) || !model_.has_free_boundary()
                          ? tables_.list_of(reduced(tables_.specs(supplier_[id.index()].list)))
                          : tables_.canonical_and(type_of(id), {from.list});
      AUTOPAR_TRY(list, restricted(tables_.united({all}, false), [&](SpecList& specs) {
                    return restrict_output(request_, pins_, id, out_.mesh, specs);
                  }));
      sink = add_value_node(value.name + " (output)", list);
    }
    out_.output_node[id.index()] = sink.node;
    const Edge edge = tables_.edge(type_of(id, value.producer), from.list, {sink.list});
    edge_index = add_edge(from.node, sink.node, edge, readers_[id.index()].produced);
    return sink;
  }

  // Invalid: it may leave in any layout.
  ValueId leaves_as(ValueId id) const {
    const auto handed_on = request_.leaves_as.find(id);
    return handed_on == request_.leaves_as.end() ? updated_[id.index()] : handed_on->second;
  }

  // Who pins an op says how its outputs lie: they leave as it makes them, partial sums reduced.
  bool pinned_producer(const Value& value) const {
    return request_.outputs.kind == BoundaryLayout::Kind::kFree && value.producer.valid() &&
           pins_.ops.count(graph_.op(value.producer).name) != 0;
  }

  // From one program to another, on the same device.
  bool is_handed_over(ValueId id) const {
    const OpId producer = graph_.value(id).producer;
    const auto& uses = readers_[id.index()].uses;
    return request_.phases_apart && producer.valid() &&
           graph_.op(producer).phase == Phase::kForward &&
           std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return graph_.op(use.op).phase == Phase::kBackward; });
  }

  // -1: nothing is ever resharded, so there is no edge.
  int connect_op(ValueId id, const End& from, OpId op, const std::vector<int>& lists) {
    Edge edge = tables_.edge(type_of(id, op), from.list, lists);
    const Leg leg = readers_[id.index()].count() > 1 ? Leg::kFromHub : Leg::kToOnlyReader;
    const bool as_read = as_read_[id.index()] && graph_.op(op).phase != Phase::kUpdate;
    if (as_read || phase_ops_.contains(op) || !model_.may_reshard(graph_, graph_.value(id), leg)) {
      for (int list : lists) edge = tables_.equal_only(edge, from.list, list);
    }
    if (graph_.op(op).sums == SumsAt::kAfter) {
      for (int list : lists) edge = tables_.unreduced_only(edge, from.list, list);
    }
    if (leg == Leg::kToOnlyReader && is_handed_over(id)) {
      for (int list : lists) edge = tables_.whole_only(edge, from.list, list);
    }
    if (edge.free) return -1;
    return add_edge(from.node, out_.node_of_op[op.index()], edge, static_cast<int>(op.value));
  }

  bool limited() const { return out_.problem.use_limit != kInfinity; }

  std::vector<EdgeUse> temporaries(const Edge& edge, int time) const {
    if (!limited() || edge.peak < 0) return {};
    return std::vector<EdgeUse>(static_cast<std::size_t>(copies_at(time)),
                                {time, time + 1, edge.peak});
  }

  const SearchRequest& request_;
  const KeptPins pins_;
  Allowance& allowance_;
  const Graph& graph_;
  CostModel& model_;
  std::vector<Readers> readers_;
  const PhaseOps phase_ops_;
  std::set<ValueId> inputs_;
  std::vector<bool> as_read_;                       // per value
  std::vector<ValueId> updated_;                    // per value the input whose next value it is
  std::vector<std::vector<MemoryCharge>> charges_;  // per value
  MeshProblem out_;
  std::vector<std::shared_ptr<const OpTable>> table_of_op_;
  // By class, pinned op (-1: none), batch factor (-1: of no matter, kFollows), weights where ops
  // have their own, and narrowed ones.
  using ClassKey = std::tuple<int, int, int, int, StreamPrices, std::vector<Assignment>>;
  std::map<ClassKey, std::shared_ptr<const OpTable>> tables_of_class_;
  SpecTables tables_;
  std::vector<int> types_, types_in_passes_;  // per value
  std::optional<Streams> streams_;            // where their busy times are weighted
  std::vector<End> supplier_;                 // per value: its producer's node or its source node
  std::vector<std::pair<OpId, int>> reader_edges_;  // of the value at hand; -1: no edge
};

}  // namespace

namespace {

// What `make` makes of a builder.
template <class T, class Make>
Result<T> built_within(const SearchRequest& request, CostModel& model, Allowance* allowance,
                       const Make& make) {
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  AUTOPAR_TRY(pins, keep_pins(request, model));
  Allowance unlimited;
  if (allowance == nullptr) allowance = &unlimited;
  model.limit(allowance);
  Builder builder(request, model, std::move(pins), *allowance);
  Result<T> made = make(builder);
  model.limit(nullptr);
  return made;
}

}  // namespace

Result<MeshProblem> build_problem(const SearchRequest& request, CostModel& model,
                                  Allowance* allowance) {
  return built_within<MeshProblem>(request, model, allowance,
                                   [](Builder& builder) { return builder.build(); });
}

Result<Seconds> least_of_ops(const SearchRequest& request, CostModel& model, Allowance* allowance) {
  return built_within<Seconds>(request, model, allowance,
                               [](Builder& builder) { return builder.least_of_ops(); });
}

Strategy strategy_of(const Graph& graph, const MeshProblem& problem,
                     const std::vector<int>& choices) {
  Strategy strategy;
  strategy.mesh = problem.mesh;
  std::vector<const OpSpecs*> specs;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto choice =
        static_cast<std::size_t>(choices[static_cast<std::size_t>(problem.node_of_op[o])]);
    strategy.assignments.push_back(problem.choices_of_op[o]->assignments[choice]);
    specs.push_back(&problem.choices_of_op[o]->specs[choice]);
  }
  const auto chosen = [&](int node) -> const Spec& {
    const auto n = static_cast<std::size_t>(node);
    return problem.specs_of_node[n][static_cast<std::size_t>(choices[n])];
  };
  const std::vector<Readers> readers = readers_of(graph);
  strategy.values.reserve(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    ValueSpecs entry;
    if (problem.source_node[v] >= 0) {
      entry.spec = chosen(problem.source_node[v]);
    } else if (value.producer.valid()) {
      const Op& op = graph.op(value.producer);
      for (std::size_t j = 0; j < op.outputs.size(); ++j) {
        if (op.outputs[j].index() == v) entry.spec = specs[value.producer.index()]->outputs[j];
      }
    } else {
      entry.spec = replicated(value.shape.size());
    }
    if (problem.output_node[v] >= 0) entry.output = chosen(problem.output_node[v]);
    if (problem.hub_node[v] >= 0) {
      entry.hub = chosen(problem.hub_node[v]);
    } else if (problem.output_node[v] >= 0) {
      entry.hub = entry.output;
    } else if (readers[v].uses.size() == 1 && value.kind != ValueKind::kConstant) {
      const Use& use = readers[v].uses[0];
      entry.hub = specs[use.op.index()]->inputs[static_cast<std::size_t>(use.port)];
    } else {
      entry.hub = entry.spec;
    }
    if (problem.output_node[v] < 0) entry.output = entry.hub;
    strategy.values.push_back(std::move(entry));
  }
  return strategy;
}

}  // namespace autopar
