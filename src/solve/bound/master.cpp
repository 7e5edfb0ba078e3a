#include "solve/bound/master.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::master;

constexpr double kZero = 1e-11;

// Columns: the cuts; per row, what is too much at the price `most`; per row, what is left. Of each
// part one cut is its key, which has what the others of the part leave of 1. So a basis has as many
// further columns as rows; of a cut in it counts what it has more than its part's key.
class Simplex {
 public:
  Simplex(const std::vector<Cut>& cuts, const Vector& most)
      : rows_(static_cast<int>(most.size())), cuts_(static_cast<int>(cuts.size())), most_(most) {
    scale(cuts);
    for (int j = 0; j < cuts_; ++j) {
      const int part = cuts[at(j)].part;
      part_.push_back(part);
      if (at(part) == first_.size()) {
        first_.push_back(j);
        key_.push_back(j);
      }
    }
    first_.push_back(cuts_);
    slots_of_.resize(key_.size());
    const Vector room = room_of_keys();
    inverse_.assign(at(rows_), Vector(at(rows_), 0.0));
    for (int r = 0; r < rows_; ++r) {
      const bool fits = room[at(r)] >= 0;
      basis_.push_back(fits ? left(r) : over(r));
      share_.push_back(std::abs(room[at(r)]));
      inverse_[at(r)][at(r)] = fits ? 1 : -1;
    }
  }

  Master run(double most_work) {
    const int dantzig = kDantzigPivots + kPivotsPerPart * static_cast<int>(key_.size());
    bool better = true;
    for (int step = 0; better && step < kMostRounds * dantzig && work_ < most_work; ++step) {
      if (step % kPivotsToRenew == kPivotsToRenew - 1) renew();
      better = pivot(step >= dantzig);
    }
    find_multipliers();
    return result(!better);
  }

 private:
  int over(int r) const { return cuts_ + r; }
  int left(int r) const { return cuts_ + rows_ + r; }
  bool is_cut(int j) const { return j < cuts_; }
  int part_of(int j) const { return is_cut(j) ? part_[at(j)] : kNone; }
  double cost_of(int j) const {
    return is_cut(j) ? cost_[at(j)] : j < left(0) ? most_[at(j - cuts_)] : 0;
  }

  // Rows and costs in comparable units.
  void scale(const std::vector<Cut>& cuts) {
    row_unit_.assign(at(rows_), 0.0);
    for (const Cut& cut : cuts) {
      cost_unit_ = std::max(cost_unit_, std::abs(cut.cost));
      for (const Cut::Excess& its : cut.excess) {
        row_unit_[at(its.row)] = std::max(row_unit_[at(its.row)], std::abs(its.amount));
      }
    }
    if (cost_unit_ == 0) cost_unit_ = 1;
    for (double& unit : row_unit_) unit = unit == 0 ? 1 : unit;
    for (int r = 0; r < rows_; ++r) most_[at(r)] *= row_unit_[at(r)] / cost_unit_;
    for (const Cut& cut : cuts) {
      cost_.push_back(cut.cost / cost_unit_);
      excess_.push_back(cut.excess);
      for (Cut::Excess& its : excess_.back()) its.amount /= row_unit_[at(its.row)];
    }
  }

  // What the keys leave of each row.
  Vector room_of_keys() const {
    Vector room(at(rows_), 0.0);
    for (int key : key_) {
      for (const Cut::Excess& its : excess_[at(key)]) room[at(its.row)] -= its.amount;
    }
    return room;
  }

  // Calls visit(row, amount) for a column's difference to its part's key.
  template <class Visit>
  void for_each_difference(int j, const Visit& visit) const {
    if (!is_cut(j)) {
      visit(j < left(0) ? j - cuts_ : j - left(0), j < left(0) ? -1.0 : 1.0);
      return;
    }
    for (const Cut::Excess& its : excess_[at(j)]) visit(its.row, its.amount);
    for (const Cut::Excess& its : excess_[at(key_[at(part_[at(j)])])]) visit(its.row, -its.amount);
  }

  double priced(int j) const {
    double value = cost_[at(j)];
    for (const Cut::Excess& its : excess_[at(j)]) value += multipliers_[at(its.row)] * its.amount;
    return value;
  }

  void find_multipliers() {
    multipliers_.assign(at(rows_), 0.0);
    for (int s = 0; s < rows_; ++s) {
      const int j = basis_[at(s)];
      const double cost = cost_of(j) - (is_cut(j) ? cost_[at(key_[at(part_[at(j)])])] : 0.0);
      if (cost == 0) continue;
      for (int r = 0; r < rows_; ++r) multipliers_[at(r)] -= cost * inverse_[at(s)][at(r)];
    }
    work_ += kEntryWork * rows_ * rows_;
  }

  // A column that makes the mix cheaper: of some parts, taken in turns, the one that does most;
  // `first`: any. None: it is the best mix.
  int entering(bool first) {
    int best = kNone;
    double least = -kZero;
    const auto consider = [&](int j, double reduced) {
      if (!(reduced < least)) return;
      least = reduced;
      best = j;
    };
    for (int r = 0; r < rows_ && !(first && best != kNone); ++r) {
      consider(left(r), multipliers_[at(r)]);
      consider(over(r), most_[at(r)] - multipliers_[at(r)]);
    }
    const std::size_t parts = key_.size(), enough = kPartsAtOnce + parts / kPartOfParts;
    for (std::size_t k = 0; k < parts; ++k) {
      if (best != kNone && (first || k >= enough)) break;
      const std::size_t p = first ? k : next_;
      if (!first) next_ = (next_ + 1) % parts;
      const double key = priced(key_[p]);
      for (int j = first_[p]; j < first_[p + 1]; ++j) {
        if (j != key_[p]) consider(j, priced(j) - key);
        work_ += kEntryWork * static_cast<double>(excess_[at(j)].size() + 1);
      }
    }
    return best;
  }

  // By how much each column in the basis shrinks for what enters.
  void find_rates(int in) {
    rates_.assign(at(rows_), 0.0);
    double touched = 0;
    for_each_difference(in, [&](int row, double amount) {
      for (int s = 0; s < rows_; ++s) rates_[at(s)] += inverse_[at(s)][at(row)] * amount;
      ++touched;
    });
    work_ += kEntryWork * rows_ * touched;
  }

  double key_share(int part) const {
    double share = 1;
    for (int s : slots_of_[at(part)]) share -= share_[at(s)];
    return share;
  }
  double key_rate(int part, int in) const {
    double rate = part == part_of(in) ? 1 : 0;
    for (int s : slots_of_[at(part)]) rate -= rates_[at(s)];
    return rate;
  }

  struct Leaving {
    double share = kInfinity;  // of what enters, until this is gone
    int column = kNone;
    int slot = kNone;  // in the basis; none: it is a key
  };

  Leaving leaving(int in) const {
    Leaving out;
    const auto consider = [&](double share, double rate, int column, int slot) {
      if (!(rate > kZero)) return;
      const double most = std::max(0.0, share) / rate;
      if (most > out.share || (most == out.share && column > out.column)) return;
      out = {most, column, slot};
    };
    const auto consider_key = [&](int part) {
      consider(key_share(part), key_rate(part, in), key_[at(part)], kNone);
    };
    for (int s = 0; s < rows_; ++s) {
      const int part = part_of(basis_[at(s)]);
      consider(share_[at(s)], rates_[at(s)], basis_[at(s)], s);
      // Once for each part.
      if (part != kNone && slots_of_[at(part)].front() == s) consider_key(part);
    }
    if (part_of(in) != kNone && slots_of_[at(part_of(in))].empty()) consider_key(part_of(in));
    return out;
  }

  bool pivot(bool first) {
    find_multipliers();
    const int in = entering(first);
    if (in == kNone) return false;
    find_rates(in);
    const Leaving out = leaving(in);
    if (out.column == kNone) return false;
    for (int s = 0; s < rows_; ++s) {
      share_[at(s)] = std::max(0.0, share_[at(s)] - out.share * rates_[at(s)]);
    }
    if (out.slot != kNone) {
      take_in(in, out.slot, out.share);
      return true;
    }
    const int part = part_[at(out.column)];
    if (slots_of_[at(part)].empty()) {
      key_[at(part)] = in;  // of the same part
      return true;
    }
    const int slot = swap_key(part);
    find_rates(in);
    take_in(in, slot, out.share);
    return true;
  }

  // The column becomes the one in this slot.
  void take_in(int in, int slot, double share) {
    const int part = part_of(basis_[at(slot)]);
    if (part != kNone) std::erase(slots_of_[at(part)], slot);
    basis_[at(slot)] = in;
    share_[at(slot)] = share;
    if (part_of(in) != kNone) slots_of_[at(part_of(in))].push_back(slot);
    Vector& row = inverse_[at(slot)];
    const double by = rates_[at(slot)];
    for (double& value : row) value /= by;
    for (int s = 0; s < rows_; ++s) {
      if (s == slot || rates_[at(s)] == 0) continue;
      for (int r = 0; r < rows_; ++r) inverse_[at(s)][at(r)] -= rates_[at(s)] * row[at(r)];
      work_ += kEntryWork * rows_;
    }
  }

  // The part's cut of which there is most in the basis becomes its key, and the key takes its slot.
  int swap_key(int part) {
    const std::vector<int>& slots = slots_of_[at(part)];
    const int slot = *std::max_element(slots.begin(), slots.end(),
                                       [&](int a, int b) { return share_[at(a)] < share_[at(b)]; });
    const double share = key_share(part);
    Vector& row = inverse_[at(slot)];
    for (int s : slots) {
      for (int r = 0; s != slot && r < rows_; ++r) row[at(r)] += inverse_[at(s)][at(r)];
    }
    for (double& value : row) value = -value;
    share_[at(slot)] = std::max(0.0, share);
    std::swap(key_[at(part)], basis_[at(slot)]);
    return slot;
  }

  // The inverse and the shares anew, so that errors of rounding do not add up. Source: elimination
  // by Gauss and Jordan, with the largest of a column.
  void renew() {
    std::vector<Vector> matrix(at(rows_), Vector(at(2 * rows_), 0.0));
    for (int s = 0; s < rows_; ++s) {
      for_each_difference(basis_[at(s)],
                          [&](int row, double amount) { matrix[at(row)][at(s)] += amount; });
      matrix[at(s)][at(rows_ + s)] = 1;
    }
    for (int c = 0; c < rows_; ++c) {
      int most = c;
      for (int r = c; r < rows_; ++r) {
        if (std::abs(matrix[at(r)][at(c)]) > std::abs(matrix[at(most)][at(c)])) most = r;
      }
      if (std::abs(matrix[at(most)][at(c)]) < kZero) return;  // the one at hand is no worse
      std::swap(matrix[at(c)], matrix[at(most)]);
      const double by = matrix[at(c)][at(c)];
      for (double& value : matrix[at(c)]) value /= by;
      for (int r = 0; r < rows_; ++r) {
        const double factor = matrix[at(r)][at(c)];
        if (r == c || factor == 0) continue;
        for (int k = c; k < 2 * rows_; ++k) matrix[at(r)][at(k)] -= factor * matrix[at(c)][at(k)];
        work_ += kEntryWork * 2 * rows_;
      }
    }
    const Vector room = room_of_keys();
    for (int s = 0; s < rows_; ++s) {
      inverse_[at(s)].assign(matrix[at(s)].begin() + rows_, matrix[at(s)].end());
      double share = 0;
      for (int r = 0; r < rows_; ++r) share += inverse_[at(s)][at(r)] * room[at(r)];
      share_[at(s)] = std::max(0.0, share);
    }
  }

  Master result(bool solved) const {
    Master result = {.work = work_, .solved = solved};
    result.shares.assign(at(cuts_), 0.0);
    for (std::size_t p = 0; p < key_.size(); ++p) {
      result.shares[at(key_[p])] = std::max(0.0, key_share(static_cast<int>(p)));
    }
    for (int s = 0; s < rows_; ++s) {
      if (is_cut(basis_[at(s)]))
        result.shares[at(basis_[at(s)])] = share_[at(s)];
      else
        result.value += cost_of(basis_[at(s)]) * share_[at(s)];
    }
    for (int j = 0; j < cuts_; ++j) result.value += cost_[at(j)] * result.shares[at(j)];
    result.value *= cost_unit_;
    for (int r = 0; r < rows_; ++r) {
      result.multipliers.push_back(std::max(0.0, multipliers_[at(r)]) * cost_unit_ /
                                   row_unit_[at(r)]);
    }
    return result;
  }

  int rows_, cuts_;
  Vector most_, cost_;                            // in units
  std::vector<std::vector<Cut::Excess>> excess_;  // per cut, in units
  double cost_unit_ = 0;
  Vector row_unit_;
  std::vector<int> part_;                   // per cut
  std::vector<int> first_;                  // per part, and the end
  std::vector<int> key_;                    // per part
  std::vector<std::vector<int>> slots_of_;  // per part: where its other cuts are
  std::vector<int> basis_;                  // per slot: the column
  Vector share_;                            // per slot
  std::vector<Vector> inverse_;             // of the differences to the keys: slots x rows
  Vector multipliers_, rates_;
  std::size_t next_ = 0;  // part
  double work_ = 0;
};

}  // namespace

Master solve_master(const std::vector<Cut>& cuts, const Vector& most, double most_work) {
  return Simplex(cuts, most).run(most_work);
}

}  // namespace autopar::solver
