#include "solve/windows/windows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/effort.hpp"
#include "solve/network/arrangement.hpp"
#include "solve/network/reduce.hpp"
#include "solve/windows/exact_sweep.hpp"

namespace autopar::solver {
namespace {

using namespace effort::windows;

constexpr double kFarAway = 1e6;  // bounds so far below the cutoff are none

bool is_whole(double value) { return value == std::floor(value) && std::abs(value) < 0x1p52; }

// In any order.
bool adds_up_exactly(const Network& net) {
  bool exactly = std::all_of(net.capacity.begin(), net.capacity.end(), is_whole);
  for_each_owner(net, [&](const std::vector<RowUse>& uses, auto values_of) {
    for (const RowUse& use : uses) {
      const Vector& bytes = values_of(use);
      exactly = exactly && std::all_of(bytes.begin(), bytes.end(), is_whole);
    }
  });
  return exactly;
}

// Everything below the cutoff. The bound stays below it where that was too much.
Found search_window(const Network& net, const Dual& dual, double cutoff, Budget& budget) {
  if (dual.exhausted() || dual.bound() >= cutoff) return {.bound = cutoff};
  budget.add(4 * dual.surviving_entries());
  const std::unique_ptr<Network> child = dual.survivors(false);
  if (!child->impossible) reduce(*child);
  budget.add(child->algebra.work());
  if (child->impossible || child->constant >= cutoff) return {.bound = cutoff};
  Found found = {.bound = child->constant};
  const std::vector<int> order = narrow_order(*child);
  std::optional<Trellis> trellis = build_trellis(*child, order, cutoff, kMostArcs, budget);
  if (!trellis) return found;
  if (trellis->least >= trellis->room) return {.bound = cutoff};
  const Swept swept = sweep_exactly(*child, *trellis, budget);
  const double left_out = child->constant + static_cast<double>(swept.left_out) / trellis->scale;
  found.bound = swept.left_out < trellis->room ? std::max(found.bound, left_out) : cutoff;
  if (swept.labels.empty()) return found;
  Incumbent best;
  keep_if_better(net, in_parent(net, *child, lift(*child, swept.labels)), cutoff, best);
  found.value = best.value;
  found.labels = std::move(best.labels);
  found.bound = std::min(found.bound, found.value);
  return found;
}

}  // namespace

Found search_windows(const Network& net, const Dual& dual, double cutoff, Budget& budget) {
  Found all = {.bound = dual.bound()};
  const double gap = cutoff - dual.bound();
  if (!(gap < kFarAway * std::abs(cutoff)) || !adds_up_exactly(net)) return all;
  double part = std::min(effort::windows::kFirstPart, kFirst * std::abs(cutoff) / gap);
  while (all.bound < cutoff && !budget.over()) {
    const double below = part < 1 ? dual.bound() + part * (cutoff - dual.bound()) : cutoff;
    Dual narrowed = dual;
    narrowed.pass(below);
    budget.add(narrowed.work_per_pass());
    Found found = search_window(net, narrowed, below, budget);
    all.bound = std::max(all.bound, found.bound);
    if (found.value < all.value) {
      all.value = found.value;
      all.labels = std::move(found.labels);
      cutoff = strictly_below(found.value);
    }
    if (all.bound < std::min(below, cutoff) || part >= 1) break;
    part = std::min(1.0, 2 * part);
  }
  return all;
}

}  // namespace autopar::solver
