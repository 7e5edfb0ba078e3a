// The nodes of ops: their candidates, what these cost, and the specs that they need and leave.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "search/batch.hpp"
#include "search/build/mesh_build.hpp"
#include "search/stored_rules.hpp"

namespace autopar {
namespace {

// Of pricing a candidate of an op: as much as so many entries of a table, and what it takes.
constexpr double kCandidateWork = 200;
constexpr double kCandidateBytes = 200;
// In place of an op's batch factor.
constexpr int kFollows = -2;

// The tables of classes of ops, each made once.
class OpTables {
 public:
  explicit OpTables(MeshBuild& build)
      : build_(build), request_(build.request), model_(build.model) {}

  // Null: the allowance is over.
  Result<std::shared_ptr<const OpTable>> table_for(OpId id, int batch_factor) {
    const Op& op = build_.graph.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    const bool has_pin = build_.pins.concerns(build_.graph, id);
    static const std::vector<Assignment> kAny;
    // A phase op follows the hub that it hands on, whatever is filled in for others.
    const bool follows = build_.phase_ops.contains(id);
    const std::vector<Assignment>& narrowed =
        request_.narrowing && !follows ? request_.narrowing->assignments[id.index()] : kAny;
    const bool is_filled =
        request_.fill != Fill::kSearch && !is_never_filled(request_, build_.phase_ops, id);
    if (!is_filled) batch_factor = kFollows;
    const ClassKey key(
        request_.rules.class_of_op[id.index()], has_pin ? static_cast<int>(id.value) : -1,
        has_pin ? -1 : batch_factor, build_.prices.are_weighted() ? static_cast<int>(op.phase) : -1,
        request_.prices_of_ops ? (*request_.prices_of_ops)[id.index()] : StreamPrices(), narrowed);
    const auto found = tables_of_class_.find(key);
    if (found != tables_of_class_.end()) return found->second;

    count_candidates(rule);
    if (build_.allowance.over()) return std::shared_ptr<const OpTable>();
    std::vector<Assignment> assignments = !narrowed.empty() ? narrowed
                                          : has_pin         ? model_.choices_of_pin(op, rule)
                                                            : model_.choices(op, rule);
    if (narrowed.empty() && !has_pin && is_filled) {
      keep_one(assignments, batch_factor);
    } else if (narrowed.empty() && may_move(op, rule, has_pin)) {
      std::vector<Assignment> moving = moving_candidates(rule, model_.mesh());
      assignments.insert(assignments.end() - 1, moving.begin(), moving.end());
    }
    MeshProblem::OpChoices all = with_specs(op, rule, std::move(assignments));
    if (has_pin) {
      auto kept = left_by(build_.pins, std::move(all), build_.graph, id, rule, model_.mesh());
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

 private:
  // By class, pinned op (-1: none), batch factor (-1: of no matter, kFollows), phase where streams
  // are weighted (else -1), weights where ops have their own, and narrowed ones.
  using ClassKey = std::tuple<int, int, int, int, StreamPrices, std::vector<Assignment>>;

  // A pin of slices never means parts that move: who wants those names their factors.
  bool may_move(const Op& op, const Rule& rule, bool has_pin) const {
    if (!model_.prices_moving()) return false;
    const auto pin = build_.pins.ops.find(op.name);
    if (!has_pin || pin == build_.pins.ops.end()) {
      return request_.moving != SearchRequest::Moving::kNo;
    }
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
    build_.allowance.add(kCandidateWork * count, kCandidateBytes * count);
  }

  void keep_one(std::vector<Assignment>& assignments, int factor) const {
    std::size_t kept = data_parallel_choice(assignments, factor, model_.mesh());
    if (kept == assignments.size()) kept = assignments.size() - 1;  // all-none comes last
    assignments = {Assignment(assignments[kept])};
  }

  MeshProblem::OpChoices with_specs(const Op& op, const Rule& rule,
                                    std::vector<Assignment> assignments) const {
    MeshProblem::OpChoices all;
    all.assignments.reserve(assignments.size());
    all.specs.reserve(assignments.size());
    for (Assignment& a : assignments) {
      auto specs = specs_of(rule, a, model_.mesh());
      AUTOPAR_CHECK(specs.has_value(), "candidate without specs: " + op.name);
      all.assignments.push_back(std::move(a));
      all.specs.push_back(std::move(*specs));
    }
    return all;
  }

  Result<std::shared_ptr<const OpTable>> price(OpId id, MeshProblem::OpChoices choices) {
    const Op& op = build_.graph.op(id);
    auto table = std::make_shared<OpTable>();
    const std::size_t count = choices.assignments.size();
    table->cost.reserve(count);
    for (std::size_t c = 0; c < count; ++c) {
      AUTOPAR_TRY(price, model_.op_price(build_.graph, op, request_.rules.rules[id.index()],
                                         choices.assignments[c], choices.specs[c]));
      table->cost.push_back(build_.prices.of_op(id, price));
      if (price.temporaries > 0) table->temporaries.resize(count, 0);
      if (price.temporaries > 0) table->temporaries[c] = static_cast<double>(price.temporaries);
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      table->input_lists.push_back(build_.tables.list_of(
          count, [&](std::size_t c) -> const Spec& { return choices.specs[c].inputs[i]; }));
    }
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      table->output_lists.push_back(build_.tables.list_of(
          count, [&](std::size_t c) -> const Spec& { return choices.specs[c].outputs[j]; }));
    }
    choices.follower_prices = model_.follower_prices(build_.graph, op, choices.specs);
    table->choices = std::make_shared<const MeshProblem::OpChoices>(std::move(choices));
    return std::shared_ptr<const OpTable>(std::move(table));
  }

  MeshBuild& build_;
  const SearchRequest& request_;
  CostModel& model_;
  std::map<ClassKey, std::shared_ptr<const OpTable>> tables_of_class_;
};

}  // namespace

Status add_ops(MeshBuild& build) {
  const Graph& graph = build.graph;
  MeshProblem& out = build.out;
  std::vector<int> batch(graph.ops.size(), -1);
  if (build.request.fill == Fill::kDataParallel) batch = batch_factors(graph, build.request.rules);
  out.node_of_op.resize(graph.ops.size());
  out.choices_of_op.resize(graph.ops.size());
  build.table_of_op.resize(graph.ops.size());
  build.supplier.resize(graph.values.size());
  // About as many nodes as there are: ops, stored values and hubs.
  out.problem.nodes.reserve(graph.values.size());
  out.specs_of_node.reserve(graph.values.size());
  out.op_of_node.reserve(graph.values.size());
  OpTables tables(build);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const OpId id(static_cast<std::int64_t>(o));
    AUTOPAR_TRY(table, tables.table_for(id, batch[o]));
    out.whole = !build.allowance.over();
    if (!out.whole) return Ok{};
    build.table_of_op[o] = table;
    const int node = build.add_node(graph.op(id).name, table->cost);
    const int time = static_cast<int>(o);
    if (!table->temporaries.empty()) {
      std::vector<double> bytes = table->temporaries;
      for (double& b : bytes) b *= build.copies_at(time);
      build.use(node, time, time + 1, std::move(bytes));
    }
    out.op_of_node.back() = id;
    out.node_of_op[o] = node;
    out.choices_of_op[o] = table->choices;
    for (std::size_t j = 0; j < graph.op(id).outputs.size(); ++j) {
      const ValueId made = graph.op(id).outputs[j];
      if (made.valid()) build.supplier[made.index()] = {node, table->output_lists[j]};
    }
  }
  return Ok{};
}

}  // namespace autopar
