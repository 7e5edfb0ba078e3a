// A model of an older opset as one of a newer one, where no op means another thing there.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// Up to opset 16, where ops learnt new types and attributes whose defaults are what they did
// before; of those that did not (RoiAlign), the attribute is set. A model that is that new is left
// alone, one too old for import, too. `warnings` is told. Errors name the op that differs.
Status raise_opset(onnx::ModelProto& model, std::int64_t least, std::vector<std::string>& warnings);

}  // namespace autopar
