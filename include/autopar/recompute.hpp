// Recomputation: ops of the forward pass are repeated in the backward pass, so that what they made
// need not be kept between (Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory
// Cost", 2016). Here it is a rewrite of the graph before anything is searched: the repeated ops are
// ordinary ops, named "<op>.again", with assignments of their own.
//
//   y = Exp(x); z = MatMul(y, w); ... dw = MatMul(Transpose(y), dz)      y kept for dw
//   y = Exp(x); z = MatMul(y, w); ... y' = Exp(x); dw = MatMul(Transpose(y'), dz)     x kept
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autopar/ops.hpp"

namespace autopar {

enum class Recompute {
  kNone,
  kCheap,     // ops without contractions: elementwise, softmax, normalisations, movements
  kProducts,  // also products of activations with each other: attention scores and what follows
  kFull,      // all but look-ups of weights and what is random, from checkpoints on
};
const char* name_of(Recompute recompute);  // "none", "cheap", "products", "full"
std::optional<Recompute> parse_recompute(const std::string& name);

// How much the parts of a graph repeat: each level from an op on, by its place in the graph, until
// the next. The first begins with the first op.
//
//   RecomputeLevels(Recompute::kCheap)                                      // alike everywhere
//   RecomputeLevels({{0, Recompute::kFull}, {120, Recompute::kCheap}})      // two parts
class RecomputeLevels {
 public:
  struct From {
    std::size_t op = 0;
    Recompute level = Recompute::kNone;
    friend auto operator<=>(const From&, const From&) = default;
  };
  RecomputeLevels(Recompute all = Recompute::kNone) : from_{{0, all}} {}
  // Precondition: rising, the first 0. Neighbours that are alike become one.
  explicit RecomputeLevels(const std::vector<From>& from);

  const std::vector<From>& from() const { return from_; }
  bool are_mixed() const { return from_.size() > 1; }
  bool repeat_nothing() const { return *this == RecomputeLevels(); }
  Recompute of(std::size_t op) const;
  friend auto operator<=>(const RecomputeLevels&, const RecomputeLevels&) = default;

 private:
  std::vector<From> from_;
};
inline constexpr const char* kMixedLevels = "mixed";
const char* name_of(const RecomputeLevels& levels);  // that of the level, or kMixedLevels

struct Recomputed {
  Graph graph;
  std::size_t repeated = 0;  // ops repeated or moved; 0: nothing to gain, `graph` as it was
  Bytes kept = 0;            // activations alive at the turn, whole model, before
  Bytes kept_after = 0;      // and after
  std::map<std::string, std::string> op_of_repeat = {};     // names, to that of what it repeats
  std::map<std::string, std::string> value_of_repeat = {};  // the same of what they make
};
// The turn from the forward to the backward pass is where most bytes of activations are alive; with
// several micro-batches in flight (Graph::in_flight) it is the end of the forward pass. What
// is kept over the turn is a minimum cut between what is there anyway (inputs, parameters and what
// only they decide) and the readers after the turn, with the bytes of a value as its weight; of the
// minimum cuts the one that repeats least (Jain et al., "Checkmate", 2020, states the problem;
// torch's partitioner of ahead-of-time graphs solves it by the same cut). Look-ups of
// weights and random ops are never repeated, products with parameters only by kFull, which keeps
// checkpoints between segments of the forward pass. A repeated op stands just before its first
// reader. Deterministic. Time: one maximum flow (Dinic), nearly linear on such graphs.
// `checkpoints`: patterns of names of values that kFull keeps between segments; empty: chosen, so
// that what is kept and what the largest segment makes take the least together. Where parts repeat
// differently a checkpoint is between what kFull repeats and what follows.
Recomputed recompute(const Graph& graph, const RecomputeLevels& levels,
                     const std::vector<std::string>& checkpoints = {});

// Repeats these ops of a training step's forward pass, whatever that gains: ops of the backward
// pass read what a copy made. A copy reads copies of what other ops of these make, else what was
// kept. One that only the backward pass reads moves there. Errors (kInput), which begin with "op
// '...'": ops that cannot be repeated, with the reason.
Result<Recomputed> repeat_these(const Graph& graph, const std::set<std::string>& ops);

}  // namespace autopar
