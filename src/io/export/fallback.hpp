// Bodies for the ops of ai.autopar, so that any runtime loads a plan.
#pragma once

#include <onnx/onnx_pb.h>

namespace autopar {

// Model-local functions for the ops of ai.autopar that the model has: what each gives where every
// rank of its group holds what this one does and the rank is the first of its group (a reduction
// gives its input). So shapes are right everywhere, values only where groups have one rank. A
// runtime with kernels for the ops takes those. Adds metadata_props that say it.
void add_fallback_functions(onnx::ModelProto& model);

}  // namespace autopar
