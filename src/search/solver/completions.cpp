#include "search/solver/completions.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace autopar::solver {
namespace {

constexpr Units kMostUnits = std::numeric_limits<Units>::max() / 4;

// Only those that use more than others and cost less.
void keep_front(std::vector<Completion>& list) {
  std::sort(list.begin(), list.end(), [](const Completion& a, const Completion& b) {
    return a.use != b.use ? a.use < b.use : a.cost < b.cost;
  });
  std::size_t kept = 0;
  for (const Completion& completion : list) {
    if (kept > 0 && completion.cost >= list[kept - 1].cost) continue;
    list[kept++] = completion;
  }
  list.resize(kept);
}

// Joins neighbours that differ by less than `loss` in use or in cost.
std::vector<Completion> joined(const std::vector<Completion>& list, Units loss) {
  std::vector<Completion> result;
  Completion first = {};
  for (const Completion& completion : list) {
    if (!result.empty() &&
        std::min(completion.use - first.use, first.cost - completion.cost) <= loss) {
      result.back().cost = completion.cost;
      continue;
    }
    first = completion;
    result.push_back(completion);
  }
  return result;
}

// By the least loss, as a power of two, that makes the list short enough.
void shorten(std::vector<Completion>& list, std::size_t most) {
  for (Units loss = 1; list.size() > most; loss *= 2) list = joined(list, loss);
}

}  // namespace

Units Completions::least_cost(std::size_t frontier, Units use) const {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(begins[frontier]);
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(begins[frontier + 1]);
  const auto after = std::upper_bound(
      begin, end, use, [](Units most, const Completion& next) { return most < next.use; });
  return after == begin ? kMostUnits : std::prev(after)->cost;
}

std::vector<Completions> find_completions(const Trellis& trellis, std::size_t most,
                                          Budget& budget) {
  std::vector<Completions> result(trellis.layers.size());
  if (result.empty()) return result;
  result.back() = {{0, 1}, {{0, 0}}};
  std::vector<Completion> list;
  for (std::size_t i = trellis.layers.size(); i-- > 1;) {
    const TrellisLayer& layer = trellis.layers[i];
    const std::vector<Units>& least = layer.least;
    std::vector<std::vector<const TrellisArc*>> leaving(least.size());
    for (const TrellisArc& arc : layer.arcs) leaving[at(arc.from)].push_back(&arc);
    Completions& before = result[i - 1];
    before.begins = {0};
    for (std::size_t f = 0; f < least.size(); ++f) {
      list.clear();
      for (const TrellisArc* arc : leaving[f]) {
        const Completions& after = result[i];
        const Units use = arc->value - arc->cost;
        for (std::size_t k = after.begins[at(arc->to)]; k < after.begins[at(arc->to) + 1]; ++k) {
          const Completion made = {after.all[k].use + use, after.all[k].cost + arc->cost};
          if (least[f] + made.use + made.cost < trellis.room) list.push_back(made);
        }
      }
      budget.add(static_cast<double>(10 * list.size() + 1));
      keep_front(list);
      shorten(list, most);
      before.all.insert(before.all.end(), list.begin(), list.end());
      before.begins.push_back(before.all.size());
    }
  }
  return result;
}

}  // namespace autopar::solver
