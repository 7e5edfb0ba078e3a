// --zero: how parameters, gradient accumulators and optimizer states are stored (Rajbhandari,
// Rasley, Ruwase, He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020), over all axes of a mesh, not one of data alone:
//
//          parameters that passes read   accumulators          masters and optimizer states
//   off    as the passes read them       like the parameters   like the parameters
//   1      as the passes read them       like the parameters   in as many parts as possible
//   2      as the passes read them       in many parts         in many parts
//   3      in many parts                 in many parts         in many parts
#pragma once

#include <optional>

#include "autopar/import.hpp"
#include "autopar/search.hpp"

namespace autopar {

enum class Zero { kAuto, kOff, kStates, kGradients, kParameters };
std::optional<Zero> parse_zero(const std::string& text);  // "auto", "off", "1", "2", "3"
std::optional<int> level_of(Zero zero);                   // 0 to 3; nothing: kAuto

// Errors (kInput): the model's file does not say what its inputs are, as that of a training step
// does.
Result<std::map<ValueId, StoredRule>> stored_rules(Zero zero, const ImportedModel& model);

}  // namespace autopar
