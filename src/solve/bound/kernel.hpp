// The innermost loops of everything here: minima of sums along the rows of a table.
#pragma once

#include <cstddef>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace autopar::solver {

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
