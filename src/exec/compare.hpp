// Elementwise comparison of what a rank computed with what it should have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// An element agrees if |found - expected| <= atol + rtol * |expected|.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// The tolerance for a type: as given for float32 and float64; for float16 and bfloat16 at least 8
// units in the last place relative and 2 units of 1.0 absolute (7.8e-3 and 2.0e-3; 6.3e-2 and
// 1.6e-2), since a sharded sum rounds in another order; none for integers and bool.
Tolerance tolerance_for(DType dtype, Tolerance given);

// What sums whose results are about so large may be off by rounding: 12 units in the last place. A
// sum rounds by its terms, of which little may be left.
double rounding_of(DType dtype, double typical);

// What the expected tensor was before a training step. Then an element must also agree in its
// change: |found - expected| <= atol + rtol * max(|change|, largest change / 16) and some rounding
// of the element itself, so that a wrong gradient is seen beside a weight that is much larger. The
// atol is at most a fiftieth of the largest change, but at least a hundredth of what is given: a
// gradient that should be zero is nothing but rounding.
struct Before {
  const void* data = nullptr;  // null: it is no such tensor
  double largest_change = 0;   // of the whole tensor
  double rounding = 0;         // may be overlooked in any case
};

struct Difference {
  double max_absolute = 0;
  // |found - expected| / |expected|, where |expected| counts as at least a thousandth of the
  // largest finite |expected|: near zero only the absolute error means something.
  double max_relative = 0;
  std::size_t elements = 0;
  std::size_t disagreeing = 0;  // elements beyond the tolerance
  std::size_t nans = 0;         // elements that are NaN on both sides; these agree
  std::string first;            // the first disagreement: "element 17 is 0.5, expected 0.25"
  double squares = 0;           // sum of |found - expected|^2
  double scale_squares = 0;     // sum of |expected|^2, or of |change|^2
  double largest_scale = 0;     // the largest |expected| or |change| of the whole tensor
};

// Where rounding puts a value on the other side of a kink (a ReLU, a maximum), single gradients
// change by more than rounding. Whether no more than this can be seen: as a whole (root mean
// square) the tensors agree within 50 * rtol, no element is off by more than a twentieth of the
// largest expected one (or change), and at most one in four is beyond the tolerance.
bool only_kinks(const Difference& difference, double rtol);

// `largest` is largest_magnitude() of the whole expected tensor. A NaN agrees only with a NaN, an
// infinity only with the same infinity.
Difference compare(DType dtype, const void* found, const void* expected, std::size_t count,
                   Tolerance tolerance, double largest, const Before& before = {});
// The largest and the median magnitude of the finite elements, or of their changes from `before`,
// which is alike; the median of at most 65,536 elements at even distances.
double largest_magnitude(const Tensor& tensor, const Tensor* before = nullptr);
double typical_magnitude(const Tensor& tensor, const Tensor* before = nullptr);
std::vector<double> reals_of(const Tensor& tensor);  // its elements, of any type

// The worst of both; `first` of the earlier one that has one.
void merge(Difference& into, const Difference& other);

}  // namespace autopar
