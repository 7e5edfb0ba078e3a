// Whether the ranks' outputs are the expected ones.
#pragma once

#include <limits>
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
  double largest = 0;  // largest_magnitude()
  // The absolute tolerance is at most this and at least `rounding`.
  double atol = std::numeric_limits<double>::infinity();
  double rounding = 0;
  // The input whose next value it is; null: there is none. It outlives this.
  const Tensor* before = nullptr;
  double largest_change = 0;
};
using ExpectedTensors = std::map<std::string, ExpectedTensor>;
// `updates` as in RunRequest. Where all results are small, so is what may be overlooked: `atol` is
// a fiftieth of the largest element of all tensors that are not next values. One that should be
// zero is rounded as the others are: `rounding` goes by the typical element of the tensor, and in
// float32 by that of the tensor where it is largest, next values by the typical change.
ExpectedTensors expect(const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, Tensor>& inputs, const std::string& updates);

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
RankDifference compare_output(const RunRequest& request, const RankPlace& place,
                              const BoundaryValue& output, std::int64_t rank,
                              const Ort::Value& found, const Expected& expected);

// The ranks' differences in rank order as one row of the report.
OutputComparison combine(const RunRequest& request, const BoundaryValue& output,
                         const std::vector<RankDifference>& ranks);

}  // namespace autopar
