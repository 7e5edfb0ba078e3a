// What write_model writes, in memory.
#pragma once

#include "io/export/model_proto.hpp"

namespace autopar {

// Takes the graph out of `model`. Errors start with `where`.
Result<std::string> model_bytes(LeanModel& model, const std::string& where);

}  // namespace autopar
