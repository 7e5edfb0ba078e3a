#include "planning/pipelines/unit_memory.hpp"

#include <algorithm>
#include <utility>

#include "autopar/report.hpp"
#include "autopar/strategy.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "support/parallel.hpp"

namespace autopar {

namespace {

double at(const std::vector<double>& bytes, int choice) {
  return bytes.empty() ? 0 : bytes[static_cast<std::size_t>(choice)];
}

double least_of(const std::vector<double>& bytes) {
  return bytes.empty() ? 0 : *std::min_element(bytes.begin(), bytes.end());
}

}  // namespace

// What is in use of a problem's memory between the forward and the backward pass.
class UnitMemory::HeldBytes {
 public:
  HeldBytes(const Graph& graph, const std::set<std::string>& own,
            const std::set<std::string>& shared, const MeshProblem& problem)
      : problem_(problem) {
    turn_ = static_cast<int>(end_of_forward(graph));
    const auto nodes = problem.problem.nodes.size();
    stored.resize(nodes);
    kept.resize(nodes);
    holder_of_.resize(nodes);
    std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());

    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      const Value& value = graph.values[v];
      if (outputs.count(id) != 0 || shared.count(value.name) != 0) {
        crosses(value.producer);
      } else if (value.producer.valid()) {
        add(problem.hub_node[v], kept);
      } else if (own.count(value.name) != 0) {
        add(problem.source_node[v], stored);
      }
    }
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (crossing_.count(OpId(static_cast<std::int64_t>(o))) == 0) {
        add(problem.node_of_op[o], kept);
      }
    }
    for (const ProblemEdge& edge : problem.problem.edges) {
      const Holder holder = holder_of_[static_cast<std::size_t>(edge.from)];
      if (holder == Holder::kNone) continue;
      for (const EdgeUse& use : edge.uses) {
        if (!is_held(use.begin, use.end)) continue;
        edges.push_back({edge.from, edge.to,
                         problem.problem.tables[static_cast<std::size_t>(use.table)],
                         holder == Holder::kStored});
      }
    }
  }

  std::vector<std::vector<double>> stored, kept;  // bytes per node and choice
  std::vector<EdgeBytes> edges;

 private:
  enum class Holder : std::uint8_t { kNone, kStored, kKept };
  bool is_held(int begin, int end) const { return begin < turn_ && turn_ < end; }
  void crosses(OpId op) {
    if (op.valid()) crossing_.insert(op);
  }

  void add(int node, std::vector<std::vector<double>>& bytes) {
    if (node < 0) return;
    const auto n = static_cast<std::size_t>(node);
    holder_of_[n] = &bytes == &stored ? Holder::kStored : Holder::kKept;
    for (const NodeUse& use : problem_.problem.nodes[n].uses) {
      if (!is_held(use.begin, use.end)) continue;
      bytes[n].resize(use.bytes.size());
      for (std::size_t i = 0; i < use.bytes.size(); ++i) bytes[n][i] += use.bytes[i];
    }
  }

  const MeshProblem& problem_;
  int turn_ = 0;
  std::vector<Holder> holder_of_;  // per node
  std::set<OpId> crossing_;        // ops whose values leave the unit
};

UnitMemory::UnitMemory(const Graph& unit, std::set<std::string> own, std::set<std::string> shared,
                       std::vector<UnitWay> ways, std::int64_t devices, Problems problems,
                       std::function<bool()> is_stopped, std::shared_ptr<UnitShelf> shelf,
                       int threads)
    : PricedUnit(std::move(is_stopped)),
      graph_(unit),
      own_(std::move(own)),
      shared_(std::move(shared)),
      ways_(std::move(ways)),
      devices_(static_cast<double>(devices)),
      problems_(std::move(problems)),
      now_(ways_.size()),
      left_(ways_.size()),
      shelf_(std::move(shelf)),
      owner_(shelf_->new_owner()),
      threads_(threads) {}

double UnitMemory::Unit::bytes() const {
  double entries = 0, candidates = 0;
  for (const CostTable& table : built.problem.tables) {
    entries += static_cast<double>(table.values.size());
  }
  for (const EdgeBytes& edge : edges) entries += static_cast<double>(edge.bytes.values.size());
  for (const ProblemNode& node : built.problem.nodes) {
    candidates += static_cast<double>(node.cost.size());
  }
  using namespace tuning::units;
  return 8 * entries + kBytesPerCandidate * candidates +
         kBytesPerOp * static_cast<double>(graph.ops.size());
}

Status UnitMemory::open(std::size_t way) {
  if (now_.is_open[way] != 0) return Ok{};
  now_.is_open[way] = 1;
  AUTOPAR_TRY(unit, built(way, ways_[way].by_paths));
  if (unit == nullptr) return Ok{};
  now_.has_unit[way] = 1;
  now_.fewest[way] = unit->fewest;
  fewest_.emplace(ways_[way].recompute, fewest_on_any_mesh(*unit));
  return Ok{};
}

Result<UnitMemory::SharedUnit> UnitMemory::unit_of(const Searched& searched,
                                                   std::size_t way) const {
  const bool is_of_left = &searched == &left_;
  const auto known = shelf_->find(key_of(way, is_of_left));
  if (known != nullptr) return std::static_pointer_cast<const Unit>(known);
  // Prices by paths are left once, and then those of all ways.
  AUTOPAR_TRY(unit, built(way, is_of_left || ways_[way].by_paths));
  AUTOPAR_CHECK(unit != nullptr, "a way of a unit says nothing the second time");
  return unit;
}

Result<UnitMemory::SharedUnit> UnitMemory::built(std::size_t way, bool by_paths) const {
  Graph graph = graph_;
  UnitWay asked = ways_[way];
  asked.by_paths = by_paths;
  AUTOPAR_TRY(problem, problems_(graph, asked));
  if (!problem) return SharedUnit();
  HeldBytes held(graph, own_, shared_, problem->built);
  auto unit = std::make_shared<Unit>();
  unit->stored = std::move(held.stored);
  unit->kept = std::move(held.kept);
  unit->edges = std::move(held.edges);
  for (const std::vector<double>& bytes : unit->stored) unit->fewest.stored += least_of(bytes);
  for (const std::vector<double>& bytes : unit->kept) unit->fewest.kept += least_of(bytes);
  unit->graph = std::move(graph);
  unit->built = std::move(problem->built);
  unit->seconds = std::move(problem->seconds);
  Problem& bare = unit->built.problem;
  for (ProblemNode& node : bare.nodes) node.uses.clear();
  for (ProblemEdge& edge : bare.edges) edge.uses.clear();
  bare.use_limit = kInfinity;
  const bool is_of_left = by_paths && !ways_[way].by_paths;
  shelf_->put(key_of(way, is_of_left), unit, unit->bytes());
  return SharedUnit(std::move(unit));
}

// No device has less than an even part of a value.
UnitMemory::FewestBytes UnitMemory::fewest_on_any_mesh(const Unit& unit) const {
  FewestBytes fewest;
  for (std::size_t v = 0; v < unit.graph.values.size(); ++v) {
    const Value& value = unit.graph.values[v];
    const double part = static_cast<double>(element_count(value.shape)) *
                        static_cast<double>(size_of(value.dtype)) / devices_;
    const auto add = [&](int node, const std::vector<std::vector<double>>& bytes, double& sum) {
      if (node >= 0) sum += std::min(part, least_of(bytes[static_cast<std::size_t>(node)]));
    };
    add(unit.built.source_node[v], unit.stored, fewest.stored);
    add(unit.built.hub_node[v], unit.kept, fewest.kept);
  }
  return fewest;
}

UnitMemory::FewestBytes UnitMemory::fewest_of(std::size_t way) const {
  if (now_.has_unit[way] != 0) return now_.fewest[way];
  const auto known = fewest_.find(ways_[way].recompute);
  return known == fewest_.end() ? FewestBytes() : known->second;
}

// By what is known of it at lower prices, and between a lower and a higher one.
Seconds UnitMemory::floor_of(std::size_t way, std::int64_t in_flight, double price) const {
  const FewestBytes fewest = fewest_of(way);
  const auto flying = static_cast<double>(in_flight);
  Seconds floor = ways_[way].floor + price * fewest.of(in_flight);
  // Whatever is repeated takes no less than nothing repeated.
  for (std::size_t other = 0; other < ways_.size(); ++other) {
    const bool is_less = other != way && ways_[other].recompute == Recompute::kNone &&
                         ways_[other].mesh == ways_[way].mesh;
    if (!is_less) continue;
    for (const Look& look : now_.looks[other]) {
      if (look.price == 0) floor = std::max(floor, look.point.bound + price * fewest.of(in_flight));
    }
  }
  for (const Look& look : now_.looks[way]) {
    const double more = price - look.price;
    const double more_kept = price * flying - look.price * static_cast<double>(look.in_flight);
    if (more < 0 || more_kept < 0) continue;
    floor = std::max(floor, look.point.bound + more * fewest.stored + more_kept * fewest.kept);
  }
  for (const Look& high : now_.looks[way]) {
    if (high.in_flight != in_flight || high.price <= price) continue;
    const auto between = [&](double low, Seconds bound) {
      const double part = (price - low) / (high.price - low);
      floor = std::max(floor, (1 - part) * bound + part * high.point.bound);
    };
    between(0, ways_[way].floor);
    for (const Look& low : now_.looks[way]) {
      const bool is_on_ray = low.in_flight == in_flight || low.price == 0;
      if (is_on_ray && low.price <= price) between(low.price, low.point.bound);
    }
  }
  return floor;
}

UnitMemory::Look* UnitMemory::known_look(std::size_t way, std::int64_t in_flight, double price) {
  std::deque<Look>& looks = now_.looks[way];
  const auto known = std::find_if(looks.begin(), looks.end(), [&](const Look& look) {
    return look.in_flight == in_flight && look.price == price;
  });
  if (known != looks.end()) return &*known;
  for (const Look& look : looks) {
    if (look.price > 0 || price > 0) continue;
    Look same = look;  // but for the bytes of others in flight
    same.in_flight = in_flight;
    same.point.bytes = look.stored + static_cast<double>(in_flight) * look.kept;
    return &looks.emplace_back(std::move(same));
  }
  return nullptr;
}

Result<UnitMemory::Look*> UnitMemory::look(std::size_t way, std::int64_t in_flight, double price) {
  if (Look* known = known_look(way, in_flight, price)) return known;
  const auto ahead = std::find_if(ahead_.begin(), ahead_.end(),
                                  [&](const Look& look) { return look.is(way, in_flight, price); });
  if (ahead != ahead_.end()) {
    now_.looks[way].push_back(std::move(*ahead));
    ahead_.erase(ahead);
  } else {
    AUTOPAR_TRY(unit, unit_of(now_, way));
    now_.looks[way].push_back(solved(*unit, way, in_flight, price));
  }
  Look& found = now_.looks[way].back();
  logging::debug("unit: {} in flight, mesh {}, recompute {}, {} per GiB: no less than {}; {}, {}",
                 in_flight, ways_[way].mesh, name_of(ways_[way].recompute),
                 format_seconds(price * (1 << 30)), format_seconds(found.point.bound),
                 format_seconds(found.point.cost), format_bytes(found.point.bytes));
  return &found;
}

UnitMemory::Look UnitMemory::solved(const Unit& unit, std::size_t way, std::int64_t in_flight,
                                    double price) {
  const auto flying = static_cast<double>(in_flight);
  const auto bytes_of = [&](std::size_t n, int choice) {
    return at(unit.stored[n], choice) + flying * at(unit.kept[n], choice);
  };
  Problem priced = unit.built.problem;
  for (std::size_t n = 0; n < priced.nodes.size(); ++n) {
    std::vector<double>& cost = priced.nodes[n].cost;
    for (std::size_t i = 0; i < cost.size(); ++i)
      cost[i] += price * bytes_of(n, static_cast<int>(i));
  }
  for (const EdgeBytes& edge : unit.edges) {
    CostTable table = edge.bytes;
    for (double& value : table.values) value *= price * (edge.is_stored ? 1 : flying);
    priced.edges.push_back({edge.from, edge.to, priced.add_table(std::move(table)), {}});
  }
  SolveOptions options;
  options.effort = tuning::units::kEffort;
  Solution solution = solve_dp(priced, options);
  double stored = 0, kept = 0;
  for (std::size_t n = 0; n < solution.choices.size(); ++n) {
    stored += at(unit.stored[n], solution.choices[n]);
    kept += at(unit.kept[n], solution.choices[n]);
  }
  for (const EdgeBytes& edge : unit.edges) {
    if (solution.choices.empty()) break;
    (edge.is_stored ? stored : kept) +=
        edge.bytes.at(solution.choices[static_cast<std::size_t>(edge.from)],
                      solution.choices[static_cast<std::size_t>(edge.to)]);
  }
  UnitPoint point{solution.lower_bound, solution.cost, stored + flying * kept, way};
  point.cost -= price * point.bytes;
  return {in_flight, price, point, stored, kept, std::move(solution.choices)};
}

// What is solved so and not asked for then changes nothing.
Status UnitMemory::solve_two(std::size_t way, std::size_t other, std::int64_t in_flight,
                             double price) {
  const auto is_known = [&](std::size_t w) {
    return known_look(w, in_flight, price) != nullptr ||
           std::any_of(ahead_.begin(), ahead_.end(),
                       [&](const Look& look) { return look.is(w, in_flight, price); });
  };
  const bool is_open = other < ways_.size() && now_.has_unit[other] != 0;
  if (threads_ < 2 || !is_open || is_known(way) || is_known(other)) return Ok{};
  AUTOPAR_TRY(one, unit_of(now_, way));
  AUTOPAR_TRY(two, unit_of(now_, other));
  std::vector<std::optional<Look>> found(2);
  in_parallel(2, 2, [&](std::size_t i) {
    found[i] = solved(i == 0 ? *one : *two, i == 0 ? way : other, in_flight, price);
  });
  ahead_.clear();
  for (auto& look : found) ahead_.push_back(std::move(*look));
  return Ok{};
}

Result<std::shared_ptr<const UnitParts>> UnitMemory::parts(Recompute recompute,
                                                           const std::string& mesh,
                                                           std::int64_t in_flight, double price) {
  const auto way = static_cast<std::size_t>(std::find_if(ways_.begin(), ways_.end(),
                                                         [&](const UnitWay& other) {
                                                           return other.recompute == recompute &&
                                                                  other.mesh == mesh;
                                                         }) -
                                            ways_.begin());
  if (way == ways_.size()) return std::shared_ptr<const UnitParts>();
  AUTOPAR_RETURN_IF_ERROR(open(way));
  if (now_.has_unit[way] == 0) return std::shared_ptr<const UnitParts>();
  AUTOPAR_TRY(found, look(way, in_flight, price));
  AUTOPAR_TRY(misled, is_misled(way, *found));
  if (misled) {
    AUTOPAR_RETURN_IF_ERROR(leave_paths(in_flight));
    return this->parts(recompute, mesh, in_flight, price);
  }
  if (found->choices.empty()) return std::shared_ptr<const UnitParts>();
  AUTOPAR_TRY(unit, unit_of(now_, way));
  return std::shared_ptr<const UnitParts>(std::make_shared<UnitParts>(parts_in(*unit, *found)));
}

Result<std::shared_ptr<const UnitParts>> UnitMemory::parts_of(const UnitPlan& plan) const {
  const Searched& searched = searched_of(plan);
  AUTOPAR_TRY(unit, unit_of(searched, plan.way));
  return std::shared_ptr<const UnitParts>(
      std::make_shared<UnitParts>(parts_in(*unit, searched.looks[plan.way][plan.look])));
}

UnitParts UnitMemory::parts_in(const Unit& unit, const Look& look) {
  UnitParts parts;
  const auto choice_of = [&](int node) {
    return static_cast<std::size_t>(look.choices[static_cast<std::size_t>(node)]);
  };
  for (std::size_t o = 0; o < unit.graph.ops.size(); ++o) {
    parts.ops[unit.graph.ops[o].name] =
        unit.built.choices_of_op[o]->assignments[choice_of(unit.built.node_of_op[o])];
  }
  const auto spec_of = [&](int node) -> std::optional<Spec> {
    if (node < 0) return {};
    return unit.built.specs_of_node[static_cast<std::size_t>(node)][choice_of(node)];
  };
  for (std::size_t v = 0; v < unit.graph.values.size(); ++v) {
    parts.values[unit.graph.values[v].name] = {spec_of(unit.built.source_node[v]),
                                               spec_of(unit.built.hub_node[v]),
                                               spec_of(unit.built.output_node[v])};
  }
  return parts;
}

Result<std::optional<Strategy>> UnitMemory::strategy(std::size_t way, std::int64_t in_flight,
                                                     double price) {
  AUTOPAR_RETURN_IF_ERROR(open(way));
  if (now_.has_unit[way] == 0) return std::optional<Strategy>();
  AUTOPAR_TRY(found, look(way, in_flight, price));
  if (found->choices.empty()) return std::optional<Strategy>();
  AUTOPAR_TRY(unit, unit_of(now_, way));
  return std::optional(strategy_of(unit->graph, unit->built, found->choices));
}

Seconds UnitMemory::known_least(std::int64_t in_flight, double price) const {
  Seconds least = kInfinity;
  for (std::size_t way = 0; way < ways_.size(); ++way) {
    if (now_.is_open[way] != 0 && now_.has_unit[way] == 0) continue;
    least = std::min(least, floor_of(way, in_flight, price));
  }
  return least;
}

Status UnitMemory::find_seconds(const Searched& searched, std::size_t way, Look& look) const {
  if (look.seconds) return Ok{};
  AUTOPAR_TRY(unit, unit_of(searched, way));
  AUTOPAR_TRY(seconds, unit->seconds(unit->built, look.choices));
  look.seconds = seconds;
  logging::debug("unit: mesh {}, recompute {}, {} per GiB for {} in flight: a step takes {}",
                 ways_[way].mesh, name_of(ways_[way].recompute),
                 format_seconds(look.price * (1 << 30)), look.in_flight, format_seconds(seconds));
  return Ok{};
}

// Where memory is dear, what such a plan does not wait for looks free: everything is fetched in
// every pass, until a link is what takes longest.
Result<bool> UnitMemory::is_misled(std::size_t way, Look& look) const {
  if (!ways_[way].by_paths || look.price == 0 || look.choices.empty()) return false;
  AUTOPAR_RETURN_IF_ERROR(find_seconds(now_, way, look));
  return *look.seconds > tuning::units::kMisled * look.point.cost;
}

Status UnitMemory::leave_paths(std::int64_t in_flight) {
  for (std::size_t way = 0; way < ways_.size(); ++way) {
    std::deque<Look> kept;
    for (Look& look : now_.looks[way]) {
      AUTOPAR_TRY(misled, is_misled(way, look));
      if (!misled && ways_[way].by_paths) kept.push_back(std::move(look));
    }
    now_.looks[way] = std::move(kept);
  }
  left_ = std::exchange(now_, Searched(ways_.size()));
  ahead_.clear();
  shelf_->clear(owner_);
  for (UnitWay& way : ways_) way.by_paths = false;
  fewest_.clear();
  begin_anew();
  AUTOPAR_RETURN_IF_ERROR(least_of_ways(in_flight, 0));
  return Ok{};
}

Result<UnitPoint> UnitMemory::least(std::int64_t in_flight, double price) {
  AUTOPAR_TRY(found, least_of_ways(in_flight, price));
  if (found.bound == kInfinity) return found;
  AUTOPAR_TRY(looked, look(found.way, in_flight, price));
  AUTOPAR_TRY(misled, is_misled(found.way, *looked));
  if (!misled) return found;
  AUTOPAR_RETURN_IF_ERROR(leave_paths(in_flight));
  return least_of_ways(in_flight, price);
}

// With its floor, below that bound; as many ways as there are: none is.
std::pair<std::size_t, Seconds> UnitMemory::lowest_way(const std::vector<char>& is_done,
                                                       Seconds below, std::int64_t in_flight,
                                                       double price) const {
  std::pair found(ways_.size(), below);
  for (std::size_t way = 0; way < ways_.size(); ++way) {
    if (is_done[way] != 0) continue;
    const Seconds floor = floor_of(way, in_flight, price);
    if (floor < found.second) found = {way, floor};
  }
  return found;
}

Result<UnitPoint> UnitMemory::least_of_ways(std::int64_t in_flight, double price) {
  std::vector<char> is_done(ways_.size());
  UnitPoint best;
  best.bound = kInfinity;
  // What is found of a way may be a floor of the others, so the lowest is found anew.
  for (std::size_t left = ways_.size(); left > 0; --left) {
    const auto [next, lowest] = lowest_way(is_done, best.bound, in_flight, price);
    if (next == ways_.size()) break;
    if (best.bound < kInfinity && is_stopped()) {
      best.bound = lowest;
      break;
    }
    is_done[next] = 1;
    AUTOPAR_RETURN_IF_ERROR(open(next));
    // Its bytes are known now.
    if (now_.has_unit[next] == 0 || floor_of(next, in_flight, price) >= best.bound) continue;
    AUTOPAR_RETURN_IF_ERROR(
        solve_two(next, lowest_way(is_done, best.bound, in_flight, price).first, in_flight, price));
    AUTOPAR_TRY(found, look(next, in_flight, price));
    if (found->point.bound < best.bound) best = found->point;
  }
  return best;
}

std::int64_t UnitMemory::looked_at_for(std::int64_t in_flight) const {
  std::optional<std::int64_t> fewest;
  for (const std::deque<Look>& looks : now_.looks) {
    for (const Look& look : looks) {
      if (look.price == 0 || look.in_flight < in_flight) continue;
      fewest = std::min(fewest.value_or(look.in_flight), look.in_flight);
    }
  }
  return fewest.value_or(in_flight);
}

// The first way on the mesh of that one.
std::size_t UnitMemory::mesh_number(std::size_t way) const {
  const auto first = std::find_if(ways_.begin(), ways_.end(), [&](const UnitWay& other) {
    return other.mesh == ways_[way].mesh;
  });
  return static_cast<std::size_t>(first - ways_.begin());
}

Result<std::vector<UnitPlan>> UnitMemory::plans() {
  std::vector<UnitPlan> plans;
  const auto add = [&](Searched& searched, bool is_of_left) -> Status {
    for (std::size_t way = 0; way < ways_.size(); ++way) {
      std::deque<Look>& looks = searched.looks[way];
      for (std::size_t l = 0; l < looks.size(); ++l) {
        Look& look = looks[l];
        const bool is_new =
            !look.choices.empty() &&
            std::none_of(looks.begin(), looks.begin() + static_cast<std::ptrdiff_t>(l),
                         [&](const Look& o) { return o.choices == look.choices; });
        if (!is_new) continue;
        AUTOPAR_RETURN_IF_ERROR(find_seconds(searched, way, look));
        plans.push_back(
            {*look.seconds, look.stored, look.kept, way, mesh_number(way), l, is_of_left});
      }
    }
    return Ok{};
  };
  AUTOPAR_RETURN_IF_ERROR(add(now_, false));
  AUTOPAR_RETURN_IF_ERROR(add(left_, true));
  return plans;
}

}  // namespace autopar
