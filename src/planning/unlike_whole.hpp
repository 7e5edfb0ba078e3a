// What is another one in a part of the batch than in the whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/step.hpp"

namespace autopar {

// Per value whether it depends on data that is cut.
std::vector<char> made_of_cut(const Graph& graph, const std::vector<MicroInput>& cut);

// An op of the forward pass by which a micro-batch is not that part of the batch: another one than
// in the whole model, one that reads a constant which is another one there (the number of samples,
// or of each sample), or one that makes something of each sample of what is of all together. Shapes
// and the like are other ones rightly; so is, where the results of parts are averaged (`averages`),
// what is read behind the samples' sum: their number. Nothing: there is none. Errors: of rules.
Result<std::optional<std::string>> op_unlike_whole(const Graph& whole, const Graph& part,
                                                   const std::vector<MicroInput>& cut,
                                                   std::size_t batch_dim, bool averages);

// An op of the forward pass by which what is made of all samples together is not what is made of
// parts of them, averaged or added up: such as a quotient of two sums, or the root of one. Nothing:
// there is none.
std::optional<std::string> op_not_of_parts(const Graph& whole, const Graph& part,
                                           const std::vector<MicroInput>& cut, bool averages);

}  // namespace autopar
