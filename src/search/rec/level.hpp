// One level of the double recursion as numbers. A level cuts the machine along one axis; each op
// has a few choices (which of its factors the axis splits, or none), and every value has a role on
// that axis: whole, a partial sum, or split along one of its dimensions. A value's producer leaves
// it in one role, its hub has one, each reader needs one; the prices between roles make a star.
//
//   LevelProblem p;
//   int s = p.add_star({0, 0, 0});                            // a value with three roles
//   int c = p.add_cost({1.0, 2.0}), t = p.add_prices(table);  // two choices; 2 x 3 prices
//   p.add_node(c, 1.0); p.add_port(s, t, true);
//   std::vector<int> choice = decide(p, {});
#pragma once

#include <vector>

namespace autopar::rec {

using Row = std::vector<double>;  // per role of one value, or per choice of one node

// Stands for a price that is infinite: dearer than anything, and still a number to calculate with.
inline constexpr double kNever = 1e18;
// Stands for a role that a hub must not have.
inline constexpr double kForbidden = 1e30;

// Rows over roles have an even length; a role too many is forbidden.
inline std::size_t padded(std::size_t roles) { return (roles + 1) / 2 * 2; }

// Per choice of a node and role of a value's hub: what it takes to reach the hub from what the node
// leaves, or from the hub what the node needs. At most kNever.
struct PortPrices {
  std::size_t roles = 0;       // even
  std::vector<double> values;  // choices x roles

  PortPrices(std::size_t choices, std::size_t role_count)
      : roles(padded(role_count)), values(choices * padded(role_count), 0.0) {}
  double* row(std::size_t choice) { return values.data() + choice * roles; }
  const double* row(std::size_t choice) const { return values.data() + choice * roles; }
};

struct LevelPort {
  int star = -1;
  int prices = -1;        // in LevelProblem::prices
  bool produces = false;  // the node makes the value, else it reads it
};
struct LevelNode {
  int cost = -1;        // in LevelProblem::costs
  double weight = 0;    // heavy nodes decide first
  int first_port = -1;  // its ports are those up to the next node's
};

// Nodes are in the order of the graph. Costs and prices are shared by nodes that are alike.
struct LevelProblem {
  std::vector<LevelNode> nodes;
  std::vector<LevelPort> ports;
  std::vector<Row> costs;  // per choice, the preferred one of equals first; at most kNever
  std::vector<PortPrices> prices;
  std::vector<int> first_role;  // per star, in `base`, and the end
  // What is fixed: where a source lies, how an output leaves; kForbidden: not this role.
  Row base;

  int add_star(const Row& star_base);
  int add_cost(Row cost);
  int add_prices(PortPrices table);
  int add_node(int cost, double weight);
  void add_port(int star, int table, bool produces);  // of the last node

  std::size_t star_count() const { return first_role.empty() ? 0 : first_role.size() - 1; }
  std::size_t roles(int star) const {
    const auto s = static_cast<std::size_t>(star);
    return static_cast<std::size_t>(first_role[s + 1] - first_role[s]);
  }
  std::size_t choices(std::size_t node) const {
    return costs[static_cast<std::size_t>(nodes[node].cost)].size();
  }
  std::size_t first_port(std::size_t node) const {
    return node < nodes.size() ? static_cast<std::size_t>(nodes[node].first_port) : ports.size();
  }
};

// Nodes first learn from their neighbours what each choice would cost further away (`passes` of
// messages forth and back along the graph, TRW-S). Then one pass in order of weight, as in SAPP:
// each node takes what is cheapest for itself and for the values around it, given the neighbours
// that have decided and the messages of the others; and the same in the order of the graph; the
// cheaper of the two stays. Last, at most `sweeps` passes in which nodes reconsider, all
// neighbours known; no cost rises. O((passes + sweeps) * sum over ports of choices * roles).
// Deterministic: of choices that cost the same (to one part in 1e9) the first wins.
// Source of the messages: Kolmogorov, "Convergent tree-reweighted message passing for energy
// minimization", PAMI 2006.
struct DecideOptions {
  int passes = 6;
  int sweeps = 4;
};
std::vector<int> decide(const LevelProblem& problem, const DecideOptions& options);
// Costs of all nodes and stars for given choices.
double level_cost(const LevelProblem& problem, const std::vector<int>& choices);

}  // namespace autopar::rec
