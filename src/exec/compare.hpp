// Elementwise comparison of what a rank computed with what it should have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exec/criterion.hpp"

namespace autopar {

struct Difference {
  double max_absolute = 0;
  // |found - expected| / |expected|, where |expected| counts as at least kLeastOfLargest of the
  // largest.
  double max_relative = 0;
  std::size_t elements = 0;
  std::size_t disagreeing = 0;  // elements beyond the tolerance
  std::size_t nans = 0;         // elements that are NaN on both sides; these agree
  // Elements beyond the tolerance, but within that of gradients that are nothing but rounding.
  std::size_t of_rounding = 0;
  std::string first;         // the first disagreement: "element 17 is 0.5, expected 0.25"
  double squares = 0;        // sum of |found - expected|^2
  double scale_squares = 0;  // sum of |expected|^2, or of |change|^2
};

// Whether no more disagrees than rounding does at a jump; false where the criterion has none.
bool is_excused(const Difference& difference, const Criterion& criterion);

// A NaN agrees only with a NaN, an infinity only with the same infinity. `before`: what a next
// value was; null for what is none. `of_rounding`: per element whether its gradient is nothing but
// rounding; null: of none.
Difference compare(const void* found, const void* expected, std::size_t count,
                   const Criterion& criterion, const void* before = nullptr,
                   const std::vector<char>* of_rounding = nullptr);
// The largest and the median magnitude of the finite elements, or of their changes from `before`,
// which is alike.
double largest_magnitude(const Tensor& tensor, const Tensor* before = nullptr);
double typical_magnitude(const Tensor& tensor, const Tensor* before = nullptr);
std::vector<double> reals_of(const Tensor& tensor);  // its elements, of any type

// The worst of both; `first` of the earlier one that has one.
void merge(Difference& into, const Difference& other);

}  // namespace autopar
