// The innermost loops of everything here: minima of sums along the rows of a table.
#pragma once

#include <cstddef>

namespace autopar::solver {

// best[j] = min over i of add[i] + table[i][j], of a table of so many rows; what is infinite in add
// does not count, and entries are not -infinity. Of float and double.
template <class Real>
void min_plus_rows(Real* best, const Real* add, const Real* table, std::size_t rows,
                   std::size_t columns);
// best[i] = min over j of table[i][j] + add[j].
template <class Real>
void min_plus_columns(Real* best, const Real* add, const Real* table, std::size_t rows,
                      std::size_t columns);

// most[j] = max over i of table[i][j] - other[i], of a table of so many rows; what is infinite in
// other does not count, and entries are not -infinity. -infinity where nothing counts.
void largest_differences(double* most, const double* other, const double* table, std::size_t rows,
                         std::size_t columns);

}  // namespace autopar::solver
