// A step of several passes: what each adds to, and what the update reads in place of the pass's own
// gradients.
//
//   new.acc.<parameter> = acc.<parameter> + gradient      every pass, in float32
//   new.acc.loss, new.acc.count           of a loss that is averaged over what counts
//
// Accumulators are inputs that are zero before the first pass.
#pragma once

#include "autopar/grad.hpp"
#include "grad/loss.hpp"
#include "grad/optimizer.hpp"

namespace autopar {

class Accumulators {
 public:
  Accumulators(GraphBuilder& to, Graph& graph) : to_(to), graph_(graph) {}

  // Appends to what the pass does; the gradients are then those of all passes together, times the
  // scale of the loss and the number that unscale() divides by.
  // Errors (kInput): a name of an accumulator that the model has.
  Status add(const TrainingOptions& options, std::vector<Trained>& trained, Loss& loss);
  // In the update: the loss where it is made of sums, and what every gradient is multiplied by.
  void finish(const TrainingOptions& options, Loss& loss, Scaler& scaler);

  struct Sum {
    ValueId before, next;  // acc.<name>, new.acc.<name>
    std::string name;      // "acc.<name>"
  };
  const std::vector<Sum>& sums() const { return sums_; }

 private:
  Result<ValueId> sum(const std::string& name, ValueId addend);

  GraphBuilder& to_;
  Graph& graph_;
  std::vector<Sum> sums_;
};

}  // namespace autopar
