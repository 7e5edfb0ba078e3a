// Which seed an op follows.
#pragma once

#include <map>

#include "search/propagate/propagate.hpp"

namespace autopar {

class Origins {
 public:
  Origins(const Graph& graph, const MeshProblem& problem, const Seeds& seeds);

  // The seed of the first thing with which the op agrees on a tensor, else of the first one at all,
  // else kFilled. In this order: the pin of the op itself; per input its producer, its pinned hub,
  // its layout, the op that was first to read it; per output its readers, its pinned hub or output,
  // the op that was first to read the input that it updates.
  int follow(OpId op, int choice) const;
  // From now on the op is decided.
  void decide(OpId op, int choice, int origin);

  // The op that was the first to read (or update) a stored value; invalid: none.
  OpId first_at(ValueId value) const { return first_at_[value.index()]; }
  // The op that makes the next value of an input; invalid: none.
  OpId updater_of(ValueId value) const;

 private:
  struct Vote;
  void vote_hub(ValueId value, const Spec& spec, Vote& vote) const;
  void vote_input(OpId op, std::size_t port, const Spec& spec, Vote& vote) const;
  void vote_output(OpId op, std::size_t port, const Spec& spec, Vote& vote) const;
  void vote_stored(ValueId value, const Spec& spec, Vote& vote) const;
  void vote_op(OpId op, ValueId value, bool reads, const Spec& spec, Vote& vote) const;
  ValueId updated_by(ValueId output) const;

  const Graph& graph_;
  const MeshProblem& problem_;
  const Seeds& seeds_;
  std::vector<std::vector<Use>> uses_;
  std::vector<int> choice_, origin_;  // per op; choice -1: undecided
  std::vector<OpId> first_at_;        // per value
  std::map<int, ValueId> stored_at_;  // by node
  std::map<ValueId, OpId> updater_;
};

}  // namespace autopar
