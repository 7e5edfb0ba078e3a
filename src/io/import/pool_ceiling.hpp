// Pools with ceil_mode, whose sizes ONNX's inference tells wrong before opset 22: a last window
// that begins in the padding is none, for runtimes and for newer opsets.
#pragma once

#include <onnx/onnx_pb.h>

#include "autopar/ir.hpp"
#include "autopar/support.hpp"

namespace autopar {

// Writes a pool that has such windows without ceil_mode. Errors (kInput): the average over counted
// padding of a pool that has others too, which ceil_mode alone can say. `image` is the input's
// shape.
Status state_ceiling(onnx::NodeProto& node, const Shape& image);

}  // namespace autopar
