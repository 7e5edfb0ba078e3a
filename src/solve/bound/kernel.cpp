#include "solve/bound/kernel.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace autopar::solver {
namespace {

// Registers of eight floats or four doubles; where the processor has none so wide, the compiler
// takes two.
#if defined(__GNUC__)
#define AUTOPAR_INLINE __attribute__((always_inline)) inline
template <class Real>
struct Register {
  typedef Real Type __attribute__((vector_size(32)));
};
#else
#define AUTOPAR_INLINE inline
template <class Real>
struct Register {
  using Type = Real;
};
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define AUTOPAR_AVX2 __attribute__((target("avx2")))
const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#else
#define AUTOPAR_AVX2
constexpr bool kHasAvx2 = false;
#endif

// Four rows at a time, so that the best so far is loaded and stored once for them.
template <class Real>
AUTOPAR_INLINE void wide_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                              std::size_t columns) {
  using Wide = typename Register<Real>::Type;
  constexpr std::size_t kCount = sizeof(Wide) / sizeof(Real);
  constexpr Real kNone = std::numeric_limits<Real>::infinity();
  std::fill(best, best + columns, kNone);
  const std::size_t whole = columns - columns % kCount;
  for (std::size_t i = 0; i < rows; i += 4) {
    const Real* row[4] = {};
    Real plain[4] = {};
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t its = std::min(i + k, rows - 1);  // twice the last one does no harm
      row[k] = table + its * columns;
      plain[k] = add[its];
    }
    if (std::all_of(plain, plain + 4, [](Real value) { return value == kNone; })) continue;
    for (std::size_t j = 0; j < whole; j += kCount) {
      Wide least;
      std::memcpy(&least, best + j, sizeof least);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < 4; ++k) {
        Wide sum;
        std::memcpy(&sum, row[k] + j, sizeof sum);
        sum += plain[k];
        least = sum < least ? sum : least;
      }
      std::memcpy(best + j, &least, sizeof least);
    }
    for (std::size_t j = whole; j < columns; ++j) {
      for (std::size_t k = 0; k < 4; ++k) best[j] = std::min(best[j], plain[k] + row[k][j]);
    }
  }
}

template <class Real>
AUTOPAR_INLINE void wide_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                                 std::size_t columns) {
  using Wide = typename Register<Real>::Type;
  constexpr std::size_t kCount = sizeof(Wide) / sizeof(Real);
  const std::size_t whole = columns - columns % kCount;
  const Wide none = Wide{} + std::numeric_limits<Real>::infinity();
  for (std::size_t i = 0; i < rows; ++i) {
    const Real* row = table + i * columns;
    Wide least = none;
    for (std::size_t j = 0; j < whole; j += kCount) {
      Wide sum, other;
      std::memcpy(&sum, row + j, sizeof sum);
      std::memcpy(&other, add + j, sizeof other);
      sum += other;
      least = sum < least ? sum : least;
    }
    Real all_least = std::numeric_limits<Real>::infinity();
    for (std::size_t k = 0; k < kCount; ++k) all_least = std::min(all_least, least[k]);
    for (std::size_t j = whole; j < columns; ++j) {
      all_least = std::min(all_least, row[j] + add[j]);
    }
    best[i] = all_least;
  }
}

AUTOPAR_INLINE void wide_differences(double* most, const double* other, const double* table,
                                     std::size_t rows, std::size_t columns) {
  using Wide = Register<double>::Type;
  constexpr std::size_t kCount = sizeof(Wide) / sizeof(double);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::fill(most, most + columns, -kNone);
  const std::size_t whole = columns - columns % kCount;
  for (std::size_t i = 0; i < rows; ++i) {
    if (other[i] == kNone) continue;
    const double* row = table + i * columns;
    for (std::size_t j = 0; j < whole; j += kCount) {
      Wide more, so_far;
      std::memcpy(&more, row + j, sizeof more);
      std::memcpy(&so_far, most + j, sizeof so_far);
      more -= other[i];
      so_far = more > so_far ? more : so_far;
      std::memcpy(most + j, &so_far, sizeof so_far);
    }
    for (std::size_t j = whole; j < columns; ++j) most[j] = std::max(most[j], row[j] - other[i]);
  }
}

template <class Real>
AUTOPAR_AVX2 void rows_avx2(Real* best, const Real* add, const Real* table, std::size_t rows,
                            std::size_t columns) {
  wide_rows(best, add, table, rows, columns);
}
template <class Real>
AUTOPAR_AVX2 void columns_avx2(Real* best, const Real* add, const Real* table, std::size_t rows,
                               std::size_t columns) {
  wide_columns(best, add, table, rows, columns);
}
AUTOPAR_AVX2 void differences_avx2(double* most, const double* other, const double* table,
                                   std::size_t rows, std::size_t columns) {
  wide_differences(most, other, table, rows, columns);
}

}  // namespace

template <class Real>
void min_plus_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                   std::size_t columns) {
  (kHasAvx2 ? rows_avx2<Real> : wide_rows<Real>)(best, add, table, rows, columns);
}
template <class Real>
void min_plus_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                      std::size_t columns) {
  (kHasAvx2 ? columns_avx2<Real> : wide_columns<Real>)(best, add, table, rows, columns);
}

template void min_plus_rows(float*, const float*, const float*, std::size_t, std::size_t);
template void min_plus_rows(double*, const double*, const double*, std::size_t, std::size_t);
template void min_plus_columns(float*, const float*, const float*, std::size_t, std::size_t);
template void min_plus_columns(double*, const double*, const double*, std::size_t, std::size_t);

void largest_differences(double* most, const double* other, const double* table, std::size_t rows,
                         std::size_t columns) {
  (kHasAvx2 ? differences_avx2 : wide_differences)(most, other, table, rows, columns);
}

}  // namespace autopar::solver
