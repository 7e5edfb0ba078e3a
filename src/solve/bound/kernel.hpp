// The innermost loops of everything here: minima of sums along the rows of a table.
#pragma once

#include <cstddef>

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

// most[j] = max over i of table[i][j] - other[i], of a table of so many rows; what is infinite in
// other does not count, and entries are not -infinity. -infinity where nothing counts.
void largest_differences(double* most, const double* other, const double* table, std::size_t rows,
                         std::size_t columns);

}  // namespace autopar::solver
