// What all that look for kernels share: how the values of the graph are used, which ops are views,
// and what is grouped so far.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "autopar/kernels.hpp"
#include "autopar/strategy.hpp"

namespace autopar {

struct Grouping {
  // As yet each op by itself; only views, and what writes in place, are found.
  Grouping(const Graph& graph, const Profile& profile, const std::string& updates);

  const Graph& graph;
  const Profile& profile;
  std::vector<std::vector<Use>> uses;  // per value
  std::vector<char> is_output;         // per value
  std::vector<char> views;             // per op
  std::vector<int> group;              // per op one of its kernel; the first stands for itself
  bool any_is_free = false;            // some op moves less than it says, also under ideal prices
  // Per value the ops whose kernels make again what is made of it: it is there until the last of
  // them.
  std::map<ValueId, std::vector<std::size_t>> made_again;
  Kernels found;

  const Op& op(std::size_t o) const { return graph.ops[o]; }

  // What a value is a view of.
  ValueId base(ValueId id) const;
  // All that read the value, also through views. `leaves`: it is an output, also through views.
  struct ReadBy {
    std::vector<std::size_t> ops;
    bool leaves = false;
  };
  ReadBy read_by(ValueId id) const;

  int root(std::size_t o);
  // The earlier op stands for both.
  void join(std::size_t a, std::size_t b);
  // Whether an op may share its kernel with others.
  bool is_grouped(std::size_t o) const;
  // The group that an op is in, or itself.
  int group_of(std::size_t o);

  char& held_in_pass(ValueId id);
};

// Sums and extrema over the last dimension, and what is made of rows by such sums.
bool is_over_rows(const Graph& graph, const Op& op);

}  // namespace autopar
