// Whether the ranks' outputs are the expected ones.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/compare.hpp"
#include "exec/request.hpp"
#include "exec/tensors.hpp"

namespace autopar {

// A whole expected tensor, which outlives this.
struct ExpectedTensor {
  const Tensor* tensor = nullptr;
  // The input whose next value it is; null: there is none. It outlives this.
  const Tensor* before = nullptr;
  // The next mean of its gradient, by whose size it is divided; null: it is not. It outlives this.
  const Tensor* gradient = nullptr;
  double rounding = 0;  // below this the mean is nothing but rounding
  Criterion criterion;
};
using ExpectedTensors = std::map<std::string, ExpectedTensor>;
// With the request's tolerances, updates and jumps. A next value is one only where the input has
// its type and shape.
ExpectedTensors expect(const RunRequest& request, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, Tensor>& inputs);

// The expected tensors by their source.
struct Expected {
  ExpectedTensors data;   // RunRequest::expected
  ExpectedTensors model;  // of the unsharded model; empty where it was not run
};

// One rank's slice of one output against one source.
struct RankDifference {
  std::string problem;  // of another shape or type: then there is no difference
  std::optional<Difference> from_data;
  std::optional<Difference> from_model;
};
RankDifference compare_output(const RankPlace& place, const BoundaryValue& output,
                              std::int64_t rank, const Ort::Value& found, const Expected& expected);

// The ranks' differences in rank order as one row of the report.
OutputComparison combine(const RunRequest& request, const BoundaryValue& output,
                         const Expected& expected, const std::vector<RankDifference>& ranks);

}  // namespace autopar
