#include "solve/bound/kernel.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#if defined(__GNUC__)
// How registers are passed does not matter: all that takes some is inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace autopar::solver {
namespace {

// Registers of so many values; where the processor has none so wide, the compiler takes several.
#if defined(__GNUC__)
#define AUTOPAR_INLINE __attribute__((always_inline)) inline
template <class Real, std::size_t kCount>
struct Register {
  typedef Real Type __attribute__((vector_size(kCount * sizeof(Real))));
};
template <class Real>
struct Register<Real, 1> {
  using Type = Real;
};
template <class Real, std::size_t kBytes>
constexpr std::size_t kValues = kBytes / sizeof(Real);
#else
#define AUTOPAR_INLINE inline
template <class Real, std::size_t kCount>
struct Register {
  using Type = Real;
};
template <class Real, std::size_t kBytes>
constexpr std::size_t kValues = 1;
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define AUTOPAR_AVX2 __attribute__((target("avx2")))
#define AUTOPAR_AVX512 __attribute__((target("avx512f,avx512dq")))
const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
const bool kHasAvx512 =
    __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
#define AUTOPAR_AVX2
#define AUTOPAR_AVX512
constexpr bool kHasAvx2 = false, kHasAvx512 = false;
#endif

template <class Real>
constexpr Real kNothing = std::numeric_limits<Real>::infinity();

template <class Wide, class Real>
AUTOPAR_INLINE Wide load(const Real* from) {
  Wide values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

// Where the next register begins: the last one ends with the row, and may have values of the one
// before again, which does minima no harm.
template <std::size_t kCount>
AUTOPAR_INLINE std::size_t next(std::size_t j, std::size_t columns) {
  return j + kCount < columns ? std::min(j + kCount, columns - kCount) : columns;
}

// Rows at a time, so that what they share is loaded once for them and no sum waits for another.
constexpr std::size_t kRowsAtOnce = 4;
// Of a row: with fewer it is narrow.
constexpr std::size_t kFewRegisters = 4;

// Twice the last row does no harm.
template <class Real>
AUTOPAR_INLINE void rows_from(const Real* (&row)[kRowsAtOnce], const Real* table, std::size_t i,
                              std::size_t rows, std::size_t columns) {
  for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
    row[k] = table + std::min(i + k, rows - 1) * columns;
  }
}

// What becomes of entries and their row's value, and which of two is better.
struct LeastSum {
  template <class Wide, class Real>
  static AUTOPAR_INLINE Wide of(const Wide& entries, Real value) {
    return entries + value;
  }
  template <class Wide>
  static AUTOPAR_INLINE Wide best(const Wide& one, const Wide& other) {
    return one < other ? one : other;
  }
  template <class Real>
  static constexpr Real kBegin = kNothing<Real>;
};
struct MostDifference {
  template <class Wide, class Real>
  static AUTOPAR_INLINE Wide of(const Wide& entries, Real value) {
    return entries - value;
  }
  template <class Wide>
  static AUTOPAR_INLINE Wide best(const Wide& one, const Wide& other) {
    return one > other ? one : other;
  }
  template <class Real>
  static constexpr Real kBegin = -kNothing<Real>;
};

// Of a few registers of every row: the best so far stays in others, of so many rows in turn, so
// that none waits for the one before.
template <class Op, class Real, std::size_t kCount, std::size_t kRegisters>
AUTOPAR_INLINE void best_of_rows(Real* best, const Real* values, const Real* table,
                                 std::size_t rows, std::size_t columns) {
  using Wide = typename Register<Real, kCount>::Type;
  constexpr std::size_t kTurns = kRowsAtOnce / kRegisters;
  Wide so_far[kTurns][kRegisters];
  for (auto& its : so_far) {
    for (Wide& wide : its) wide = Wide{} + Op::template kBegin<Real>;
  }
  for (std::size_t i = 0; i < rows; i += kTurns) {
    for (std::size_t t = 0; t < kTurns; ++t) {
      const std::size_t row = std::min(i + t, rows - 1);  // twice the last one does no harm
      if (values[row] == kNothing<Real>) continue;
      for (std::size_t k = 0; k < kRegisters; ++k) {
        const Wide entries = load<Wide>(table + row * columns + k * kCount);
        so_far[t][k] = Op::template best<Wide>(Op::template of<Wide, Real>(entries, values[row]),
                                               so_far[t][k]);
      }
    }
  }
  for (std::size_t k = 0; k < kRegisters; ++k) {
    for (std::size_t t = 1; t < kTurns; ++t) {
      so_far[0][k] = Op::template best<Wide>(so_far[0][k], so_far[t][k]);
    }
    std::memcpy(best + k * kCount, &so_far[0][k], sizeof(Wide));
  }
}

// Of the first columns, whole registers of them: the best so far is loaded and stored once for some
// rows.
template <class Op, class Real, std::size_t kCount>
AUTOPAR_INLINE void best_of_wide_rows(Real* best, const Real* values, const Real* table,
                                      std::size_t rows, std::size_t columns, std::size_t whole) {
  using Wide = typename Register<Real, kCount>::Type;
  std::fill(best, best + whole, Op::template kBegin<Real>);
  for (std::size_t i = 0; i < rows; i += kRowsAtOnce) {
    const Real* row[kRowsAtOnce];
    Real plain[kRowsAtOnce];
    std::size_t count = 0;
    for (std::size_t k = i; k < std::min(i + kRowsAtOnce, rows); ++k) {
      if (values[k] == kNothing<Real>) continue;
      row[count] = table + k * columns;
      plain[count++] = values[k];
    }
    if (count == 0) continue;
    for (; count < kRowsAtOnce; ++count) {
      row[count] = row[0];
      plain[count] = plain[0];
    }
    for (std::size_t j = 0; j < whole; j += kCount) {
      Wide least = load<Wide>(best + j);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
        least = Op::template best<Wide>(
            Op::template of<Wide, Real>(load<Wide>(row[k] + j), plain[k]), least);
      }
      std::memcpy(best + j, &least, sizeof least);
    }
  }
}

template <class Op, class Real, std::size_t kCount>
AUTOPAR_INLINE void wide_rows(Real* best, const Real* values, const Real* table, std::size_t rows,
                              std::size_t columns) {
  if constexpr (kCount > 1) {
    if (columns < kCount) {
      return wide_rows<Op, Real, kCount / 2>(best, values, table, rows, columns);
    }
  }
  std::size_t j = 0;
  if (columns >= kFewRegisters * kCount) {
    j = columns - columns % kCount;
    best_of_wide_rows<Op, Real, kCount>(best, values, table, rows, columns, j);
  }
  if (j + 2 * kCount <= columns) {
    best_of_rows<Op, Real, kCount, 2>(best + j, values, table + j, rows, columns);
    j += 2 * kCount;
  }
  for (; j < columns; j = next<kCount>(j, columns)) {
    j = std::min(j, columns - kCount);
    best_of_rows<Op, Real, kCount, 1>(best + j, values, table + j, rows, columns);
  }
}

// Of a register, by halves.
template <class Real, std::size_t kCount>
AUTOPAR_INLINE Real least_of(const typename Register<Real, kCount>::Type& values) {
  if constexpr (kCount == 1) {
    return values;
  } else {
    using Half = typename Register<Real, kCount / 2>::Type;
    Half halves[2];
    std::memcpy(halves, &values, sizeof values);
    return least_of<Real, kCount / 2>(LeastSum::best<Half>(halves[0], halves[1]));
  }
}

template <class Real, std::size_t kCount>
AUTOPAR_INLINE void wide_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                                 std::size_t columns) {
  if constexpr (kCount > 1) {
    if (columns < kCount) return wide_columns<Real, kCount / 2>(best, add, table, rows, columns);
  }
  using Wide = typename Register<Real, kCount>::Type;
  for (std::size_t i = 0; i < rows; i += kRowsAtOnce) {
    const Real* row[kRowsAtOnce];
    rows_from(row, table, i, rows, columns);
    Wide least[kRowsAtOnce];
    for (Wide& its : least) its = Wide{} + kNothing<Real>;
    for (std::size_t j = 0; j < columns; j = next<kCount>(j, columns)) {
      const Wide plain = load<Wide>(add + j);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
        least[k] = LeastSum::best<Wide>(load<Wide>(row[k] + j) + plain, least[k]);
      }
    }
    for (std::size_t k = 0; k < std::min(kRowsAtOnce, rows - i); ++k) {
      best[i + k] = least_of<Real, kCount>(least[k]);
    }
  }
}

template <class Op, class Real>
void rows_plain(Real* best, const Real* values, const Real* table, std::size_t rows,
                std::size_t columns) {
  wide_rows<Op, Real, kValues<Real, 16>>(best, values, table, rows, columns);
}
template <class Op, class Real>
AUTOPAR_AVX2 void rows_avx2(Real* best, const Real* values, const Real* table, std::size_t rows,
                            std::size_t columns) {
  wide_rows<Op, Real, kValues<Real, 32>>(best, values, table, rows, columns);
}
template <class Op, class Real>
AUTOPAR_AVX512 void rows_avx512(Real* best, const Real* values, const Real* table, std::size_t rows,
                                std::size_t columns) {
  wide_rows<Op, Real, kValues<Real, 64>>(best, values, table, rows, columns);
}

template <class Real>
void columns_plain(Real* best, const Real* add, const Real* table, std::size_t rows,
                   std::size_t columns) {
  wide_columns<Real, kValues<Real, 16>>(best, add, table, rows, columns);
}
template <class Real>
AUTOPAR_AVX2 void columns_avx2(Real* best, const Real* add, const Real* table, std::size_t rows,
                               std::size_t columns) {
  wide_columns<Real, kValues<Real, 32>>(best, add, table, rows, columns);
}
template <class Real>
AUTOPAR_AVX512 void columns_avx512(Real* best, const Real* add, const Real* table, std::size_t rows,
                                   std::size_t columns) {
  wide_columns<Real, kValues<Real, 64>>(best, add, table, rows, columns);
}

template <class Op, class Real>
void best_rows(Real* best, const Real* values, const Real* table, std::size_t rows,
               std::size_t columns) {
  const auto kernel = kHasAvx512 ? rows_avx512<Op, Real>
                      : kHasAvx2 ? rows_avx2<Op, Real>
                                 : rows_plain<Op, Real>;
  kernel(best, values, table, rows, columns);
}

}  // namespace

template <class Real>
void min_plus_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                   std::size_t columns) {
  best_rows<LeastSum>(best, add, table, rows, columns);
}
template <class Real>
void min_plus_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                      std::size_t columns) {
  const auto kernel = kHasAvx512 ? columns_avx512<Real>
                      : kHasAvx2 ? columns_avx2<Real>
                                 : columns_plain<Real>;
  kernel(best, add, table, rows, columns);
}

template void min_plus_rows(float*, const float*, const float*, std::size_t, std::size_t);
template void min_plus_rows(double*, const double*, const double*, std::size_t, std::size_t);
template void min_plus_columns(float*, const float*, const float*, std::size_t, std::size_t);
template void min_plus_columns(double*, const double*, const double*, std::size_t, std::size_t);

void largest_differences(double* most, const double* other, const double* table, std::size_t rows,
                         std::size_t columns) {
  best_rows<MostDifference>(most, other, table, rows, columns);
}

}  // namespace autopar::solver
