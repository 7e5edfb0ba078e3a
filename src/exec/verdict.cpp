#include "exec/verdict.hpp"

#include <algorithm>

#include "exec/blocks.hpp"

namespace autopar {

namespace {

std::string type_text(DType dtype, const Shape& shape) { return name_of(dtype) + to_text(shape); }

std::string wrong_type(const char* source, const Tensor& tensor, const BoundaryValue& output) {
  return std::string("the ") + source + " has " + type_text(tensor.dtype, tensor.shape) +
         " for it, the plan " + type_text(output.dtype, output.shape);
}

// One source of expected values while the ranks are combined.
struct Source {
  const char* name;
  std::optional<Difference> RankDifference::*difference;
};
constexpr Source kSources[] = {{"model", &RankDifference::from_model},
                               {"data", &RankDifference::from_data}};

void add_scales(ExpectedTensors& tensors) {
  double largest = 0;
  double typical_result = 0;
  double typical_change = 0;
  for (auto& [name, expected] : tensors) {
    const Tensor& tensor = *expected.tensor;
    if (!is_floating(tensor.dtype)) continue;
    const double typical = typical_magnitude(tensor);
    expected.rounding = rounding_of(tensor.dtype, typical);
    if (expected.before == nullptr) largest = std::max(largest, expected.largest);
    if (element_count(tensor.shape) == 1) continue;
    if (expected.before == nullptr) {
      typical_result = std::max(typical_result, typical);
    } else {
      typical_change = std::max(typical_change, typical_magnitude(tensor, expected.before));
    }
  }
  for (auto& [name, expected] : tensors) {
    const bool updated = expected.before != nullptr;
    if (!updated && largest > 0) expected.atol = largest / 50;
    if (!is_floating(expected.tensor->dtype) || expected.tensor->dtype == DType::kFloat64) continue;
    const double all = rounding_of(DType::kFloat32, updated ? typical_change : typical_result);
    expected.rounding = std::max(expected.rounding, all);
  }
}

}  // namespace

ExpectedTensors expect(const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, Tensor>& inputs, const std::string& updates) {
  ExpectedTensors result;
  for (const auto& [name, tensor] : tensors) {
    result[name].tensor = &tensor;
    result[name].largest = largest_magnitude(tensor);
  }
  for (const auto& [name, tensor] : inputs) {
    const auto updated = result.find(update_of(name, updates));
    if (updated == result.end()) continue;
    ExpectedTensor& expected = updated->second;
    if (expected.tensor->dtype != tensor.dtype || expected.tensor->shape != tensor.shape) continue;
    expected.before = &tensor;
    expected.largest_change = largest_magnitude(*expected.tensor, &tensor);
  }
  add_scales(result);
  return result;
}

RankDifference compare_output(const RunRequest& request, const RankPlace& place,
                              const BoundaryValue& output, std::int64_t rank,
                              const Ort::Value& found, const Expected& expected) {
  RankDifference result;
  const auto type = found.GetTensorTypeAndShapeInfo();
  const Shape local = local_shape(output.spec, output.shape, place.program->mesh);
  if (dtype_of(type.GetElementType()) != output.dtype || type.GetShape() != local) {
    const auto dtype = dtype_of(type.GetElementType());
    result.problem = "rank " + std::to_string(rank) + " gives " +
                     (dtype ? type_text(*dtype, type.GetShape()) : "an unsupported type") +
                     ", its slice is " + type_text(output.dtype, local);
    return result;
  }
  const auto against = [&](const ExpectedTensors& source, const char* name,
                           std::optional<Difference>& difference) {
    const auto at = source.find(output.name);
    if (at == source.end()) return;
    const Tensor& whole = *at->second.tensor;
    if (whole.dtype != output.dtype || whole.shape != output.shape) {
      result.problem = wrong_type(name, whole, output);
      return;
    }
    Tolerance tolerance =
        tolerance_for(output.dtype, {request.rtol, std::min(request.atol, at->second.atol)});
    const double rounding = request.rtol > 0 ? at->second.rounding : 0;
    tolerance.atol = std::max(tolerance.atol, rounding);
    const Slice slice(whole, output.spec, place.program->mesh, place.position);
    std::optional<Slice> before;
    if (at->second.before != nullptr) {
      before.emplace(*at->second.before, output.spec, place.program->mesh, place.position);
    }
    difference =
        compare(output.dtype, found.GetTensorRawData(), slice.data(),
                static_cast<std::size_t>(element_count(local)), tolerance, at->second.largest,
                {before ? before->data() : nullptr, at->second.largest_change, rounding});
  };
  against(expected.model, "model", result.from_model);
  against(expected.data, "data", result.from_data);
  return result;
}

OutputComparison combine(const RunRequest& request, const BoundaryValue& output,
                         const std::vector<RankDifference>& ranks) {
  OutputComparison row;
  row.name = output.name;
  const auto note = [&row](const std::string& problem) {
    if (row.problem.empty()) row.problem = problem;
  };
  for (const RankDifference& rank : ranks) {
    if (!rank.problem.empty()) note(rank.problem);
  }
  for (const Source& source : kSources) {
    bool compared = false;
    Difference all;
    for (const RankDifference& rank : ranks) {
      const auto& difference = rank.*source.difference;
      if (!difference) continue;
      compared = true;
      merge(all, *difference);
    }
    row.max_absolute_error = std::max(row.max_absolute_error, all.max_absolute);
    row.max_relative_error = std::max(row.max_relative_error, all.max_relative);
    row.nan_elements = std::max(row.nan_elements, all.nans);
    if (compared) row.against += (row.against.empty() ? "" : " and ") + std::string(source.name);
    if (all.disagreeing == 0) continue;
    if (request.kinks && is_floating(output.dtype) && only_kinks(all, request.rtol)) {
      row.kink_elements = std::max(row.kink_elements, all.disagreeing);
      continue;
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto& difference = ranks[r].*source.difference;
      if (!difference || difference->disagreeing == 0) continue;
      note("rank " + std::to_string(r) + " differs from the " + source.name + " in " +
           std::to_string(difference->disagreeing) + " elements; " + difference->first);
    }
  }
  if (row.against.empty() && !request.may_lack_expected)
    note("neither the model nor the data has this output");
  row.matches = row.problem.empty();
  return row;
}

}  // namespace autopar
