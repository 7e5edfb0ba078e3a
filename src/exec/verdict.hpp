// Whether the ranks' outputs are the expected ones.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/compare.hpp"
#include "exec/tensors.hpp"

namespace autopar {

// The whole expected tensors, by their source.
struct Expected {
  std::map<std::string, Tensor> data;   // RunRequest::expected
  std::map<std::string, Tensor> model;  // of the unsharded model; empty where it was not run
};

// One rank's slice of one output against one source.
struct RankDifference {
  std::string problem;  // of another shape or type: then there is no difference
  std::optional<Difference> from_data;
  std::optional<Difference> from_model;
};
RankDifference compare_output(const RunRequest& request, const BoundaryValue& output,
                              std::int64_t rank, const Ort::Value& found, const Expected& expected);

// The ranks' differences in rank order as one row of the report.
OutputComparison combine(const BoundaryValue& output, const std::vector<RankDifference>& ranks);

}  // namespace autopar
