#include "exec/verdict.hpp"

#include <algorithm>
#include <cmath>

#include "exec/blocks.hpp"

namespace autopar {

namespace {

std::string wrong_type(const char* source, const Tensor& tensor, const BoundaryValue& output) {
  return std::string("the ") + source + " has " + type_text(tensor.dtype, tensor.shape) +
         " for it, the plan " + type_text(output.dtype, output.shape);
}

// One source of expected values while the ranks are combined.
struct Source {
  const char* name;
  std::optional<Difference> RankDifference::*difference;
  ExpectedTensors Expected::*tensors;
};
constexpr Source kSources[] = {{"model", &RankDifference::from_model, &Expected::model},
                               {"data", &RankDifference::from_data, &Expected::data}};

// Of each tensor by itself.
Scales scales_of(const ExpectedTensor& expected) {
  Scales scales;
  scales.largest = largest_magnitude(*expected.tensor);
  if (expected.before != nullptr) {
    scales.is_next_value = true;
    scales.largest_change = largest_magnitude(*expected.tensor, expected.before);
  }
  if (is_floating(expected.tensor->dtype)) scales.typical = typical_magnitude(*expected.tensor);
  return scales;
}

// Of each tensor beside the others.
std::map<std::string, Scales> scales_of(const ExpectedTensors& tensors) {
  std::map<std::string, Scales> all;
  double largest_result = 0;
  double typical_result = 0;
  double typical_change = 0;
  for (const auto& [name, expected] : tensors) {
    const Scales& scales = all[name] = scales_of(expected);
    const Tensor& tensor = *expected.tensor;
    if (!is_floating(tensor.dtype)) continue;
    if (!scales.is_next_value) largest_result = std::max(largest_result, scales.largest);
    if (element_count(tensor.shape) == 1) continue;
    if (scales.is_next_value) {
      typical_change = std::max(typical_change, typical_magnitude(tensor, expected.before));
    } else {
      typical_result = std::max(typical_result, scales.typical);
    }
  }
  for (auto& [name, scales] : all) {
    scales.largest_result = largest_result;
    scales.typical_of_all = scales.is_next_value ? typical_change : typical_result;
  }
  return all;
}

// Of a rank's slice, which elements have a gradient that is nothing but rounding.
std::vector<char> rounded_elements(const ExpectedTensor& expected, const BoundaryValue& output,
                                   const RankPlace& place, const Shape& local) {
  const Tensor& mean = *expected.gradient;
  const Slice slice(mean, output.spec, place.program->mesh, place.position);
  Tensor part;
  part.dtype = mean.dtype;
  part.shape = local;
  const auto* bytes = static_cast<const char*>(slice.data());
  part.bytes.assign(bytes, bytes + element_count(local) * size_of(mean.dtype));
  std::vector<char> of_rounding;
  for (const double element : reals_of(part)) {
    of_rounding.push_back(std::abs(element) < expected.rounding ? 1 : 0);
  }
  return of_rounding;
}

}  // namespace

ExpectedTensors expect(const RunRequest& request, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, Tensor>& inputs) {
  ExpectedTensors result;
  for (const auto& [name, tensor] : tensors) result[name].tensor = &tensor;
  for (const auto& [name, tensor] : inputs) {
    const auto updated = result.find(update_of(name, request.updates));
    if (updated == result.end()) continue;
    ExpectedTensor& expected = updated->second;
    if (expected.tensor->dtype != tensor.dtype || expected.tensor->shape != tensor.shape) continue;
    expected.before = &tensor;
  }
  for (const auto& [name, scales] : scales_of(result)) {
    ExpectedTensor& expected = result[name];
    const DType dtype = expected.tensor->dtype;
    const auto coarser = request.coarser_types.find(name);
    expected.criterion =
        criterion_of(dtype, {request.rtol, request.atol}, scales,
                     coarser == request.coarser_types.end() ? dtype : coarser->second);
    const auto jump = request.jumps.find(name);
    if (jump != request.jumps.end()) expected.criterion.jump = jump->second;
    const auto gradient = request.gradients.find(name);
    const auto mean =
        gradient == request.gradients.end() ? tensors.end() : tensors.find(gradient->second);
    if (expected.before == nullptr || mean == tensors.end() || !is_floating(mean->second.dtype) ||
        mean->second.shape != expected.tensor->shape) {
      continue;
    }
    expected.gradient = &mean->second;
    expected.rounding =
        rounding_of_gradient(typical_magnitude(mean->second),
                             coarser == request.coarser_types.end() ? dtype : coarser->second);
  }
  return result;
}

RankDifference compare_output(const RankPlace& place, const BoundaryValue& output,
                              std::int64_t rank, const Ort::Value& found,
                              const Expected& expected) {
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
    const Slice slice(whole, output.spec, place.program->mesh, place.position);
    std::optional<Slice> before;
    if (at->second.before != nullptr) {
      before.emplace(*at->second.before, output.spec, place.program->mesh, place.position);
    }
    std::vector<char> of_rounding;
    if (at->second.gradient != nullptr) {
      of_rounding = rounded_elements(at->second, output, place, local);
    }
    difference =
        compare(found.GetTensorRawData(), slice.data(),
                static_cast<std::size_t>(element_count(local)), at->second.criterion,
                before ? before->data() : nullptr, of_rounding.empty() ? nullptr : &of_rounding);
  };
  against(expected.model, "model", result.from_model);
  against(expected.data, "data", result.from_data);
  return result;
}

OutputComparison combine(const RunRequest& request, const BoundaryValue& output,
                         const Expected& expected, const std::vector<RankDifference>& ranks) {
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
    if (!compared) continue;
    const Criterion& criterion = (expected.*source.tensors).at(output.name).criterion;
    row.against += (row.against.empty() ? "" : " and ") + std::string(source.name);
    if (row.criterion.empty()) row.criterion = criterion.reason();
    if (all.of_rounding > 0) {
      row.excused_elements = std::max(row.excused_elements, all.of_rounding);
      row.jump = "Adam's division of a mean that is nothing but rounding";
    }
    if (all.disagreeing == 0) continue;
    if (is_excused(all, criterion)) {
      row.excused_elements = std::max(row.excused_elements, all.disagreeing + all.of_rounding);
      row.jump = criterion.jump + (all.of_rounding > 0 ? " and " + row.jump : std::string());
      continue;
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto& difference = ranks[r].*source.difference;
      if (!difference || difference->disagreeing == 0) continue;
      note("rank " + std::to_string(r) + " differs from the " + source.name + " in " +
           std::to_string(difference->disagreeing) + " elements; " + difference->first + " (" +
           criterion.reason() + ")");
    }
  }
  if (row.against.empty() && !request.may_lack_expected)
    note("neither the model nor the data has this output");
  row.matches = row.problem.empty();
  return row;
}

}  // namespace autopar
