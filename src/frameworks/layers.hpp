// The layers of a model that repeats them, found in the order of its forward ops.
#pragma once

#include <set>
#include <vector>

#include "autopar/frameworks.hpp"

namespace autopar {

// A product with a weight.
bool is_weight_product(const SaidOp& op);
// The factor of the experts in a product of a group of weights with as many parts of the tokens,
// such as [batch, experts, tokens, .] x [experts, ., .]; empty: it is none, as far as numbers of
// dimensions tell.
std::string expert_factor(const SaidOp& op);
// How many experts groups of weights have: weights of three dimensions.
std::set<std::int64_t> expert_counts(const SaidPlan& plan);
// Products of three dimensions each are those of experts only where nothing else can be: there are
// weights of three dimensions, and none is read as above.
bool has_plain_experts(const SaidPlan& plan);

// Ops [begin, begin + period * count) of `forward` are `count` times the same.
struct Layers {
  // Indices into the ops of the plan: products, normalisations and the like of the forward pass.
  // What is between them, such as what counts tokens for the loss, may stand in any stage.
  std::vector<std::size_t> forward;
  std::size_t begin = 0, period = 0, count = 0;
  std::size_t products = 0;  // per layer
};
// The period of which most ops have one like them behind them, by type and numbers of dimensions;
// `count` 0: no two layers. O(forward ops^2).
Layers layers_of(const SaidPlan& plan);

// What of them the chunks hold; empty: one chunk, or no layers.
std::vector<ChunkLayers> chunk_layers(const SaidPlan& plan, const Layers& layers);

}  // namespace autopar
