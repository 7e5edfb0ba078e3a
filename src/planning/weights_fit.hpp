// Whether weights and optimizer states that somebody gives are those of a training step.
#pragma once

#include <string>

#include "autopar/given_weights.hpp"
#include "autopar/grad.hpp"

namespace autopar {

inline constexpr const char* kWeightsFrom = "--weights-from";

// `grad`, `search --train`: whether the file is for the step. `model`: of the step, for messages.
Status check_weights_from(const std::string& path, const TrainingStep& step,
                          const std::string& model);

void tell_missing_states(const GivenWeights& given);

}  // namespace autopar
