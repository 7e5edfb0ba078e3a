#include "search/matrix_game.hpp"

#include <algorithm>
#include <cstddef>

namespace autopar {

namespace {

// What is no more than rounding in a programme whose numbers are about 1.
constexpr double kRounding = 1e-9;

}  // namespace

std::vector<double> best_mix_of_rows(const std::vector<std::vector<double>>& rows) {
  const std::size_t count = rows.size(), columns = rows.front().size();
  double most = 0;
  for (const auto& row : rows) most = std::max(most, *std::max_element(row.begin(), row.end()));
  // Per row: columns, slacks, what is left.
  std::vector<std::vector<double>> tableau;
  for (std::size_t r = 0; r < count; ++r) {
    std::vector<double>& line = tableau.emplace_back(columns + count + 1, 0);
    for (std::size_t c = 0; c < columns; ++c) line[c] = rows[r][c] / most;
    line[columns + r] = line.back() = 1;
  }
  std::vector<double> gains(columns + count + 1, 0);
  std::fill_n(gains.begin(), columns, -1);
  std::vector<std::size_t> basis(count);
  for (std::size_t r = 0; r < count; ++r) basis[r] = columns + r;
  for (std::size_t pivots = 0;; ++pivots) {
    // That which gains most, as long as that cannot go round in a circle; then the first.
    const auto last = gains.end() - 1;
    const auto entering =
        pivots < count + columns
            ? std::min_element(gains.begin(), last)
            : std::find_if(gains.begin(), last, [](double gain) { return gain < -kRounding; });
    if (entering == last || *entering >= -kRounding) break;
    const auto in = static_cast<std::size_t>(entering - gains.begin());
    std::size_t out = count;
    for (std::size_t r = 0; r < count; ++r) {
      if (tableau[r][in] <= kRounding) continue;
      if (out == count) {
        out = r;
        continue;
      }
      const double room = tableau[r].back() * tableau[out][in];
      const double least = tableau[out].back() * tableau[r][in];
      if (room < least || (room == least && basis[r] < basis[out])) out = r;
    }
    if (out == count) break;
    const double pivot = tableau[out][in];
    for (double& x : tableau[out]) x /= pivot;
    const auto subtract = [&](std::vector<double>& line) {
      const double times = line[in];
      for (std::size_t i = 0; i < line.size(); ++i) line[i] -= times * tableau[out][i];
    };
    for (std::size_t r = 0; r < count; ++r) {
      if (r != out && tableau[r][in] != 0) subtract(tableau[r]);
    }
    subtract(gains);
    basis[out] = in;
  }
  std::vector<double> weights(gains.begin() + static_cast<std::ptrdiff_t>(columns),
                              gains.end() - 1);
  double sum = 0;
  for (double& w : weights) sum += w = std::max(0.0, w);
  for (double& w : weights) w = sum > 0 ? w / sum : 1 / static_cast<double>(count);
  return weights;
}

}  // namespace autopar
