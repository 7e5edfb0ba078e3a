// What it means that an output agrees. All constants of that are here, each with its unit and its
// reason; a Criterion is made of them once per output.
//
//   const Tolerance tolerance{.rtol = 2e-4, .atol = 2e-5};
//   const Criterion criterion = criterion_of(DType::kFloat32, tolerance, scales);
//   criterion.allowed(1, 0)   // 2.2e-4
//   criterion.reason()        // "|difference| <= 2e-05 + 0.0002 |expected|"
#pragma once

#include <cstddef>
#include <string>

#include "autopar/ir.hpp"

namespace autopar {

// --- Every floating-point element.

// 16-bit types, relative, in units in the last place: a sharded sum rounds each of its parts to 16
// bits before they are added.
inline constexpr double kHalfRelativeUnits = 8;
// 16-bit types, absolute, in units in the last place of 1: what is left of terms of about 1.
inline constexpr double kHalfAbsoluteUnits = 2;
// Sums, in units in the last place of a tensor's median magnitude: a sum rounds by its terms, of
// which little may be left. Results lie behind all sums of a model: of BERT-Base, whose 12 layers
// have 98 products, with seven sums of these split, 31 million results were off by 7 units (root
// mean square) and by 43 at most, in units of float32. It is a seventeenth of the relative
// tolerance.
inline constexpr double kSumUnits = 12;
inline constexpr double kResultUnits = 96;
// Absolute, as a part of the largest element of all results: where all results are small, so is
// what may be overlooked.
inline constexpr double kPartOfResults = 1.0 / 50;

// --- Next values (of a weight in a training step) must also agree in their change, so that a wrong
// gradient is seen beside a weight that is much larger.

// Relative, as a part of the tensor's largest change: a change that is less counts as so large,
// since its terms were larger.
inline constexpr double kLeastChange = 1.0 / 16;
// Absolute, as a part of the tensor's largest change, like kPartOfResults ...
inline constexpr double kPartOfChange = 1.0 / 50;
// ... but at least so much of the absolute tolerance: a gradient that should be zero is nothing but
// rounding.
inline constexpr double kLeastPartOfAtol = 1.0 / 100;
// In units in the last place of the element, in which the change was added to it.
inline constexpr double kElementUnits = 16;

// --- Excuses. Where rounding carries a number across a jump (the sign of what a ReLU reads, an
// index of the largest), single elements behind it change by more than rounding, and no more:

// A part of the largest expected element (or change), by which each may be off: one term of a sum.
inline constexpr double kJumpOfLargest = 1.0 / 20;
// The part of the elements that may be excused: behind a product one row or column is hit.
inline constexpr double kJumpOfElements = 1.0 / 4;
// Root mean square of the differences by that of what is expected, in relative tolerances as given.
inline constexpr double kJumpTolerances = 50;
// The same where something upstream is calculated in 16 bits: numbers so near to a jump that
// rounding carries them across are common there, and what they change is in any element. In
// steps of a network of ReLUs in float16 and of one of experts in mixed-fp16 single elements were
// off by up to 0.13 of the largest, and all together by 4.6 %, as their inputs were drawn; the
// same step of experts agrees in float32.
inline constexpr double kHalfJumpOfLargest = 1.0 / 5;
inline constexpr double kHalfJumpOfElements = 1;
inline constexpr double kHalfJumpPart = 1.0 / 16;

// --- Adam's steps. It divides the mean of the gradient by the root of the mean of its square: its
// first steps are the gradient's sign, so an element whose gradient is nothing but rounding takes a
// step of any. What is looked at is the mean: where it is less than kResultUnits of its median
// magnitude in float32, behind 16-bit types than kSumUnits of theirs, the element may be off by so
// much of the tensor's largest change:
inline constexpr double kChangeOfSign = 2;

// --- Only for what is shown.

// A part of the largest expected element, as which a smaller one counts in relative errors: near
// zero only the absolute error means something.
inline constexpr double kLeastOfLargest = 1e-3;
// Elements, at even distances, of which a median magnitude is taken.
inline constexpr std::size_t kMedianSamples = std::size_t{1} << 16;

// An element agrees if |found - expected| <= atol + rtol * |expected|.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// Magnitudes of what is expected; of finite elements.
struct Scales {
  double largest = 0;         // of this tensor
  double typical = 0;         // its median
  double largest_result = 0;  // of all tensors that are no next values; 0: there are none
  // The median of the tensor where it is largest: among next values of their changes, else of
  // results.
  double typical_of_all = 0;
  bool is_next_value = false;
  double largest_change = 0;  // of this tensor, where it is a next value
};

struct Criterion {
  DType dtype = DType::kFloat32;
  Tolerance tolerance;      // none for integers and bool
  double change_atol = 0;   // next values: the absolute tolerance of a change
  double least_change = 0;  // next values: a change counts as at least so large
  double unit = 0;          // the relative spacing of the type's numbers
  double largest = 0;       // expected
  double scale = 0;         // the largest expected element, or change
  bool is_next_value = false;
  // The op at which rounding may show as more than rounding; empty: no element is excused.
  std::string jump;
  // Of single elements, by the largest; the part of the elements; root mean square of the
  // differences by that of what is expected.
  double excused_of_largest = 0, excused_elements = 0, excused_part = 0;

  // How far an element may be off. `was`: before the step, where it is a next value.
  double allowed(double expected, double was) const;
  // The same where the mean of the gradient is nothing but rounding.
  double allowed_of_rounding() const { return kChangeOfSign * scale; }
  std::string reason() const;
};

// For float32 and float64 the tolerance as given, for 16-bit types at least kHalf...Units, none for
// integers and bool; with no relative tolerance no rounding is allowed for either.
// `calculated_in`: the coarsest type upstream, whose rounding stays in what is made of it. The
// absolute tolerance is then that of sums in that type.
Criterion criterion_of(DType dtype, Tolerance given, const Scales& scales,
                       DType calculated_in = DType::kFloat64);

// Below this a mean of a gradient is nothing but rounding. `typical`: its median magnitude.
double rounding_of_gradient(double typical, DType calculated_in);

// The relative spacing of a floating-point type's numbers.
double relative_unit(DType dtype);

}  // namespace autopar
