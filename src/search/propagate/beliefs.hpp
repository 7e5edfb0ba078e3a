// What is known about the values while ops are being decided: for every spec of a hub, a stored or
// an output spec the least redistribution that the decided ops around it need.
#pragma once

#include <map>

#include "autopar/search.hpp"

namespace autopar {

// The first of the smallest values; equal within 1e-12 of the larger counts as equal.
bool clearly_less(double a, double b);

// The nodes of values form a forest (stored - hub - output, and an updated parameter's next value -
// stored), between the nodes of ops, which are decided one by one.
class Beliefs {
 public:
  Beliefs(const Graph& graph, const MeshProblem& problem);

  // Per candidate of an undecided op. `now`: seconds of redistribution that it adds, to and from
  // what is decided, with the cheapest reduction of what it leaves partial. `ahead`: with what
  // undecided readers must pay at least.
  struct Prices {
    std::vector<double> now, ahead;
  };
  Prices prices(OpId op) const;
  void decide(OpId op, int choice);
  bool decided(OpId op) const;
  // -1: undecided.
  int choice(OpId op) const;

  // Chooses all value nodes with the least redistribution; all choices of the Problem.
  // Precondition: all ops are decided.
  std::vector<int> complete();

 private:
  struct Incident {
    int edge = -1;
    int other = -1;
    bool is_from = false;  // this node is the edge's `from`
  };
  bool is_op(int node) const;
  const CostTable& table_of(const Incident& incident) const;
  double price(const Incident& incident, int own, int other) const;
  std::size_t choice_count(int node) const;
  std::vector<double> belief(int node, int without) const;
  void add_op_end(const Incident& incident, Prices& prices) const;
  std::vector<double> added_to(const Incident& incident, const std::vector<double>& have,
                               std::size_t candidates) const;
  void add_value_end(const Incident& incident, Prices& prices) const;
  bool reads_partial(int op_node, int from, int choice) const;
  bool leaves_partial(int from, int op_node, int choice) const;
  void note_readers();
  const std::vector<double>& least_of(int edge);
  void choose(int node, int parent);

  const Graph& graph_;
  const MeshProblem& mesh_problem_;
  const Problem& problem_;
  std::vector<std::vector<Incident>> incident_;        // per node
  std::vector<int> choices_;                           // per node; -1: undecided
  std::vector<std::vector<double>> settled_;           // per value node: what decided ops pay
  std::vector<ValueId> value_of_node_;                 // per value node
  std::map<int, std::vector<double>> least_of_table_;  // what a reader pays at least, by row
  std::vector<std::vector<double>> least_of_hub_;      // per hub node, the largest of its readers
  std::vector<int> open_readers_;                      // per hub node: undecided ops
};

}  // namespace autopar
