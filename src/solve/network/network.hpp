// The working form of a Problem: what reductions, bounds and branching operate on, and how a
// solution of what is left becomes one of the whole.
//
// The value of a labelling is constant + node costs + edge tables; per row the uses must not exceed
// the capacity. Rows stand for times; what every labelling uses is taken off the capacity. All
// costs and uses are >= 0, so `constant` is a lower bound. With multipliers, the costs already
// include multiplier * use and the constant -multiplier * capacity.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "autopar/problem.hpp"
#include "solve/network/algebra.hpp"

namespace autopar::solver {

struct RowUse {  // of rows [begin, end)
  int begin = 0;
  int end = 0;
  int bytes = -1;  // node: vector per label; edge: core over the edge's classes
};

struct Node {
  int cost = -1;  // vector per label
  std::vector<int> edges = {};
  std::vector<RowUse> uses = {};
  bool gone = false;
};

struct Edge {
  int a = -1;
  int b = -1;
  Table table;
  std::vector<RowUse> uses = {};
  bool gone = false;
};

// The table from node's side: its labels are the rows.
struct Arc {
  int other = -1;
  Table table;
};

// What was done to a node, to be undone from the last to the first.
struct Step {
  enum class Kind {
    kRelabel,    // label l was `first[l]` before
    kEliminate,  // the best label follows from the neighbours
    kMerge,      // label l stands for first[l] of node and second[l] of `other`
  };
  Kind kind = Kind::kRelabel;
  int node = -1;
  int other = -1;
  Labels first = {}, second = {};
  int cost = -1;
  std::vector<Arc> arcs = {};
};

struct Network {
  Algebra algebra;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Step> steps;
  double constant = 0;
  bool impossible = false;  // no labelling at all, or none within the capacities
  Vector capacity;          // per row
  Vector multiplier;        // per row
  std::vector<int> row_time;

  // Where the nodes and labels come from.
  std::vector<int> origin;
  std::vector<Labels> origin_labels;

  int label_count(int n) const {
    return static_cast<int>(algebra.vector(nodes[static_cast<std::size_t>(n)].cost).size());
  }
  Node& node(int n) { return nodes[static_cast<std::size_t>(n)]; }
  const Node& node(int n) const { return nodes[static_cast<std::size_t>(n)]; }
  Edge& edge(int e) { return edges[static_cast<std::size_t>(e)]; }
  const Edge& edge(int e) const { return edges[static_cast<std::size_t>(e)]; }
  const Vector& cost(int n) const { return algebra.vector(node(n).cost); }
};

// Only these times can be the tightest: those at which something begins and before whose end
// nothing else begins (maximal sets of what is live). Ascending.
std::vector<int> maximal_times(const Problem& problem);
// With rows for the given times, ascending; without any, the problem has no memory limit.
std::unique_ptr<Network> build_network(const Problem& problem, const std::vector<int>& times);

// Both sides of an edge, seen from n; its cores are that of its cost and those of its uses.
int other_end(const Edge& edge, int n);
Table table_from(Network& net, const Edge& edge, int core, int n);
// An entry of one of the edge's cores.
double entry_of(const Network& net, const Edge& edge, int core, int label_a, int label_b);
double edge_value(const Network& net, const Edge& edge, int label_a, int label_b);

// What uses are worth by prices of the rows.
class PriceSums {
 public:
  explicit PriceSums(const Vector& prices) : before_(prices.size() + 1, 0.0) {
    for (std::size_t r = 0; r < prices.size(); ++r) before_[r + 1] = before_[r] + prices[r];
  }
  double of(int begin, int end) const { return before_[at(end)] - before_[at(begin)]; }
  double of(const RowUse& use) const { return of(use.begin, use.end); }

 private:
  Vector before_;  // sums of the prices before each row
};
// Adds what a node's uses are worth to the cost of its labels, so many times.
void add_worth(const Network& net, int n, const PriceSums& prices, double times, Vector& cost);

void add_edge(Network& net, Edge edge);
// The tables of the edge's cost and, in their order, of its uses: they get the same classes.
void set_tables(Network& net, Edge& edge, const std::vector<Table>& tables);
Table table_of(const Edge& edge, const RowUse& use);

// Changes that keep the optimum and note the step.
void keep_labels(Network& net, int n, const Labels& kept);
// The edge's cost moves to its ends, the edge goes.
void remove_edge(Network& net, int e);
// A node without uses (of its own or of its edges) and with at most two edges, or with one label.
void eliminate(Network& net, int n);
// Joins two nodes into the one with more edges; labels are those pairs that cost less than cutoff.
// There may be one edge between the two, not several.
void merge(Network& net, int one, int other, double cutoff);
// How many labels that would make.
double merged_labels(Network& net, int one, int other, double cutoff);
// One edge where there were several between the same nodes; true if anything changed.
bool join_parallel(Network& net, int n);
// Takes the least of a node's costs and of its uses from first_use on to the constant and the
// capacities.
void normalise(Network& net, int n, std::size_t first_use = 0);
// Calls visit(begin, end, bytes per label) for each stretch of rows in which a node uses the same.
// Source: sweep over the ends of the intervals; O(uses x intervals x labels).
template <class Visit>
void for_each_stretch(const Network& net, const Node& node, Visit visit) {
  std::vector<int> ends;
  for (const RowUse& use : node.uses) {
    ends.push_back(use.begin);
    ends.push_back(use.end);
  }
  sort_unique(ends);
  Vector sum;
  for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
    sum.assign(net.algebra.vector(node.cost).size(), 0.0);
    for (const RowUse& use : node.uses) {
      if (use.begin > ends[k] || use.end <= ends[k]) continue;
      const Vector& bytes = net.algebra.vector(use.bytes);
      for (std::size_t l = 0; l < bytes.size(); ++l) sum[l] += bytes[l];
    }
    visit(ends[k], ends[k + 1], sum);
  }
}
// Calls visit(uses, values of a use) for all nodes and edges that are left.
template <class Visit>
void for_each_owner(const Network& net, Visit visit) {
  for (const Node& node : net.nodes) {
    if (node.gone || node.uses.empty()) continue;
    visit(node.uses,
          [&](const RowUse& use) -> const Vector& { return net.algebra.vector(use.bytes); });
  }
  for (const Edge& edge : net.edges) {
    if (edge.gone || edge.uses.empty()) continue;
    visit(edge.uses,
          [&](const RowUse& use) -> const Vector& { return net.algebra.core(use.bytes).values; });
  }
}
// The uses of the same rows become one, so that labels can be compared use by use.
void separate_uses(Network& net, Node& node);
// The worst row of every stretch in which `uses` are above the capacity, at most so many, the worst
// first.
std::vector<int> overfull_rows(const Vector& uses, const Vector& capacity,
                               std::size_t most = SIZE_MAX);
// Drops rows that cannot be exceeded, or not without another; `impossible` if one must be.
void drop_slack_rows(Network& net);
// Leaves only these rows, ascending; what is used in others does not matter any more.
void keep_rows(Network& net, const std::vector<int>& rows);

// The nodes that are left, with those labels only: its origin are they and their labels.
std::unique_ptr<Network> restricted(const Network& net, const std::vector<Labels>& kept);

// Labels of the nodes that are left (others: anything) -> labels of the nodes that the network was
// built from, in their own numbering.
std::vector<int> lift(const Network& net, std::vector<int> labels);
// Frees what neither the edges that are left nor lift() need, and what is remembered: what is made
// after that shares no tables with what was there.
void forget_unused(Network& net);
// Frees what lift() does not need.
void forget_tables(Network& net);
// Value and row uses of labels, counted over the nodes that are left.
double value_of(const Network& net, const std::vector<int>& labels);
Vector uses_of(const Network& net, const std::vector<int>& labels);

}  // namespace autopar::solver
