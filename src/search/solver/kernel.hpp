// The innermost loop of everything here: minimum of sums along a row of a table.
#pragma once

#include <cstddef>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace autopar::solver {

// best[i] = min(best[i], add + row[i]). Written with SSE2 where there is such, as the compiler does
// not vectorise a minimum of doubles by itself without giving up NaN.
inline void min_plus_row(double* best, double add, const double* row, std::size_t count) {
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

}  // namespace autopar::solver
