#include "solve/bound/master.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::master;

constexpr double kZero = 1e-11;

// Columns: the cuts; per row, what is too much at the price `most`; per row, what is left.
class Simplex {
 public:
  Simplex(const std::vector<Cut>& cuts, const Vector& most)
      : cuts_(cuts),
        rows_(most.size()),
        columns_(cuts.size() + 2 * rows_),
        cost_(columns_ + 1, 0.0) {
    std::vector<std::size_t> first;  // of each part
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      cost_[i] = cuts[i].cost;
      if (at(cuts[i].part) == first.size()) first.push_back(i);
    }
    basis_.assign(rows_ + first.size(), 0);
    table_.assign(basis_.size(), Vector(columns_ + 1, 0.0));  // last in a row: what is on the right
    for (std::size_t i = 0; i < cuts.size(); ++i) table_[rows_ + at(cuts[i].part)][i] = 1;
    for (std::size_t p = 0; p < first.size(); ++p) {
      basis_[rows_ + p] = first[p];
      table_[rows_ + p][columns_] = 1;
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      cost_[over(r)] = most[r];
      double excess = 0;
      for (std::size_t i : first) excess += cuts[i].excess[r];
      const bool fits = excess <= 0;
      const double sign = fits ? 1 : -1;
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        table_[r][i] = sign * (cuts[i].excess[r] - cuts[first[at(cuts[i].part)]].excess[r]);
      }
      table_[r][over(r)] = -sign;
      table_[r][left(r)] = sign;
      table_[r][columns_] = -sign * excess;
      basis_[r] = fits ? left(r) : over(r);
    }
    // Costs are kept reduced: 0 in the basis.
    for (std::size_t r = 0; r < basis_.size(); ++r) {
      const double factor = cost_[basis_[r]];
      for (std::size_t j = 0; j <= columns_ && factor != 0; ++j) cost_[j] -= factor * table_[r][j];
    }
  }

  Master run() {
    for (int pivots = 0; pivots < kMostPivots && pivot(pivots >= kDantzigPivots);) ++pivots;
    Master result = {.value = -cost_[columns_], .work = work_};
    for (std::size_t r = 0; r < rows_; ++r) {
      result.multipliers.push_back(std::max(0.0, cost_[left(r)]));
    }
    result.shares.assign(cuts_.size(), 0.0);
    for (std::size_t r = 0; r < basis_.size(); ++r) {
      if (basis_[r] < cuts_.size()) result.shares[basis_[r]] = table_[r][columns_];
    }
    return result;
  }

 private:
  std::size_t over(std::size_t r) const { return cuts_.size() + r; }
  std::size_t left(std::size_t r) const { return cuts_.size() + rows_ + r; }

  bool pivot(bool first) {
    std::size_t in = columns_;
    double least = -kZero;
    for (std::size_t j = 0; j < columns_; ++j) {
      if (!(cost_[j] < least)) continue;
      in = j;
      if (first) break;
      least = cost_[j];
    }
    if (in == columns_) return false;
    std::size_t out = basis_.size();
    double ratio = kInfinity;
    for (std::size_t r = 0; r < basis_.size(); ++r) {
      if (!(table_[r][in] > kZero)) continue;
      const double its = table_[r][columns_] / table_[r][in];
      if (its > ratio || (its == ratio && out < basis_.size() && basis_[r] > basis_[out])) continue;
      ratio = its;
      out = r;
    }
    if (out == basis_.size()) return false;
    const double by = table_[out][in];
    for (double& value : table_[out]) value /= by;
    for (std::size_t r = 0; r < basis_.size(); ++r) {
      if (r != out) subtract(table_[r], table_[out], table_[r][in]);
    }
    subtract(cost_, table_[out], cost_[in]);
    basis_[out] = in;
    return true;
  }

  void subtract(Vector& row, const Vector& other, double factor) {
    if (factor == 0) return;
    work_ += kEntryWork * static_cast<double>(row.size());
    for (std::size_t j = 0; j < row.size(); ++j) row[j] -= factor * other[j];
  }

  const std::vector<Cut>& cuts_;
  std::size_t rows_, columns_;
  Vector cost_;
  std::vector<std::size_t> basis_;
  std::vector<Vector> table_;
  double work_ = 0;
};

}  // namespace

Master solve_master(const std::vector<Cut>& cuts, const Vector& most) {
  // Rows in comparable units.
  Vector scale(most.size(), 0.0);
  for (const Cut& cut : cuts) {
    for (std::size_t r = 0; r < scale.size(); ++r) {
      scale[r] = std::max(scale[r], std::abs(cut.excess[r]));
    }
  }
  double value = 0;
  for (const Cut& cut : cuts) value = std::max(value, std::abs(cut.cost));
  if (value == 0) value = 1;
  std::vector<Cut> scaled = cuts;
  Vector scaled_most = most;
  for (std::size_t r = 0; r < scale.size(); ++r) {
    if (scale[r] == 0) scale[r] = 1;
    for (Cut& cut : scaled) cut.excess[r] /= scale[r];
    scaled_most[r] *= scale[r] / value;
  }
  for (Cut& cut : scaled) cut.cost /= value;
  Master master = Simplex(scaled, scaled_most).run();
  master.value *= value;
  for (std::size_t r = 0; r < scale.size(); ++r) master.multipliers[r] *= value / scale[r];
  return master;
}

}  // namespace autopar::solver
