#include "solve/windows/completions.hpp"

#include <algorithm>
#include <utility>

#include "solve/effort.hpp"
#include "solve/windows/runs.hpp"

namespace autopar::solver {
namespace {

using namespace effort::completions;

std::size_t most_of_list(double in_all, std::size_t layers, std::size_t lists, std::size_t most) {
  if (in_all < kMostInAll / 2) return most;
  const double each = (kMostInAll - in_all) / static_cast<double>(layers * lists);
  return static_cast<std::size_t>(std::clamp(each, kFewest, static_cast<double>(most)));
}

// Of a list by rising use: only those that cost less than all before.
void keep_front(std::vector<Completion>& list) {
  std::size_t kept = 0;
  for (const Completion& completion : list) {
    if (kept > 0 && completion.cost >= list[kept - 1].cost) continue;
    list[kept++] = completion;
  }
  list.resize(kept);
}

// Joins neighbours that differ by no more than `loss` in use or in cost.
void join(std::vector<Completion>& list, Units loss) {
  std::size_t kept = 0;
  Completion first = {};
  for (const Completion& completion : list) {
    if (kept > 0 && std::min(completion.use - first.use, first.cost - completion.cost) <= loss) {
      list[kept - 1].cost = completion.cost;
      continue;
    }
    first = completion;
    list[kept++] = completion;
  }
  list.resize(kept);
}

// By a small loss, as a power of two, that makes the list short enough. `start` is where to begin:
// a little below what the list before took.
void shorten(std::vector<Completion>& list, std::size_t most, Units& start) {
  if (list.size() <= most) return;
  Units loss = start;
  for (; list.size() > most; loss *= 2) join(list, loss);
  start = std::max<Units>(1, loss / 16);
}

}  // namespace

Units Completions::least_cost(std::size_t frontier, Units use, std::size_t& hint) const {
  const std::size_t begin = begins[frontier], end = begins[frontier + 1];
  std::size_t after = std::clamp(hint, begin, end);
  while (after < end && all[after].use <= use) ++after;
  while (after > begin && all[after - 1].use > use) --after;
  hint = after;
  return after == begin ? kNoCost : all[after - 1].cost;
}

std::vector<Completions> find_completions(const Trellis& trellis, std::size_t most,
                                          Budget& budget) {
  std::vector<Completions> result(trellis.layers.size());
  if (result.empty()) return result;
  result.back() = {{0, 1}, {{0, 0}}};
  const auto uses_less = [](const Completion& a, const Completion& b) {
    return a.use != b.use ? a.use < b.use : a.cost < b.cost;
  };
  std::vector<Completion> list, buffer;
  std::vector<std::size_t> runs;
  Units start = 1;
  double in_all = 0;
  for (std::size_t i = trellis.layers.size(); i-- > 1 && !budget.over();) {
    const TrellisLayer& layer = trellis.layers[i];
    const std::vector<Units>& least = layer.least;
    std::vector<std::vector<const TrellisArc*>> leaving(least.size());
    for (const TrellisArc& arc : layer.arcs) leaving[at(arc.from)].push_back(&arc);
    Completions& before = result[i - 1];
    before.begins = {0};
    const std::size_t most_here = most_of_list(in_all, i, least.size(), most);
    for (std::size_t f = 0; f < least.size(); ++f) {
      list.clear();
      runs.clear();
      for (const TrellisArc* arc : leaving[f]) {
        const Completions& after = result[i];
        const Units use = arc->value - arc->cost;
        runs.push_back(list.size());
        for (std::size_t k = after.begins[at(arc->to)]; k < after.begins[at(arc->to) + 1]; ++k) {
          const Completion made = {after.all[k].use + use, after.all[k].cost + arc->cost};
          if (least[f] + made.use + made.cost < trellis.room) list.push_back(made);
        }
      }
      budget.add(static_cast<double>(list.size() + 1));
      merge_runs(list, runs, buffer, uses_less);
      keep_front(list);
      shorten(list, most_here, start);
      before.all.insert(before.all.end(), list.begin(), list.end());
      before.begins.push_back(before.all.size());
    }
    before.all.shrink_to_fit();
    in_all += static_cast<double>(before.all.size());
  }
  return result;
}

}  // namespace autopar::solver
