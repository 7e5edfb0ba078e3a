// Initializers that are no weights by what they hold or by who reads them: tables that an exporter
// has computed, such as those of rotary positions and causal masks.
//
//   why_computed(graph, uses, cos)    // "holds a cosine"-like words; "" for what may be a weight
//
// Whoever trains a model hardly means these, but they are floating-point initializers like any
// other. Only what no weight looks like is told: biases and scales have the same readers.
#pragma once

#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Why the value is no weight, in words that follow its name; empty: it may be one.
// - Every column (along the dimension before the last; of one dimension: along it) obeys
//   x[i+1] + x[i-1] = k x[i], as sines, cosines, powers and ramps do, and some column changes.
// - All elements are 0 or so negative that a softmax forgets them, or it is 1 on one side of the
//   diagonal and 0 on the other.
// - It holds one number in all elements, and ops only write into it.
// - It is as long as the batch of a data input, and has one slice for all samples.
// - A product with it is read by a Cos and a Sin: rotary frequencies. (The data need not be there.)
// - One element that the exporter has named val_N.
std::string why_computed(const Graph& graph, const std::vector<std::vector<Use>>& uses, ValueId id);

}  // namespace autopar
