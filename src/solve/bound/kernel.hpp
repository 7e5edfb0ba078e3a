// The innermost loop of everything here: minimum of sums along a row of a table.
#pragma once

#include <cstddef>

#if defined(__SSE2__)
#include <emmintrin.h>

#include "solve/effort.hpp"
#endif

namespace autopar::solver {

// The same sums and minima with wider registers, where the processor has them.
#if defined(__x86_64__) && defined(__GNUC__)
inline const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
void min_plus_row_avx2(double* best, double add, const double* row, std::size_t count);
#else
inline constexpr bool kHasAvx2 = false;
inline void min_plus_row_avx2(double*, double, const double*, std::size_t) {}
#endif

// best[i] = min(best[i], add + row[i]). Written with SSE2 where there is such, as the compiler does
// not vectorise a minimum of doubles by itself without giving up NaN.
inline void min_plus_row(double* best, double add, const double* row, std::size_t count) {
  if (count >= effort::kernel::kWideRow && kHasAvx2)
    return min_plus_row_avx2(best, add, row, count);
  std::size_t i = 0;
#if defined(__SSE2__)
  const __m128d add2 = _mm_set1_pd(add);
  for (; i + 4 <= count; i += 4) {
    const __m128d a = _mm_add_pd(add2, _mm_loadu_pd(row + i));
    const __m128d b = _mm_add_pd(add2, _mm_loadu_pd(row + i + 2));
    _mm_storeu_pd(best + i, _mm_min_pd(a, _mm_loadu_pd(best + i)));
    _mm_storeu_pd(best + i + 2, _mm_min_pd(b, _mm_loadu_pd(best + i + 2)));
  }
#endif
  for (; i < count; ++i) {
    const double sum = add + row[i];
    best[i] = sum < best[i] ? sum : best[i];
  }
}

// best[j] = min over i of add[i] + table[i][j], of a table of so many rows; what is infinite in add
// does not count, and entries are not -infinity.
void min_plus_rows(double* best, const double* add, const double* table, std::size_t rows,
                   std::size_t columns);
void min_plus_rows(float* best, const float* add, const float* table, std::size_t rows,
                   std::size_t columns);
// best[i] = min over j of table[i][j] + add[j].
void min_plus_columns(double* best, const double* add, const double* table, std::size_t rows,
                      std::size_t columns);
void min_plus_columns(float* best, const float* add, const float* table, std::size_t rows,
                      std::size_t columns);

// The largest of row[i] - other[i]; entries are finite.
inline double largest_difference(const double* row, const double* other, std::size_t count) {
  double most = row[0] - other[0];
  std::size_t i = 1;
#if defined(__SSE2__)
  __m128d most2 = _mm_set1_pd(most);
  for (; i + 2 <= count; i += 2) {
    most2 = _mm_max_pd(most2, _mm_sub_pd(_mm_loadu_pd(row + i), _mm_loadu_pd(other + i)));
  }
  double both[2];
  _mm_storeu_pd(both, most2);
  most = both[0] > both[1] ? both[0] : both[1];
#endif
  for (; i < count; ++i) most = row[i] - other[i] > most ? row[i] - other[i] : most;
  return most;
}

}  // namespace autopar::solver
