#include "search/rec/recursion.hpp"

#include <algorithm>
#include <map>

#include "autopar/cost.hpp"
#include "search/boundary.hpp"
#include "search/rec/groups.hpp"
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
    double count = 0;
    int prices = -1;
  };
  int op_class = -1;
  std::size_t inputs = 0;  // how many
  Assignment prefix;
  std::vector<double> elements;  // before the cut
  std::vector<Choice> choices;   // of the level at hand
  std::vector<Port> ports;
  Row costs;      // per choice
  int cost = -1;  // of so many:
  double cost_count = 0;
  double weight = 0;
};

// An input or parameter: how it lies is decided like an op.
struct Store {
  int star = -1;  // group
  Spec spec;      // so far
  Shape local;    // on a device
};

class Recursion {
 public:
  Recursion(const SearchRequest& request, const KeptPins& pins, const Wiring& wiring,
            const Mesh& mesh, const Allowed& allowed, const RecursionOptions& options)
      : request_(request),
        pins_(pins),
        graph_(request.graph),
        wiring_(wiring),
        mesh_(mesh),
        allowed_(allowed),
        options_(options) {}

  Result<Decisions> run() {
    AUTOPAR_RETURN_IF_ERROR(fix_layouts());
    const bool folds = graph_.ops.size() > options_.few_ops;
    groups_ = folds ? alike(wiring_, marks()) : each_alone(wiring_);
    start();
    Decisions decisions;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      if (options_.is_over && options_.is_over()) {
        return infeasible_error("the recursion was stopped before it had a plan");
      }
      AUTOPAR_TRY(cost, cut(axis));
      decisions.cost += cost;
      if (axis == 0) set_weights(decisions);
    }
    decisions.cost += ops_cost_;
    spread(decisions);
    return decisions;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // What the request says about how values lie, by star.
  Status fix_layouts() {
    stored_.resize(wiring_.stars.size());
    hub_.resize(wiring_.stars.size());
    output_.resize(wiring_.stars.size());
    if (!options_.keep_layouts) return Ok{};
    std::vector<bool> is_input(graph_.values.size(), false);
    for (ValueId id : graph_.inputs) is_input[id.index()] = true;
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const StarOf& star = wiring_.stars[s];
      if (star.stored) {
        AUTOPAR_RETURN_IF_ERROR(restrict_source(request_, pins_, star.value,
                                                is_input[star.value.index()], mesh_, stored_[s]));
      }
      restrict_hub(pins_, star.value, hub_[s]);
      if (!star.is_output || star.update_of >= 0) continue;
      AUTOPAR_RETURN_IF_ERROR(restrict_output(request_, pins_, star.value, mesh_, output_[s]));
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
    for (const Groups::OpGroup& group : groups_.ops) {
      state_of_group_.push_back(wiring_.class_of_op[index(group.first)]);
    }
    for (std::size_t g = 0; g < groups_.stars.size(); ++g) {
      if (!has_store(g)) continue;
      const Shape& shape = value_of(g).shape;
      stores_.push_back({static_cast<int>(g), replicated(shape.size()), shape});
    }
  }

  // How the stars of a group are, all of them.
  std::size_t first_star(std::size_t group) const { return index(groups_.stars[group].first); }
  const StarOf& star_of(std::size_t group) const { return wiring_.stars[first_star(group)]; }
  const Value& value_of(std::size_t group) const { return graph_.value(star_of(group).value); }

  bool has_store(std::size_t group) const {
    const StarOf& star = star_of(group);
    return star.updated_by >= 0 || (star.stored && !options_.byte_prices.empty());
  }

  // Where the request and the prices of bytes tell stars apart; empty: nowhere.
  std::vector<int> marks() const {
    const BytePrices& prices = options_.byte_prices;
    std::map<std::tuple<std::vector<Spec>, std::vector<Spec>, std::vector<Spec>, double, double>,
             int>
        known;
    std::vector<int> marks;
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const std::size_t value = wiring_.stars[s].value.index();
      std::tuple key(stored_[s], hub_[s], output_[s], prices.empty() ? 0.0 : prices.made[value],
                     prices.empty() ? 0.0 : prices.hub[value]);
      const auto next = static_cast<int>(known.size());
      marks.push_back(known.try_emplace(std::move(key), next).first->second);
    }
    return marks;
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
    for (int state : state_of_group_) {
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
      const auto& all = request_.rules.rules[op.index()].factors;
      for (int f = 0; f < count; ++f) {
        const bool moves = all[index(f)].kind == FactorKind::kMoving;
        if (f != batch && !moves) factors.push_back(f);
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
      const double seconds = price.total() * static_cast<double>(graph_.times(op));
      const double total = std::min(seconds, kNever);
      state.costs.push_back(total);
      state.weight = std::max(state.weight, total);
      state.choices.push_back(std::move(choice));
    }
    // Such as under a cost model by which every op uses all devices.
    if (state.choices.empty()) {
      return infeasible_error("op '" + op.name + "' (" + op.type +
                              "): rec finds no split on mesh " + to_text(mesh_) +
                              " that goes on from those it chose; try --searcher dp");
    }
    return Ok{};
  }

  using Tables = std::vector<const RoleTable*>;  // per star

  LevelProblem level_problem(int axis, RolePrices& prices) {
    LevelProblem problem;
    const Tables tables = tables_of_stars(prices);
    add_stars(axis, tables, problem);
    problem.nodes.reserve(groups_.ops.size() + stores_.size());
    for (std::size_t g = 0; g < groups_.ops.size(); ++g) {
      OpState& state = states_[index(state_of_group_[g])];
      problem.add_node(cost_of(state, groups_.ops[g].count, problem), state.weight);
      if (axis == 0) weights_.push_back(state.weight);
      add_ports(state, groups_.first_port(g), groups_.first_port(g + 1), tables, problem);
    }
    for (const Store& store : stores_) add_store(store, axis, tables, problem);
    return problem;
  }

  // So often there.
  static double times(double count, double price) { return std::min(count * price, kNever); }

  static int cost_of(OpState& state, double count, LevelProblem& problem) {
    if (state.cost >= 0 && state.cost_count == count) return state.cost;
    Row costs = state.costs;
    for (double& cost : costs) cost = times(count, cost);
    state.cost_count = count;
    return state.cost = problem.add_cost(std::move(costs));
  }

  // Ports of one op group. A star group that is touched in several ways gets all of them at once.
  void add_ports(OpState& state, std::size_t begin, std::size_t end, const Tables& tables,
                 LevelProblem& problem) {
    for (std::size_t p = begin; p < end;) {
      const int star = groups_.ports[p].star;
      std::size_t next = p + 1;
      while (next < end && groups_.ports[next].star == star) ++next;
      bool produces = false;
      for (std::size_t q = p; q < next; ++q) produces |= groups_.ports[q].touch->output >= 0;
      int prices = port_of(state, groups_.ports[p], *tables[index(star)], problem);
      if (next > p + 1) {
        PortPrices all = problem.prices[index(prices)];
        for (std::size_t q = p + 1; q < next; ++q) {
          const int other = port_of(state, groups_.ports[q], *tables[index(star)], problem);
          const PortPrices& more = problem.prices[index(other)];
          for (std::size_t i = 0; i < all.values.size(); ++i) {
            all.values[i] = std::min(all.values[i] + more.values[i], kNever);
          }
        }
        prices = problem.add_prices(std::move(all));
      }
      problem.add_port(star, prices, produces);
      p = next;
    }
  }

  // The part of each value that is moved: as its producer leaves it, or as the reader that needs
  // most of it has it, whichever is less (a partial sum is scattered before it moves on).
  Tables tables_of_stars(RolePrices& prices) {
    std::vector<double> made(groups_.stars.size(), 0), read = made;
    for (std::size_t g = 0; g < groups_.ops.size(); ++g) {
      const OpState& state = states_[index(state_of_group_[g])];
      for (std::size_t p = groups_.first_port(g); p < groups_.first_port(g + 1); ++p) {
        const Touch& touch = *groups_.ports[p].touch;
        const std::size_t s = index(groups_.ports[p].star);
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
    tables.reserve(groups_.stars.size());
    elements_.assign(groups_.stars.size(), 0);
    for (std::size_t s = 0; s < groups_.stars.size(); ++s) {
      const Value& value = value_of(s);
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
    return byte_prices[star_of(s).value.index()] * static_cast<double>(size_of(value_of(s).dtype));
  }

  void add_stars(int axis, const Tables& tables, LevelProblem& problem) const {
    const auto size = static_cast<double>(mesh_.axes[index(axis)].size);
    for (std::size_t s = 0; s < groups_.stars.size(); ++s) {
      const StarOf& star = star_of(s);
      const RoleTable& table = *tables[s];
      Row base(table.size(), 0.0);
      const auto& stored = stored_[first_star(s)];
      if (!stored.empty() && !has_store(s)) base = table[index(role_on(stored.front(), axis))];
      if (star.is_output && star.update_of < 0) add_output(s, axis, table, base);
      const double held = element_price(options_.byte_prices.hub, s) * elements_[s];
      for (std::size_t role = 0; held > 0 && role < base.size(); ++role) {
        base[role] += role < kSplit ? held : held / size;
      }
      for (double& price : base) price *= groups_.stars[s].count;
      if (star.stored) base[kPartial] = kForbidden;
      const auto& hub = hub_[first_star(s)];
      for (std::size_t role = 0; !hub.empty() && role < base.size(); ++role) {
        const bool is_possible = std::any_of(hub.begin(), hub.end(), [&](const Spec& spec) {
          return index(role_on(spec, axis)) == role;
        });
        if (!is_possible) base[role] = kForbidden;
      }
      problem.add_star(base);
    }
  }

  void add_output(std::size_t s, int axis, const RoleTable& table, Row& base) const {
    const auto& output = output_[first_star(s)];
    for (std::size_t hub = 0; hub < table.size(); ++hub) {
      if (!output.empty()) {
        double least = kForbidden;
        for (const Spec& spec : output) {
          least = std::min(least, table[hub][index(role_on(spec, axis))]);
        }
        base[hub] += least;
      } else if (hub == kPartial) {
        double least = table[hub][kWhole];  // an output must not leave as a partial sum
        for (std::size_t role = kSplit; role < table.size(); ++role) {
          least = std::min(least, table[hub][role]);
        }
        base[hub] += least;
      }
    }
  }

  // The prices are made once for all ops of a state that touch alike values alike, as often.
  int port_of(OpState& state, const Groups::Port& group_port, const RoleTable& table,
              LevelProblem& problem) {
    const Touch& touch = *group_port.touch;
    const double byte_price =
        touch.output < 0 ? 0 : element_price(options_.byte_prices.made, index(group_port.star));
    for (const OpState::Port& port : state.ports) {
      if (port.kind == touch.kind && port.table == table.id && port.byte_price == byte_price &&
          port.count == group_port.count) {
        return port.prices;
      }
    }
    PortPrices prices(state.choices.size(), table.size());
    for (std::size_t c = 0; c < state.choices.size(); ++c) {
      set_row(state, state.choices[c], touch, table, byte_price, prices.row(c));
    }
    const Op& op = graph_.op(wiring_.op_of_class[index(state.op_class)]);
    const double count = group_port.count * static_cast<double>(graph_.times(op));
    for (double& price : prices.values) price = times(count, price);
    state.ports.push_back({touch.kind, table.id, byte_price, group_port.count,
                           problem.add_prices(std::move(prices))});
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
    const auto& fixed = stored_[first_star(index(store.star))];
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
    const double count = groups_.stars[star].count;
    const double held = element_price(options_.byte_prices.made, star) *
                        static_cast<double>(element_count(store.local));
    const std::vector<int> roles = roles_of(store, axis);
    PortPrices out(roles.size(), tables[star]->size());
    Row cost;
    for (std::size_t c = 0; c < roles.size(); ++c) {
      const Row& moves = (*tables[star])[index(roles[c])];
      for (std::size_t hub = 0; hub < moves.size(); ++hub) {
        out.row(c)[hub] = times(count, moves[hub]);
      }
      const double parts =
          roles[c] == kWhole ? 1 : static_cast<double>(mesh_.axes[index(axis)].size);
      cost.push_back(times(count, held / parts));
    }
    problem.add_node(problem.add_cost(std::move(cost)), 0);
    problem.add_port(store.star, problem.add_prices(std::move(out)), true);
    auto update = std::partition_point(groups_.updates.begin(), groups_.updates.end(),
                                       [&](const auto& u) { return u.star < store.star; });
    for (; update != groups_.updates.end() && update->star == store.star; ++update) {
      const RoleTable& table = *tables[index(update->updated_by)];
      PortPrices in(roles.size(), table.size());
      for (std::size_t c = 0; c < roles.size(); ++c) {
        for (std::size_t from = 0; from < table.size(); ++from) {
          in.row(c)[from] = times(update->count, table[from][index(roles[c])]);
        }
      }
      problem.add_port(update->updated_by, problem.add_prices(std::move(in)), false);
    }
  }

  // Freezes the choices.
  double advance(int axis, const LevelProblem& problem, const std::vector<int>& choices) {
    double nodes = 0;
    ops_cost_ = 0;
    for (std::size_t n = 0; n < choices.size(); ++n) {
      const double cost = problem.costs[index(problem.nodes[n].cost)][index(choices[n])];
      nodes += cost;
      if (n >= groups_.ops.size()) continue;
      ops_cost_ += cost;
      state_of_group_[n] = next_of(state_of_group_[n], index(choices[n]));
    }
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      Store& store = stores_[i];
      const int role = roles_of(store, axis)[index(choices[groups_.ops.size() + i])];
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

  void set_weights(Decisions& decisions) const {
    decisions.weight_of_op.reserve(graph_.ops.size());
    for (int group : groups_.group_of_op) {
      decisions.weight_of_op.push_back(weights_[index(group)]);
    }
  }

  // From the groups to all that are in them.
  void spread(Decisions& decisions) const {
    decisions.assignments.reserve(graph_.ops.size());
    for (int group : groups_.group_of_op) {
      decisions.assignments.push_back(states_[index(state_of_group_[index(group)])].prefix);
    }
    std::vector<int> store_of_group(groups_.stars.size(), -1);
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      store_of_group[index(stores_[i].star)] = static_cast<int>(i);
    }
    for (std::size_t s = 0; s < wiring_.stars.size(); ++s) {
      const int store = store_of_group[index(groups_.group_of_star[s])];
      if (store < 0 || !stored_[s].empty()) continue;
      decisions.stored.emplace_back(wiring_.stars[s].value, stores_[index(store)].spec);
    }
  }

  const SearchRequest& request_;
  const KeptPins& pins_;
  const Graph& graph_;
  const Wiring& wiring_;
  const Mesh& mesh_;
  const Allowed& allowed_;
  RecursionOptions options_;
  std::vector<std::vector<Spec>> stored_, hub_, output_;  // per star; empty: any
  Groups groups_;
  std::vector<OpState> states_;
  std::vector<int> state_of_group_;
  std::vector<Store> stores_;
  std::vector<double> weights_;   // per group, before any cut
  std::vector<double> elements_;  // per star group: the part that is moved, before the cut
  double ops_cost_ = 0;
};

}  // namespace

Result<Decisions> recurse(const SearchRequest& request, const KeptPins& pins, const Wiring& wiring,
                          const Mesh& mesh, const Allowed& allowed,
                          const RecursionOptions& options) {
  return Recursion(request, pins, wiring, mesh, allowed, options).run();
}

}  // namespace autopar::rec
