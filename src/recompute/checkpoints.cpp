#include "recompute/checkpoints.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace autopar {
namespace {

struct Place {
  std::size_t op = 0;
  Bytes across = 0;
  Bytes made = 0;  // by this op and all before
};

// Where less is handed on than before and after, and the beginning, where nothing is kept.
std::vector<Place> narrow_places(const std::vector<Bytes>& across, const std::vector<Bytes>& made) {
  std::vector<Place> places = {Place{}};
  Bytes sum = 0;
  for (std::size_t t = 0; t + 1 < across.size(); ++t) {
    sum += made[t];
    const bool falls = t == 0 || across[t] <= across[t - 1];
    if (falls && across[t] < across[t + 1]) places.push_back({t, across[t], sum});
  }
  return places;
}

// What is kept at the fewest bytes where no segment makes more than `most`.
struct Cut {
  Bytes kept = 0;
  std::vector<std::size_t> places;  // but the beginning
};
std::optional<Cut> cheapest_cut(const std::vector<Place>& places, Bytes all, Bytes most) {
  std::vector<Bytes> best(places.size(), 0);
  std::vector<int> before(places.size(), -1);
  std::deque<std::size_t> reached = {0};  // those from which one may go on, `best` rising
  for (std::size_t p = 1; p < places.size(); ++p) {
    while (!reached.empty() && places[p].made - places[reached.front()].made > most) {
      reached.pop_front();
    }
    if (reached.empty()) return std::nullopt;
    before[p] = static_cast<int>(reached.front());
    best[p] = best[reached.front()] + places[p].across;
    while (!reached.empty() && best[reached.back()] >= best[p]) reached.pop_back();
    reached.push_back(p);
  }
  while (!reached.empty() && all - places[reached.front()].made > most) reached.pop_front();
  if (reached.empty()) return std::nullopt;
  Cut cut{best[reached.front()], {}};
  for (auto p = static_cast<int>(reached.front()); p > 0; p = before[static_cast<std::size_t>(p)]) {
    cut.places.push_back(static_cast<std::size_t>(p));
  }
  std::reverse(cut.places.begin(), cut.places.end());
  return cut;
}

}  // namespace

std::vector<std::size_t> checkpoints(const std::vector<Bytes>& across,
                                     const std::vector<Bytes>& made) {
  const std::vector<Place> places = narrow_places(across, made);
  Bytes all = 0;
  for (Bytes bytes : made) all += bytes;
  Bytes least = all;
  std::vector<std::size_t> best;
  // Each time segments that make an eighth less.
  for (Bytes most = all; most > 0; most -= std::max<Bytes>(1, most / 8)) {
    const auto cut = cheapest_cut(places, all, most);
    if (!cut) break;
    if (cut->kept + most >= least) continue;
    least = cut->kept + most;
    best.clear();
    for (std::size_t p : cut->places) best.push_back(places[p].op);
  }
  return best;
}

}  // namespace autopar
