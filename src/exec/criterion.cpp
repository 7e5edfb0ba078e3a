#include "exec/criterion.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace autopar {

double relative_unit(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat64:
      return 0x1p-52;
    default:
      return 0x1p-23;
  }
}

namespace {

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

Tolerance tolerance_of(DType dtype, Tolerance given, const Scales& scales) {
  if (!scales.is_next_value && scales.largest_result > 0) {
    given.atol = std::min(given.atol, kPartOfResults * scales.largest_result);
  }
  if (!is_half(dtype)) return given;
  const double unit = relative_unit(dtype);
  return {std::max(given.rtol, kHalfRelativeUnits * unit),
          std::max(given.atol, kHalfAbsoluteUnits * unit)};
}

// A sum that should be zero is rounded as the others are: in float32 as that whose terms are the
// largest.
double rounding_of(DType dtype, const Scales& scales, DType calculated_in) {
  const double unit = std::max(relative_unit(dtype), relative_unit(calculated_in));
  const double own = unit * scales.typical;
  const double all = dtype == DType::kFloat64
                         ? 0
                         : std::max(relative_unit(DType::kFloat32), relative_unit(calculated_in)) *
                               scales.typical_of_all;
  const double rounding = kSumUnits * std::max(own, all);
  if (scales.is_next_value || dtype == DType::kFloat64) return rounding;
  const double typical = std::max(scales.typical, scales.typical_of_all);
  return std::max(rounding, kResultUnits * relative_unit(DType::kFloat32) * typical);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

Criterion criterion_of(DType dtype, Tolerance given, const Scales& scales, DType calculated_in) {
  Criterion criterion;
  criterion.dtype = dtype;
  criterion.largest = scales.largest;
  criterion.is_next_value = scales.is_next_value;
  criterion.scale = scales.is_next_value ? scales.largest_change : scales.largest;
  if (!is_floating(dtype)) return criterion;
  const double rounding = given.rtol > 0 ? rounding_of(dtype, scales, calculated_in) : 0;
  criterion.unit = relative_unit(dtype);
  const bool is_coarse = given.rtol > 0 && (is_half(dtype) || is_half(calculated_in));
  criterion.excused_of_largest = is_coarse ? kHalfJumpOfLargest : kJumpOfLargest;
  criterion.excused_elements = is_coarse ? kHalfJumpOfElements : kJumpOfElements;
  criterion.excused_part = std::max(is_coarse ? kHalfJumpPart : 0.0, kJumpTolerances * given.rtol);
  criterion.tolerance = tolerance_of(dtype, given, scales);
  criterion.tolerance.atol = std::max(criterion.tolerance.atol, rounding);
  if (given.rtol > 0 && is_half(calculated_in)) {
    criterion.tolerance.rtol =
        std::max(criterion.tolerance.rtol, kHalfRelativeUnits * relative_unit(calculated_in));
  }
  const double atol = criterion.tolerance.atol;
  criterion.least_change = kLeastChange * scales.largest_change;
  criterion.change_atol = std::max(
      std::clamp(kPartOfChange * scales.largest_change, kLeastPartOfAtol * atol, atol), rounding);
  return criterion;
}

double rounding_of_gradient(double typical, DType calculated_in) {
  const double unit = relative_unit(DType::kFloat32);
  return typical *
         (is_half(calculated_in) ? kSumUnits * relative_unit(calculated_in) : kResultUnits * unit);
}

double Criterion::allowed(double expected, double was) const {
  const double in_value = tolerance.atol + tolerance.rtol * std::abs(expected);
  if (!is_next_value) return in_value;
  const double change = std::max(std::abs(expected - was), least_change);
  const double in_change =
      change_atol + tolerance.rtol * change + kElementUnits * unit * std::abs(expected);
  // Not std::min: of an infinite element the change is no number.
  return in_change < in_value ? in_change : in_value;
}

std::string Criterion::reason() const {
  if (!is_floating(dtype)) return "equal";
  std::string text =
      "|difference| <= " + number(tolerance.atol) + " + " + number(tolerance.rtol) + " |expected|";
  if (is_next_value) {
    text += ", and as a next value <= " + number(change_atol) + " + " + number(tolerance.rtol) +
            " |change| (at least " + number(least_change) + ") + " + number(kElementUnits * unit) +
            " |expected|";
  }
  if (jump.empty()) return text;
  return text + "; behind " + jump + " up to " + number(100 * excused_elements) +
         " % of the elements may be off by " + number(excused_of_largest * scale) +
         ", all together by " + number(100 * excused_part) + " %";
}

}  // namespace autopar
