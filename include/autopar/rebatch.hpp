// A model whose exporter wrote the batch into its constants, for another batch.
//
//   Result<Rebatched> other = rebatch(graph, rules, 0, 16);   // of dimension 0 of the data inputs
//
// The batch is followed from the data inputs through the rules of the ops: a dimension that an op
// runs over together with the batch is of the batch. Where the target of a Reshape, an Expand or a
// Resize states such a dimension, it is stated anew; where a constant, or a weight that is not
// trained, is as long as the batch and repeats one slice, it gets as many of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autopar/strategy.hpp"

namespace autopar {

struct Rebatched {
  Graph graph;
  std::vector<std::string> restated;  // ops one of whose constants says the batch
};

// The data inputs with more dimensions than `batch_dim` all have one batch there. Errors (kInput)
// name the op: a constant along the batch whose slices differ, a weight along it that `is_frozen`
// (by its name) does not know, an extent that does not divide, a dimension inside which the batch
// lies. What the rules do not show is for shape inference to find: the graph's shapes are as they
// would be.
Result<Rebatched> rebatch(Graph graph, const GraphRules& rules, std::size_t batch_dim,
                          std::int64_t batch,
                          std::function<bool(const std::string&)> is_frozen = {});

// An op whose constant says the batch of `own`, the model on the batch of its file, and says the
// same in `other`, the model on another batch, where shape inference found nothing wrong with it. A
// Reshape: [4,-1,8] for [4,6,8] makes [4,12,8] of [8,6,8], and samples lie among the rows of
// others. Or, where the other batch is one sample, what repeats it: an Expand to [4,6,8] does so
// with [1,6,8]. Tells "op 'NAME' (TYPE)".
Result<std::optional<std::string>> op_of_own_batch(const Graph& own, const Graph& other,
                                                   std::size_t batch_dim);

// The first op of the forward pass by which one sample's values depend on another's: statistics of
// the batch that its samples are compared with, sorting or counting along it; also an op that does
// not show. Passes over parts of the batch then compute something else than one over the whole.
// Sums over the batch that no sample reads again, as of a loss, do not count.
std::optional<std::string> batch_mixing_op(const Graph& graph, const GraphRules& rules,
                                           std::size_t batch_dim);

}  // namespace autopar
