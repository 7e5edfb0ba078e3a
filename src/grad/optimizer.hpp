// The update of parameters: one small graph per parameter.
//
//   wd p is added to g, but for adamw
//   sgd:      p' = p - lr g
//   momentum: m' = mu m + g; p' = p - lr m'
//   adam:     as adamw without decay
//   adamw:    m' = b1 m + (1 - b1) g; v' = b2 v + (1 - b2) g^2; t = step + 1
//             p' = p (1 - lr wd) - lr (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)
// (Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay", 2019.) All in
// float32, whatever the parameter is stored in.
#pragma once

#include "autopar/grad.hpp"

namespace autopar {

struct Trained {
  ValueId parameter;
  ValueId grad;       // by the parameter itself; invalid: it is read as its copy alone
  ValueId copy;       // in 16 bits, which the passes read; invalid: none
  ValueId copy_grad;  // by the copy
};
// Loss scaling (Micikevicius et al., 2018): inputs that are there before the loss is.
struct Scaler {
  ValueId scale, good_steps;  // float32, rank 0; invalid: none
  // What the sums of several passes are multiplied by, the scale among it; invalid: one pass, or 1.
  ValueId factor = {};
};
inline constexpr double kGoodStepsToGrow = 2000;
// What an update leaves: the next values, in the order of the facts' parameters and states.
struct Updated {
  std::vector<ValueId> states;       // inputs that were added
  std::vector<ValueId> next;         // of parameters, then of states but for the learning rate
  std::vector<std::string> next_of;  // whose next value it is
};
// Errors (kInput): a name of a state that the model has.
Result<Updated> add_update(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                           const Scaler& scaler, std::vector<Trained> trained);
// Hands a gradient to the update, by an Identity before which it is added up across devices, in
// `reduce` (nothing: in its own type).
ValueId summed_grad(GraphBuilder& to, ValueId grad, std::optional<DType> reduce);
// The gradient in float32, of the master and its copy together, and not scaled any more where a
// scaler is given.
// `reduce`: the type in which it is added up across devices, here or before; nothing: any.
ValueId whole_grad(GraphBuilder& to, const Trained& one, const Scaler& scaler,
                   std::optional<DType> reduce);

}  // namespace autopar
