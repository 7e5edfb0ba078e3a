// In which type a forward graph calculates.
//
// Mixed precision follows the lists of automatic mixed precision (Micikevicius et al., "Mixed
// precision training", 2018; PyTorch's torch.amp): contractions read 16-bit numbers; what loses too
// much in them (sums, powers, exponentials, losses) reads float32; normalisations, Softmax and
// pooling keep the type of their input, since they sum in float32 inside; everything else takes the
// widest type of its inputs. Constants, and what depends on no
// parameter and no floating-point data (positions, masks), take the type of what they meet.
#pragma once

#include <map>

#include "autopar/grad.hpp"

namespace autopar {

// The 16-bit copies that contractions read, by the parameter.
using Copies = std::map<ValueId, ValueId>;

// Ops that ONNX lacks for bfloat16 calculate in float32, under fp16 too: it is the same graph.
// Rewrites all ops of the graph, types and casts, for `precision`. Copies of parameters are graph
// inputs that are added. Errors (kInput): an op whose type is in an attribute that is not known.
Result<Copies> set_precision(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                             const std::vector<ValueId>& parameters,
                             std::vector<std::string>& warnings);

}  // namespace autopar
