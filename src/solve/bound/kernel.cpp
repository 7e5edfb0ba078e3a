#include "solve/bound/kernel.hpp"

#include <algorithm>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace autopar::solver {
namespace {

template <class Real>
void plain_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                std::size_t columns) {
  std::fill(best, best + columns, std::numeric_limits<Real>::infinity());
  for (std::size_t i = 0; i < rows; ++i) {
    const Real* row = table + i * columns;
    for (std::size_t j = 0; j < columns; ++j) {
      const Real sum = add[i] + row[j];
      best[j] = sum < best[j] ? sum : best[j];
    }
  }
}

template <class Real>
void plain_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                   std::size_t columns) {
  for (std::size_t i = 0; i < rows; ++i) {
    const Real* row = table + i * columns;
    Real least = std::numeric_limits<Real>::infinity();
    for (std::size_t j = 0; j < columns; ++j) {
      const Real sum = row[j] + add[j];
      least = sum < least ? sum : least;
    }
    best[i] = least;
  }
}

void plain_differences(double* most, const double* other, const double* table, std::size_t rows,
                       std::size_t columns) {
  std::fill(most, most + columns, -std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < rows; ++i) {
    if (other[i] == std::numeric_limits<double>::infinity()) continue;
    const double* row = table + i * columns;
    for (std::size_t j = 0; j < columns; ++j) most[j] = std::max(most[j], row[j] - other[i]);
  }
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__)

namespace {

// Where the processor has them.
const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;

// Registers of eight floats or four doubles.
struct Floats {
  using Real = float;
  using Register = __m256;
  static constexpr std::size_t kCount = 8;
};
struct Doubles {
  using Real = double;
  using Register = __m256d;
  static constexpr std::size_t kCount = 4;
};

#define AUTOPAR_AVX2 __attribute__((target("avx2"), always_inline)) inline
AUTOPAR_AVX2 __m256 load(const float* from) { return _mm256_loadu_ps(from); }
AUTOPAR_AVX2 __m256d load(const double* from) { return _mm256_loadu_pd(from); }
AUTOPAR_AVX2 void store(float* to, __m256 value) { _mm256_storeu_ps(to, value); }
AUTOPAR_AVX2 void store(double* to, __m256d value) { _mm256_storeu_pd(to, value); }
AUTOPAR_AVX2 __m256 all(float value) { return _mm256_set1_ps(value); }
AUTOPAR_AVX2 __m256d all(double value) { return _mm256_set1_pd(value); }
AUTOPAR_AVX2 __m256 plus(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
AUTOPAR_AVX2 __m256d plus(__m256d a, __m256d b) { return _mm256_add_pd(a, b); }
AUTOPAR_AVX2 __m256 less(__m256 a, __m256 b) { return _mm256_min_ps(a, b); }
AUTOPAR_AVX2 __m256d less(__m256d a, __m256d b) { return _mm256_min_pd(a, b); }

// Four rows at a time, so that the best so far is loaded and stored once for them.
template <class Wide, class Real = typename Wide::Real>
AUTOPAR_AVX2 void wide_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                            std::size_t columns) {
  constexpr Real kNone = std::numeric_limits<Real>::infinity();
  std::fill(best, best + columns, kNone);
  const std::size_t whole = columns - columns % Wide::kCount;
  for (std::size_t i = 0; i < rows; i += 4) {
    const std::size_t last = rows - 1;
    const Real* row[4] = {};
    Real plain[4] = {};
    for (std::size_t k = 0; k < 4; ++k) {
      row[k] = table + std::min(i + k, last) * columns;  // twice the last one does no harm
      plain[k] = add[std::min(i + k, last)];
    }
    if (plain[0] == kNone && plain[1] == kNone && plain[2] == kNone && plain[3] == kNone) continue;
    const auto a = all(plain[0]), b = all(plain[1]), c = all(plain[2]), d = all(plain[3]);
    for (std::size_t j = 0; j < whole; j += Wide::kCount) {
      const auto first = less(plus(a, load(row[0] + j)), plus(b, load(row[1] + j)));
      const auto second = less(plus(c, load(row[2] + j)), plus(d, load(row[3] + j)));
      store(best + j, less(less(first, second), load(best + j)));
    }
    for (std::size_t j = whole; j < columns; ++j) {
      for (std::size_t k = 0; k < 4; ++k) best[j] = std::min(best[j], plain[k] + row[k][j]);
    }
  }
}

template <class Wide, class Real = typename Wide::Real>
AUTOPAR_AVX2 void wide_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                               std::size_t columns) {
  constexpr Real kNone = std::numeric_limits<Real>::infinity();
  const std::size_t whole = columns - columns % Wide::kCount;
  for (std::size_t i = 0; i < rows; ++i) {
    const Real* row = table + i * columns;
    auto least = all(kNone);
    for (std::size_t j = 0; j < whole; j += Wide::kCount) {
      least = less(plus(load(row + j), load(add + j)), least);
    }
    Real parts[Wide::kCount];
    store(parts, least);
    Real all_least = *std::min_element(parts, parts + Wide::kCount);
    for (std::size_t j = whole; j < columns; ++j) {
      all_least = std::min(all_least, row[j] + add[j]);
    }
    best[i] = all_least;
  }
}

__attribute__((target("avx2"))) void rows_avx2(double* best, const double* add, const double* table,
                                               std::size_t rows, std::size_t columns) {
  wide_rows<Doubles>(best, add, table, rows, columns);
}
__attribute__((target("avx2"))) void rows_avx2(float* best, const float* add, const float* table,
                                               std::size_t rows, std::size_t columns) {
  wide_rows<Floats>(best, add, table, rows, columns);
}
__attribute__((target("avx2"))) void columns_avx2(double* best, const double* add,
                                                  const double* table, std::size_t rows,
                                                  std::size_t columns) {
  wide_columns<Doubles>(best, add, table, rows, columns);
}
__attribute__((target("avx2"))) void columns_avx2(float* best, const float* add, const float* table,
                                                  std::size_t rows, std::size_t columns) {
  wide_columns<Floats>(best, add, table, rows, columns);
}

__attribute__((target("avx2"))) void differences_avx2(double* most, const double* other,
                                                      const double* table, std::size_t rows,
                                                      std::size_t columns) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::fill(most, most + columns, -kNone);
  const std::size_t whole = columns - columns % Doubles::kCount;
  for (std::size_t i = 0; i < rows; ++i) {
    if (other[i] == kNone) continue;
    const double* row = table + i * columns;
    const __m256d less_by = all(other[i]);
    for (std::size_t j = 0; j < whole; j += Doubles::kCount) {
      store(most + j, _mm256_max_pd(_mm256_sub_pd(load(row + j), less_by), load(most + j)));
    }
    for (std::size_t j = whole; j < columns; ++j) most[j] = std::max(most[j], row[j] - other[i]);
  }
}

#undef AUTOPAR_AVX2

}  // namespace

#else

namespace {

constexpr bool kHasAvx2 = false;

template <class Real>
void rows_avx2(Real* best, const Real* add, const Real* table, std::size_t rows,
               std::size_t columns) {
  plain_rows(best, add, table, rows, columns);
}
template <class Real>
void columns_avx2(Real* best, const Real* add, const Real* table, std::size_t rows,
                  std::size_t columns) {
  plain_columns(best, add, table, rows, columns);
}
void differences_avx2(double* most, const double* other, const double* table, std::size_t rows,
                      std::size_t columns) {
  plain_differences(most, other, table, rows, columns);
}

}  // namespace

#endif

void min_plus_rows(double* best, const double* add, const double* table, std::size_t rows,
                   std::size_t columns) {
  if (kHasAvx2) return rows_avx2(best, add, table, rows, columns);
  plain_rows(best, add, table, rows, columns);
}
void min_plus_rows(float* best, const float* add, const float* table, std::size_t rows,
                   std::size_t columns) {
  if (kHasAvx2) return rows_avx2(best, add, table, rows, columns);
  plain_rows(best, add, table, rows, columns);
}
void min_plus_columns(double* best, const double* add, const double* table, std::size_t rows,
                      std::size_t columns) {
  if (kHasAvx2) return columns_avx2(best, add, table, rows, columns);
  plain_columns(best, add, table, rows, columns);
}
void min_plus_columns(float* best, const float* add, const float* table, std::size_t rows,
                      std::size_t columns) {
  if (kHasAvx2) return columns_avx2(best, add, table, rows, columns);
  plain_columns(best, add, table, rows, columns);
}

void largest_differences(double* most, const double* other, const double* table, std::size_t rows,
                         std::size_t columns) {
  if (kHasAvx2) return differences_avx2(most, other, table, rows, columns);
  plain_differences(most, other, table, rows, columns);
}

}  // namespace autopar::solver
