#include "search/rec/recursion.hpp"

#include <algorithm>
#include <map>

#include "autopar/cost.hpp"
#include "search/boundary.hpp"
#include "search/rec/prices.hpp"

namespace autopar::rec {

namespace {

// Ops of one class that were treated alike so far.
struct OpState {
  struct Choice {
    int factor = -1;
    std::vector<int> roles;        // on this axis; inputs, then outputs
    std::vector<double> elements;  // on a device after the cut; inputs, then outputs
    int next = -1;                 // the state that the choice leads to
  };
  // Prices of one way to touch a value, in the level at hand.
  struct Port {
    int kind = -1;   // Touch::kind
    int table = -1;  // RoleTable::id
    double byte_price = 0;
    int prices = -1;
  };
  int op_class = -1;
  std::size_t inputs = 0;  // how many
  Assignment prefix;
  std::vector<double> elements;  // before the cut
  std::vector<Choice> choices;   // of the level at hand
  std::vector<Port> ports;
  Row costs;  // per choice
  int cost = -1;
  double weight = 0;
};

// An input or parameter: how it lies is decided like an op.
struct Store {
  int star = -1;
  Spec spec;    // so far
  Shape local;  // on a device
};

class Recursion {
 public:
  Recursion(const SearchRequest& request, const Wiring& wiring, const Mesh& mesh,
            const Allowed& allowed, const RecursionOptions& options)
      : request_(request),
        graph_(request.graph),
        wiring_(wiring),
        mesh_(mesh),
        allowed_(allowed),
        options_(options) {}

  Result<Decisions> run() {
    AUTOPAR_RETURN_IF_ERROR(fix_layouts());
    start();
    Decisions decisions;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      AUTOPAR_TRY(cost, cut(axis));
      decisions.cost += cost;
      if (axis == 0) decisions.weight_of_op = weights_;
    }
    decisions.cost += ops_cost_;
    for (int state : state_of_op_) decisions.assignments.push_back(states_[index(state)].prefix);
    for (Store& store : stores_) {
      if (!stored_[index(store.star)].empty()) continue;
      decisions.stored.emplace_back(wiring_.stars[index(store.star)].value, std::move(store.spec));
    }
    return decisions;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // What the request says about how values lie: one spec at most, by star.
  Status fix_layouts() {
    stored_.resize(wiring_.stars.size());
    hub_.resize(wiring_.stars.size());
    output_.resize(wiring_.stars.size());
    if (!options_.keep_layouts) return Ok{};
    const std::vector<Readers> readers = readers_of(graph_);
    std::vector<bool> is_input(graph_.values.size(), false);
    for (ValueId id : graph_.inputs) is_input[id.index()] = true;
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const StarOf& star = wiring_.stars[s];
      const Value& value = graph_.value(star.value);
      if (star.stored) {
        AUTOPAR_RETURN_IF_ERROR(
            restrict_source(request_, value, is_input[star.value.index()], mesh_, stored_[s]));
      }
      AUTOPAR_RETURN_IF_ERROR(restrict_hub(request_, value, mesh_, hub_[s]));
      if (!star.is_output || star.update_of >= 0) continue;
      const bool only = readers[star.value.index()].count() == 1;
      AUTOPAR_RETURN_IF_ERROR(restrict_output(request_, value, only, mesh_, output_[s]));
    }
    return Ok{};
  }

  void start() {
    for (std::size_t c = 0; c < wiring_.op_of_class.size(); ++c) {
      OpState state;
      state.op_class = static_cast<int>(c);
      state.inputs = graph_.op(wiring_.op_of_class[c]).inputs.size();
      const OpShapes shapes = shapes_of(graph_, graph_.op(wiring_.op_of_class[c]));
      for (const auto* list : {&shapes.inputs, &shapes.outputs}) {
        for (const Shape& shape : *list) {
          state.elements.push_back(static_cast<double>(element_count(shape)));
        }
      }
      states_.push_back(std::move(state));
    }
    state_of_op_ = wiring_.class_of_op;
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      if (!has_store(s)) continue;
      const Shape& shape = graph_.value(wiring_.stars[s].value).shape;
      stores_.push_back({static_cast<int>(s), replicated(shape.size()), shape});
    }
  }

  bool has_store(std::size_t s) const {
    const StarOf& star = wiring_.stars[s];
    return star.updated_by >= 0 || (star.stored && !options_.byte_prices.empty());
  }

  // One level: decides what the axis splits. Returns what the values cost on it.
  Result<double> cut(int axis) {
    Mesh so_far;
    so_far.axes.assign(mesh_.axes.begin(), mesh_.axes.begin() + axis + 1);
    AUTOPAR_TRY(model, make_cost_model(request_.cost_model, request_.cluster, so_far));
    const Mesh one{{mesh_.axes[index(axis)]}};
    AUTOPAR_TRY(one_model, make_cost_model(request_.cost_model, request_.cluster, one));
    RolePrices prices(*one_model);
    const std::size_t before = states_.size();
    std::vector<bool> open(before, false);
    for (int state : state_of_op_) {
      if (open[index(state)]) continue;
      open[index(state)] = true;
      AUTOPAR_RETURN_IF_ERROR(open_state(states_[index(state)], axis, *model));
    }
    const LevelProblem problem = level_problem(axis, prices);
    return advance(axis, problem, decide(problem, options_.decide));
  }

  // The factors that the axis may split, the preferred one of equals first: along the batch, then
  // as the rule lists them, then none.
  std::vector<int> factors_of(const OpState& state, int axis) const {
    const OpId op = wiring_.op_of_class[index(state.op_class)];
    const auto& kept = allowed_[index(state.op_class)];
    std::vector<int> factors;
    const int batch = wiring_.batch_factor_of_class[index(state.op_class)];
    const int count = static_cast<int>(request_.rules.rules[op.index()].factors.size());
    if (mesh_.axes[index(axis)].size > 1) {
      if (batch >= 0) factors.push_back(batch);
      for (int f = 0; f < count; ++f) {
        if (f != batch) factors.push_back(f);
      }
    }
    factors.push_back(-1);
    if (kept.empty()) return factors;
    std::erase_if(factors, [&](int f) {
      return std::none_of(kept.begin(), kept.end(), [&](const Assignment& a) {
        return a.factor_of_axis[index(axis)] == f &&
               std::equal(state.prefix.factor_of_axis.begin(), state.prefix.factor_of_axis.end(),
                          a.factor_of_axis.begin());
      });
    });
    return factors;
  }

  Status open_state(OpState& state, int axis, CostModel& model) {
    const OpId id = wiring_.op_of_class[index(state.op_class)];
    const Op& op = graph_.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    state.choices.clear();
    state.ports.clear();
    state.costs.clear();
    state.cost = -1;
    state.weight = 0;
    for (int factor : factors_of(state, axis)) {
      Assignment assignment = state.prefix;
      assignment.factor_of_axis.push_back(factor);
      const auto specs = specs_of(rule, assignment, model.mesh());
      if (!specs) continue;
      AUTOPAR_TRY(price, model.op_price(graph_, op, rule, assignment, *specs));
      OpState::Choice choice{factor, {}, {}, -1};
      const auto add = [&](const Spec& spec, ValueId value) {
        choice.roles.push_back(role_on(spec, axis));
        choice.elements.push_back(value.valid()
                                      ? static_cast<double>(element_count(local_shape(
                                            spec, graph_.value(value).shape, model.mesh())))
                                      : 0);
      };
      for (std::size_t i = 0; i < op.inputs.size(); ++i) add(specs->inputs[i], op.inputs[i]);
      for (std::size_t j = 0; j < op.outputs.size(); ++j) add(specs->outputs[j], op.outputs[j]);
      const double total = std::min(price.total(), kNever);
      state.costs.push_back(total);
      state.weight = std::max(state.weight, total);
      state.choices.push_back(std::move(choice));
    }
    AUTOPAR_CHECK(!state.choices.empty(), "rec: no choice for op " + op.name);
    return Ok{};
  }

  using Tables = std::vector<const RoleTable*>;  // per star

  LevelProblem level_problem(int axis, RolePrices& prices) {
    LevelProblem problem;
    const Tables tables = tables_of_stars(prices);
    add_stars(axis, tables, problem);
    weights_.clear();
    problem.nodes.reserve(graph_.ops.size() + stores_.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      OpState& state = states_[index(state_of_op_[o])];
      if (state.cost < 0) state.cost = problem.add_cost(state.costs);
      problem.add_node(state.cost, state.weight);
      for (const Touch& touch : wiring_.touches_of_op[o]) {
        const int port = port_of(state, touch, *tables[index(touch.star)], problem);
        problem.add_port(touch.star, port, touch.output >= 0);
      }
      weights_.push_back(state.weight);
    }
    for (const Store& store : stores_) add_store(store, axis, tables, problem);
    return problem;
  }

  // The part of each value that is moved: as its producer leaves it, or as the reader that needs
  // most of it has it, whichever is less (a partial sum is scattered before it moves on).
  Tables tables_of_stars(RolePrices& prices) {
    std::vector<double> made(wiring_.stars.size(), 0), read = made;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const OpState& state = states_[index(state_of_op_[o])];
      for (const Touch& touch : wiring_.touches_of_op[o]) {
        const std::size_t s = index(touch.star);
        if (touch.output >= 0) {
          made[s] = state.elements[state.inputs + index(touch.output)];
        }
        for (int port : touch.ports) read[s] = std::max(read[s], state.elements[index(port)]);
      }
    }
    for (const Store& store : stores_) {
      made[index(store.star)] = static_cast<double>(element_count(store.local));
    }
    Tables tables;
    tables.reserve(wiring_.stars.size());
    elements_.assign(wiring_.stars.size(), 0);
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const Value& value = graph_.value(wiring_.stars[s].value);
      const double elements =
          made[s] > 0 && read[s] > 0 ? std::min(made[s], read[s]) : std::max(made[s], read[s]);
      const double all = static_cast<double>(element_count(value.shape));
      elements_[s] = elements > 0 ? elements : all;
      tables.push_back(&prices.table(value.shape.size(), value.dtype, elements_[s]));
    }
    return tables;
  }

  // What a byte of a star's value is worth on a device, times the size of an element.
  double element_price(const std::vector<double>& byte_prices, std::size_t s) const {
    if (byte_prices.empty()) return 0;
    const ValueId value = wiring_.stars[s].value;
    return byte_prices[value.index()] * static_cast<double>(size_of(graph_.value(value).dtype));
  }

  void add_stars(int axis, const Tables& tables, LevelProblem& problem) const {
    const auto size = static_cast<double>(mesh_.axes[index(axis)].size);
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const StarOf& star = wiring_.stars[s];
      const RoleTable& table = *tables[s];
      Row base(table.size(), 0.0);
      if (!stored_[s].empty() && !has_store(s)) {
        base = table[index(role_on(stored_[s].front(), axis))];
      }
      if (star.is_output && star.update_of < 0) add_output(s, axis, table, base);
      const double held = element_price(options_.byte_prices.hub, s) * elements_[s];
      for (std::size_t role = 0; held > 0 && role < base.size(); ++role) {
        base[role] += role < kSplit ? held : held / size;
      }
      if (star.stored) base[kPartial] = kForbidden;
      if (!hub_[s].empty()) {
        const auto only = index(role_on(hub_[s].front(), axis));
        for (std::size_t role = 0; role < base.size(); ++role) {
          if (role != only) base[role] = kForbidden;
        }
      }
      problem.add_star(base);
    }
  }

  void add_output(std::size_t s, int axis, const RoleTable& table, Row& base) const {
    for (std::size_t hub = 0; hub < table.size(); ++hub) {
      if (!output_[s].empty()) {
        base[hub] += table[hub][index(role_on(output_[s].front(), axis))];
      } else if (hub == kPartial) {
        double least = table[hub][kWhole];  // an output must not leave as a partial sum
        for (std::size_t role = kSplit; role < table.size(); ++role) {
          least = std::min(least, table[hub][role]);
        }
        base[hub] += least;
      }
    }
  }

  // The prices are made once for all ops of a state that touch alike values alike.
  int port_of(OpState& state, const Touch& touch, const RoleTable& table, LevelProblem& problem) {
    const double byte_price =
        touch.output < 0 ? 0 : element_price(options_.byte_prices.made, index(touch.star));
    for (const OpState::Port& port : state.ports) {
      if (port.kind == touch.kind && port.table == table.id && port.byte_price == byte_price) {
        return port.prices;
      }
    }
    PortPrices prices(state.choices.size(), table.size());
    for (std::size_t c = 0; c < state.choices.size(); ++c) {
      set_row(state, state.choices[c], touch, table, byte_price, prices.row(c));
    }
    state.ports.push_back(
        {touch.kind, table.id, byte_price, problem.add_prices(std::move(prices))});
    return state.ports.back().prices;
  }

  static void set_row(const OpState& state, const OpState::Choice& choice, const Touch& touch,
                      const RoleTable& table, double byte_price, double* row) {
    if (touch.output >= 0) {
      const std::size_t port = state.inputs + index(touch.output);
      const double held = byte_price * choice.elements[port];
      const Row& moves = table[index(choice.roles[port])];
      for (std::size_t hub = 0; hub < table.size(); ++hub) row[hub] = moves[hub] + held;
      return;
    }
    for (std::size_t p = 0; p < touch.ports.size(); ++p) {
      const int role = choice.roles[index(touch.ports[p])];
      bool again = false;
      for (std::size_t q = 0; q < p; ++q) again |= choice.roles[index(touch.ports[q])] == role;
      if (again) continue;
      for (std::size_t hub = 0; hub < table.size(); ++hub) row[hub] += table[hub][index(role)];
    }
  }

  // Roles in which a store may lie after this cut.
  std::vector<int> roles_of(const Store& store, int axis) const {
    const auto& fixed = stored_[index(store.star)];
    if (!fixed.empty()) return {role_on(fixed.front(), axis)};
    std::vector<int> roles = {kWhole};
    for (std::size_t d = 0; d < store.local.size(); ++d) {
      if (store.local[d] % mesh_.axes[index(axis)].size == 0) {
        roles.push_back(kSplit + static_cast<int>(d));
      }
    }
    return roles;
  }

  void add_store(const Store& store, int axis, const Tables& tables, LevelProblem& problem) const {
    const std::size_t star = index(store.star);
    const int updater = wiring_.stars[star].updated_by;
    const double held = element_price(options_.byte_prices.made, star) *
                        static_cast<double>(element_count(store.local));
    const std::vector<int> roles = roles_of(store, axis);
    PortPrices out(roles.size(), tables[star]->size());
    PortPrices in(roles.size(), updater < 0 ? 0 : tables[index(updater)]->size());
    Row cost;
    for (std::size_t c = 0; c < roles.size(); ++c) {
      const std::size_t role = index(roles[c]);
      const Row& moves = (*tables[star])[role];
      std::copy(moves.begin(), moves.end(), out.row(c));
      const std::size_t froms = updater < 0 ? 0 : tables[index(updater)]->size();
      for (std::size_t from = 0; from < froms; ++from) {
        in.row(c)[from] = (*tables[index(updater)])[from][role];
      }
      const double parts = role == kWhole ? 1 : static_cast<double>(mesh_.axes[index(axis)].size);
      cost.push_back(held / parts);
    }
    problem.add_node(problem.add_cost(std::move(cost)), 0);
    problem.add_port(store.star, problem.add_prices(std::move(out)), true);
    if (updater >= 0) problem.add_port(updater, problem.add_prices(std::move(in)), false);
  }

  // Freezes the choices.
  double advance(int axis, const LevelProblem& problem, const std::vector<int>& choices) {
    double nodes = 0;
    ops_cost_ = 0;
    for (std::size_t n = 0; n < choices.size(); ++n) {
      const double cost = problem.costs[index(problem.nodes[n].cost)][index(choices[n])];
      nodes += cost;
      if (n >= graph_.ops.size()) continue;
      ops_cost_ += cost;
      state_of_op_[n] = next_of(state_of_op_[n], index(choices[n]));
    }
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      Store& store = stores_[i];
      const int role = roles_of(store, axis)[index(choices[graph_.ops.size() + i])];
      if (role < kSplit) continue;
      store.local[index(role - kSplit)] /= mesh_.axes[index(axis)].size;
      store.spec.dims[index(role - kSplit)].push_back(axis);
    }
    return level_cost(problem, choices) - nodes;
  }

  int next_of(int state, std::size_t choice) {
    if (states_[index(state)].choices[choice].next >= 0) {
      return states_[index(state)].choices[choice].next;
    }
    const int made = static_cast<int>(states_.size());
    OpState::Choice& taken = states_[index(state)].choices[choice];
    taken.next = made;
    OpState next;
    next.op_class = states_[index(state)].op_class;
    next.inputs = states_[index(state)].inputs;
    next.prefix = states_[index(state)].prefix;
    next.prefix.factor_of_axis.push_back(taken.factor);
    next.elements = taken.elements;
    states_.push_back(std::move(next));
    return made;
  }

  const SearchRequest& request_;
  const Graph& graph_;
  const Wiring& wiring_;
  const Mesh& mesh_;
  const Allowed& allowed_;
  RecursionOptions options_;
  std::vector<std::vector<Spec>> stored_, hub_, output_;  // per star, empty: free
  std::vector<OpState> states_;
  std::vector<int> state_of_op_;
  std::vector<Store> stores_;
  std::vector<double> weights_;
  std::vector<double> elements_;  // per star: the part that is moved, before the cut
  double ops_cost_ = 0;
};

}  // namespace

Result<Decisions> recurse(const SearchRequest& request, const Wiring& wiring, const Mesh& mesh,
                          const Allowed& allowed, const RecursionOptions& options) {
  return Recursion(request, wiring, mesh, allowed, options).run();
}

}  // namespace autopar::rec
