#include "cli/unit_memory.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>

#include "autopar/report.hpp"
#include "autopar/strategy.hpp"
#include "cli/pipeline_tuning.hpp"

namespace autopar::cli {

namespace {

double at(const std::vector<double>& bytes, int choice) {
  return bytes.empty() ? 0 : bytes[static_cast<std::size_t>(choice)];
}

}  // namespace

// What is in use of a problem's memory between the forward and the backward pass.
class UnitMemory::HeldBytes {
 public:
  HeldBytes(const Graph& graph, const std::set<std::string>& own, const MeshProblem& problem)
      : problem_(problem) {
    const auto turn = std::find_if(graph.ops.begin(), graph.ops.end(),
                                   [](const Op& op) { return op.phase != Phase::kForward; });
    turn_ = static_cast<int>(turn - graph.ops.begin());
    const auto nodes = problem.problem.nodes.size();
    stored.resize(nodes);
    kept.resize(nodes);
    holder_of_.resize(nodes);
    std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());

    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      const Value& value = graph.values[v];
      if (outputs.count(id) != 0) {
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

UnitMemory::UnitMemory(const Graph& unit, std::set<std::string> own, std::vector<UnitWay> ways,
                       Problems problems)
    : graph_(unit),
      own_(std::move(own)),
      ways_(std::move(ways)),
      problems_(std::move(problems)),
      units_(ways_.size()),
      is_open_(ways_.size()),
      looks_(ways_.size()) {}

Status UnitMemory::open(std::size_t way) {
  if (is_open_[way] != 0) return Ok{};
  is_open_[way] = 1;
  Graph graph = graph_;
  AUTOPAR_TRY(problem, problems_(graph, ways_[way]));
  if (!problem) return Ok{};
  HeldBytes held(graph, own_, *problem);
  Unit unit;
  unit.stored = std::move(held.stored);
  unit.kept = std::move(held.kept);
  unit.edges = std::move(held.edges);
  unit.graph = std::move(graph);
  unit.built = std::move(*problem);
  Problem& bare = unit.built.problem;
  for (ProblemNode& node : bare.nodes) node.uses.clear();
  for (ProblemEdge& edge : bare.edges) edge.uses.clear();
  bare.use_limit = kInfinity;
  units_[way] = std::move(unit);
  return Ok{};
}

// By what is known of it with fewer in flight, or a lower price.
Seconds UnitMemory::floor_of(std::size_t way, std::int64_t in_flight, double price) const {
  Seconds floor = ways_[way].floor;
  for (const Look& look : looks_[way]) {
    if (look.in_flight <= in_flight && look.price <= price) {
      floor = std::max(floor, look.point.bound);
    }
  }
  return floor;
}

const UnitMemory::Look& UnitMemory::look(std::size_t way, std::int64_t in_flight, double price) {
  for (const Look& look : looks_[way]) {
    if (look.in_flight == in_flight && look.price == price) return look;
  }
  Unit& unit = *units_[way];
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
  const Solution solution = solve_dp(priced, options);
  UnitPoint point{solution.lower_bound, solution.cost, 0, way};
  for (std::size_t n = 0; n < solution.choices.size(); ++n) {
    point.bytes += bytes_of(n, solution.choices[n]);
  }
  for (const EdgeBytes& edge : unit.edges) {
    if (solution.choices.empty()) break;
    point.bytes += (edge.is_stored ? 1 : flying) *
                   edge.bytes.at(solution.choices[static_cast<std::size_t>(edge.from)],
                                 solution.choices[static_cast<std::size_t>(edge.to)]);
  }
  point.cost -= price * point.bytes;
  looks_[way].push_back({in_flight, price, point, solution.choices});
  spdlog::debug("unit: {} in flight, mesh {}, recompute {}, {} per GiB: no less than {}; {}, {}",
                in_flight, ways_[way].mesh, name_of(ways_[way].recompute),
                format_seconds(price * (1 << 30)), format_seconds(point.bound),
                format_seconds(point.cost), format_bytes(point.bytes));
  return looks_[way].back();
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
  if (!units_[way]) return std::shared_ptr<const UnitParts>();
  const Unit& unit = *units_[way];
  const Look& found = look(way, in_flight, price);
  if (found.choices.empty()) return std::shared_ptr<const UnitParts>();
  auto parts = std::make_shared<UnitParts>();
  const auto choice_of = [&](int node) {
    return static_cast<std::size_t>(found.choices[static_cast<std::size_t>(node)]);
  };
  for (std::size_t o = 0; o < unit.graph.ops.size(); ++o) {
    parts->ops[unit.graph.ops[o].name] =
        unit.built.choices_of_op[o]->assignments[choice_of(unit.built.node_of_op[o])];
  }
  const auto spec_of = [&](int node) -> std::optional<Spec> {
    if (node < 0) return {};
    return unit.built.specs_of_node[static_cast<std::size_t>(node)][choice_of(node)];
  };
  for (std::size_t v = 0; v < unit.graph.values.size(); ++v) {
    parts->values[unit.graph.values[v].name] = {spec_of(unit.built.source_node[v]),
                                                spec_of(unit.built.hub_node[v]),
                                                spec_of(unit.built.output_node[v])};
  }
  return std::shared_ptr<const UnitParts>(std::move(parts));
}

Result<UnitPoint> UnitMemory::least(std::int64_t in_flight, double price) {
  std::vector<std::size_t> order(ways_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return floor_of(a, in_flight, price) < floor_of(b, in_flight, price);
  });
  UnitPoint best;
  best.bound = kInfinity;
  for (const std::size_t way : order) {
    if (floor_of(way, in_flight, price) >= best.bound) continue;
    AUTOPAR_RETURN_IF_ERROR(open(way));
    if (!units_[way]) continue;
    const UnitPoint found = look(way, in_flight, price).point;
    if (found.bound < best.bound) best = found;
  }
  return best;
}

Result<RoomPrice> UnitMemory::price_of_room(std::int64_t in_flight, double units, double room) {
  const auto of = [&](const UnitPoint& point, double price) {
    return RoomPrice{price, units * point.bound - price * room, point.way, price};
  };
  AUTOPAR_TRY(below, least(in_flight, 0));
  RoomPrice best = of(below, 0);
  if (units * below.bytes <= room) return best;
  double price = tuning::units::kFirstPrice * below.bound / below.bytes;
  std::optional<UnitPoint> above;
  double low = 0;
  const auto take = [&](const UnitPoint& found, double at_price, bool is_nearest) {
    const RoomPrice next = of(found, at_price);
    if (next.bound > best.bound)
      std::tie(best.price, best.bound) = std::tie(next.price, next.bound);
    if (is_nearest) std::tie(best.way, best.fitting) = std::tie(next.way, next.fitting);
  };
  for (int i = 0; i < tuning::units::kPrices && !above; ++i, price *= tuning::units::kDearer) {
    AUTOPAR_TRY(found, least(in_flight, price));
    take(found, price, true);
    if (units * found.bytes <= room) {
      above = found;
    } else {
      std::tie(below, low) = std::tuple(found, price);
    }
  }
  // Nothing fits, as far as units tell: the bound is what the highest price says.
  if (!above) return best;
  for (int round = 0; round < tuning::units::kRounds; ++round) {
    const double drop = below.bytes - above->bytes;
    const Seconds gain = above->cost - below.cost;
    const double next_price = drop > 0 ? gain / drop : 0;
    if (next_price <= low) break;
    const Seconds before = best.bound;
    AUTOPAR_TRY(found, least(in_flight, next_price));
    const bool fits = units * found.bytes <= room;
    take(found, next_price, fits);
    if (fits) {
      above = found;
    } else {
      std::tie(below, low) = std::tuple(found, next_price);
    }
    if (best.bound <= before * (1 + tuning::units::kNoNews)) break;
  }
  return best;
}

Result<std::vector<std::string>> UnitMemory::meshes_near(std::int64_t in_flight,
                                                         const RoomPrice& found) {
  AUTOPAR_TRY(best, least(in_flight, found.price));
  std::vector<std::pair<Seconds, std::string>> near;
  for (std::size_t way = 0; way < ways_.size(); ++way) {
    if (ways_[way].recompute != ways_[found.way].recompute || way == found.way) continue;
    const Seconds floor = floor_of(way, in_flight, found.price);
    if (is_open_[way] != 0 && floor <= best.bound * (1 + tuning::units::kNear)) {
      near.emplace_back(floor, ways_[way].mesh);
    }
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> meshes = {ways_[found.way].mesh};
  for (const auto& [floor, mesh] : near) {
    if (meshes.size() < tuning::chunks::kMeshesOfOthers) meshes.push_back(mesh);
  }
  return meshes;
}

}  // namespace autopar::cli
