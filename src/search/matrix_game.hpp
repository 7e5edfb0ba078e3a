// The best mix of a player against another one who knows it.
#pragma once

#include <vector>

namespace autopar {

// Weights of the rows of a matrix, which sum to 1, with which the least mean of any column is the
// largest: the linear programme "columns y >= 0, each row of rows y <= 1, the most sum of y", whose
// prices of rows these are, by the simplex method (Dantzig, "A proof of the equivalence of the
// programming problem and the game problem", 1951): what gains most first, and after as many steps
// as there are rows and columns the smallest index (Bland, "New finite pivoting rules for the
// simplex method", 1977), which goes round in no circle. Precondition: there are rows and columns,
// none of its numbers is negative, and some of them are positive.
std::vector<double> best_mix_of_rows(const std::vector<std::vector<double>>& rows);

}  // namespace autopar
