#include "search/solver/kernel.hpp"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

namespace autopar::solver {

__attribute__((target("avx2"))) void min_plus_row_avx2(double* best, double add, const double* row,
                                                       std::size_t count) {
  const __m256d add4 = _mm256_set1_pd(add);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256d a = _mm256_add_pd(add4, _mm256_loadu_pd(row + i));
    const __m256d b = _mm256_add_pd(add4, _mm256_loadu_pd(row + i + 4));
    _mm256_storeu_pd(best + i, _mm256_min_pd(a, _mm256_loadu_pd(best + i)));
    _mm256_storeu_pd(best + i + 4, _mm256_min_pd(b, _mm256_loadu_pd(best + i + 4)));
  }
  for (; i < count; ++i) {
    const double sum = add + row[i];
    best[i] = sum < best[i] ? sum : best[i];
  }
}

}  // namespace autopar::solver

#endif
