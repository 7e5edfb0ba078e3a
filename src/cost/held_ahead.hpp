// What a device holds beside the account of a plan (MemoryPeak) while its passes go on: stored
// weights that are fetched before the op that reads them, and gradients that wait for their link.
// There is room for what the plan leaves of its limit, or of its peak, at that time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "autopar/cost.hpp"
#include "cost/critical_path.hpp"

namespace autopar {

// One pass after the other of the same ops; of interleaved passes each has its own.
class HeldAhead {
 public:
  explicit HeldAhead(const StrategyCost& cost)
      : cost_(&cost), most_(cost.most_held()), coming_(cost.held.size(), 0) {}

  // Else nothing need be begun: there is room for all.
  bool is_limited() const { return cost_->limit > 0; }
  void begin_pass();
  // Compute comes to it. Gradients of `waiting` bytes wait for their links then.
  void begin_op(OpId op, Seconds now, CriticalPath::Part part, Bytes waiting);
  // By how much fetched weights and so many bytes are more than there is room for while it runs.
  Bytes too_much(OpId op, Bytes waiting) const;

  struct Begin {
    Seconds at;
    CriticalPath::Part part;  // which ends then
  };
  // When a weight of so many bytes that the op reads which was begun last can be fetched, if it
  // could be at `wanted`: not before there is room for it until that op.
  Begin earliest(Bytes bytes, const Begin& wanted) const;
  // The same before compute comes to its reader; nothing: there is no room until then.
  std::optional<Begin> earliest_for(OpId reader, Bytes bytes, const Begin& wanted) const;
  // It is there from `begin` on, until the op which was begun last, or until `reader`.
  void hold(Bytes bytes, Seconds begin);
  void hold_for(OpId reader, Bytes bytes, Seconds begin);

 private:
  struct Run {
    OpId op;
    Seconds begin;
    CriticalPath::Part part;
    Bytes left;  // of the room while it runs
  };
  Bytes room(std::size_t op) const { return most_ - cost_->held[op]; }

  const StrategyCost* cost_;
  Bytes most_;
  std::vector<Run> runs_;         // of this pass and the one before
  std::size_t of_this_pass_ = 0;  // how many of them, the last
  std::vector<Bytes> coming_;     // per op: what will be held while it runs in this pass
};

}  // namespace autopar
