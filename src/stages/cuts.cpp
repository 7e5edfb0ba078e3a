#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "autopar/stages.hpp"
#include "stages/assign.hpp"
#include "stages/crossing.hpp"

namespace autopar {

namespace {

// Chunks that are alike are planned once: cuts at like places may make the busiest chunk so much
// busier.
constexpr double kLittleMore = 1.01;

// What lies between two narrow places is cut where it is so many times as busy as a chunk is on
// average. Chosen, not tuned.
constexpr double kTooBusy = 1.25;

struct Place {
  std::size_t op = 0;  // that the cut is before
  Bytes crossing = 0;
  int inside = 0;                     // values that cross and that a kernel would not store
  Seconds forward = 0, backward = 0;  // of all ops before, with the update's part of a pass
  int weights = 0;                    // ops before that read what is stored, and not that alone
};

// What crosses before each forward op: values of the passes, not stored or shared ones, that are
// made before and read behind it.
std::vector<Place> places_of(const Graph& step, const OpSeconds& seconds,
                             const std::string& updates) {
  const std::vector<ValueId> next = stages::next_values(step, updates);
  const std::vector<char> shared = stages::made_of_data(step, next);
  const auto uses = uses_of(step);
  std::vector<Bytes> change(step.ops.size() + 1, 0);
  std::vector<int> inside_change(step.ops.size() + 1, 0);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    if (step.ops[o].phase != Phase::kForward || shared[o]) continue;
    for (ValueId id : step.ops[o].outputs) {
      if (!id.valid()) continue;
      std::size_t last = o;
      for (const Use& use : uses[id.index()]) {
        if (step.op(use.op).phase == Phase::kForward) last = std::max(last, use.op.index());
      }
      change[o + 1] += step.value(id).bytes();
      change[last + 1] -= step.value(id).bytes();
      if (!step.is_inside(id)) continue;
      ++inside_change[o + 1];
      --inside_change[last + 1];
    }
  }
  std::vector<Place> places;
  Bytes crossing = 0;
  Seconds forward = 0, backward = 0;
  int inside = 0, weights = 0;
  const auto is_stored = [&](ValueId id) {
    return id.valid() &&
           (step.value(id).kind == ValueKind::kParameter || next[id.index()].valid()) &&
           !step.value(id).accumulates;
  };
  // What is made of weights alone goes where it is read first, whatever chunk it stands in.
  std::vector<char> of_weights(step.ops.size());
  const auto is_of_weights = [&](ValueId id) {
    return id.valid() && step.value(id).producer.valid() &&
           of_weights[step.value(id).producer.index()] != 0;
  };
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    crossing += change[o];
    inside += inside_change[o];
    if (step.ops[o].phase != Phase::kForward) continue;
    if (o > 0 && crossing > 0 && !shared[o]) {
      places.push_back({o, crossing, inside, forward, backward, weights});
    }
    forward += seconds.forward[o];
    backward += seconds.backward[o];
    if (o < seconds.update.size()) {
      backward += seconds.update[o] / static_cast<double>(step.passes);
    }
    const std::vector<ValueId>& inputs = step.ops[o].inputs;
    const bool reads = std::any_of(inputs.begin(), inputs.end(),
                                   [&](ValueId id) { return is_stored(id) || is_of_weights(id); });
    of_weights[o] = reads && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
                      return !id.valid() || is_stored(id) || is_of_weights(id) ||
                             step.value(id).kind == ValueKind::kConstant;
                    });
    weights += reads && of_weights[o] == 0 ? 1 : 0;
  }
  places.push_back({step.ops.size(), 0, 0, forward, backward, weights});  // the end
  return places;
}

Seconds until(const Place& place) { return place.forward + place.backward; }

// Of runs of places with the same crossing the first ones, if none beside a run has less.
std::vector<Place> narrow_places(const std::vector<Place>& all) {
  std::vector<Place> narrow;
  for (std::size_t p = 0, end = 0; p + 1 < all.size(); p = end) {
    for (end = p + 1; end + 1 < all.size() && all[end].crossing == all[p].crossing;) ++end;
    if (p > 0 && all[p - 1].crossing < all[p].crossing) continue;
    if (end + 1 == all.size() || all[end].crossing > all[p].crossing) narrow.push_back(all[p]);
  }
  narrow.push_back(all.back());
  return narrow;
}

// The narrow ones, and all that lie between two of these with more than a chunk's part of the step
// between them. No kernel is cut. Where they are too few for the chunks: all.
std::vector<Place> places_for(std::vector<Place> all, std::size_t chunks) {
  std::vector<Place> uncut = all;
  std::erase_if(uncut, [](const Place& place) { return place.inside > 0; });
  const std::vector<Place> narrow = narrow_places(uncut);
  const Seconds most = kTooBusy * until(all.back()) / static_cast<double>(chunks);
  std::vector<Place> places;
  Seconds before = 0;
  auto next = uncut.begin();
  for (const Place& place : narrow) {
    const bool is_too_busy = until(place) - before > most;
    for (; next->op < place.op; ++next) {
      if (is_too_busy) places.push_back(*next);
    }
    places.push_back(*next++);
    before = until(place);
  }
  std::set<int> read;  // until a place; each chunk reads more
  for (const Place& place : places) {
    if (place.weights > 0) read.insert(place.weights);
  }
  return read.size() < chunks ? all : places;
}

// Places before the same types of ops, up to the next place: those between layers, for one. With
// the end, the most frequent first.
std::vector<std::pair<std::string, std::vector<Place>>> alike_places(
    const Graph& step, const std::vector<Place>& places) {
  std::map<std::string, std::vector<Place>> classes;
  for (std::size_t p = 0; p + 1 < places.size(); ++p) {
    std::string ops;
    for (std::size_t o = places[p].op; o < places[p + 1].op; ++o) {
      if (step.ops[o].phase == Phase::kForward) ops += step.ops[o].type + " ";
    }
    classes[ops].push_back(places[p]);
  }
  std::vector<std::pair<std::string, std::vector<Place>>> found;
  for (auto& [ops, alike] : classes) {
    if (alike.size() < 2) continue;
    alike.push_back(places.back());
    found.emplace_back(ops, std::move(alike));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return found;
}

// Of each place how many parts of their names the forward ops before and behind have in common.
std::vector<int> common_parts(const Graph& step, const std::vector<Place>& places) {
  std::vector<int> parts;
  std::size_t before = 0;  // the last forward op
  for (std::size_t o = 0; o < step.ops.size() && parts.size() < places.size(); ++o) {
    if (step.ops[o].phase != Phase::kForward) continue;
    if (o == places[parts.size()].op) {
      const std::string& name = step.ops[o].name;
      const std::string& other = step.ops[before].name;
      const auto end = std::mismatch(name.begin(), name.end(), other.begin(), other.end()).first;
      parts.push_back(static_cast<int>(
          std::count_if(name.begin(), end, [](char c) { return c == '.' || c == '/'; })));
    }
    before = o;
  }
  return parts;
}

struct Best {
  Seconds busiest = std::numeric_limits<Seconds>::infinity();
  Bytes crossing = 0;
  int from = -1;  // the place of the cut before
  bool operator<(const Best& other) const {
    return std::pair(busiest, crossing) < std::pair(other.busiest, other.crossing);
  }
};

// Per chunk the op before which it ends; none: there are too few places between parameters.
struct Ends {
  std::vector<std::size_t> ops;
  Seconds busiest = std::numeric_limits<Seconds>::infinity();
  Bytes crossing = 0;
};
Ends best_ends(const std::vector<Place>& places, std::size_t chunks, double bytes_per_s,
               const ChunkSeconds& given_beside) {
  const auto count = places.size();
  const auto sending = [&](std::size_t p) {
    return static_cast<double>(places[p].crossing) / bytes_per_s;
  };
  const auto op_of = [&](std::size_t p) {
    return p + 1 == count ? OpId() : OpId(static_cast<std::int64_t>(places[p].op));
  };
  const auto beside = [&](std::size_t c, OpId from, std::size_t p) {
    return given_beside ? given_beside(c, from, op_of(p)) : 0;
  };
  // best[c][p]: chunks 0 to c, the last of which ends at place p.
  std::vector<std::vector<Best>> best(chunks, std::vector<Best>(count));
  for (std::size_t p = 0; p < count; ++p) {
    if (places[p].weights == 0) continue;
    best[0][p] = {until(places[p]) + sending(p) + beside(0, OpId(0), p), places[p].crossing, -1};
  }
  for (std::size_t c = 1; c < chunks; ++c) {
    for (std::size_t p = c; p < count; ++p) {
      // The longer the chunk, the busier; of equals the longest is taken.
      for (std::size_t from = p; from-- > c - 1;) {
        const bool is_empty = places[from].weights == places[p].weights;
        if (is_empty || best[c - 1][from].busiest == Best().busiest) continue;
        const Seconds busy = until(places[p]) - until(places[from]) + sending(p);
        if (busy > best[c][p].busiest) break;
        if (best[c - 1][from].busiest > best[c][p].busiest) continue;
        const Seconds own = busy + beside(c, op_of(from), p);
        const Best found = {std::max(best[c - 1][from].busiest, own),
                            best[c - 1][from].crossing + places[p].crossing,
                            static_cast<int>(from)};
        if (!(best[c][p] < found)) best[c][p] = found;
      }
    }
  }
  Ends ends;
  ends.busiest = best.back().back().busiest;
  ends.crossing = best.back().back().crossing;
  if (ends.busiest == Best().busiest) return ends;
  auto place = static_cast<int>(count) - 1;
  for (std::size_t c = chunks; c-- > 0;) {
    ends.ops.insert(ends.ops.begin(), places[static_cast<std::size_t>(place)].op);
    place = best[c][static_cast<std::size_t>(place)].from;
  }
  return ends;
}

}  // namespace

std::vector<OpId> cut_places(const Graph& step, int chunks, const OpSeconds& seconds,
                             const std::string& updates) {
  AUTOPAR_CHECK(seconds.forward.size() == step.ops.size(), "seconds of other ops");
  const auto count = static_cast<std::size_t>(std::max(1, chunks));
  const std::vector<Place> places = places_for(places_of(step, seconds, updates), count);
  std::vector<OpId> cuts;
  for (const Place& place : places) {
    const bool is_between = place.weights > 0 && place.weights < places.back().weights;
    if (is_between) cuts.push_back(OpId(static_cast<std::int64_t>(place.op)));
  }
  return cuts;
}

Result<std::vector<OpId>> balanced_cuts(const Graph& step, int chunks, const std::vector<OpId>& at,
                                        const OpSeconds& seconds, double bytes_per_s,
                                        const std::string& updates, const ChunkSeconds& beside) {
  AUTOPAR_CHECK(seconds.forward.size() == step.ops.size(), "seconds of other ops");
  if (chunks < 1) return input_error("a pipeline has at least one chunk");
  if (chunks == 1) return std::vector<OpId>();
  const auto count = static_cast<std::size_t>(chunks);
  std::vector<Place> places = places_of(step, seconds, updates);
  std::erase_if(places, [&](const Place& place) {
    return place.op < step.ops.size() &&
           !std::binary_search(at.begin(), at.end(), OpId(static_cast<std::int64_t>(place.op)));
  });
  Ends ends = best_ends(places, count, bytes_per_s, beside);
  if (ends.ops.empty()) {
    return input_error("the model cannot be cut into " + std::to_string(chunks) +
                       " chunks that each read a parameter; try fewer stages");
  }
  std::vector<OpId> cuts;
  const Seconds most = kLittleMore * ends.busiest;
  bool is_alike = false;
  for (const auto& [ops, alike] : alike_places(step, places)) {
    Ends of_class = best_ends(alike, count, bytes_per_s, beside);
    if (of_class.busiest > most || (is_alike && of_class.crossing >= ends.crossing)) continue;
    ends = std::move(of_class);
    is_alike = true;
  }
  for (std::size_t c = 0; c + 1 < ends.ops.size(); ++c) {
    cuts.push_back(OpId(static_cast<std::int64_t>(ends.ops[c])));
  }
  return cuts;
}

std::vector<Bytes> bytes_crossing(const Graph& step, const std::string& updates) {
  std::vector<Bytes> crossing(step.ops.size(), 0);
  const std::vector<Seconds> none(step.ops.size(), 0);
  for (const Place& place : places_of(step, {none, none}, updates)) {
    if (place.op < crossing.size()) crossing[place.op] = place.crossing;
  }
  return crossing;
}

std::vector<OpId> layer_cuts(const Graph& step, const OpSeconds& seconds,
                             const std::string& updates) {
  struct Kind {
    int parts = 0;
    std::vector<Place> places;
    auto rank() const {
      return std::tuple(places.front().crossing, parts, -static_cast<int>(places.size()),
                        places.front().op);
    }
  };
  std::vector<Kind> kinds;
  std::size_t most = 0;
  for (auto& [ops, alike] : alike_places(step, places_for(places_of(step, seconds, updates), 2))) {
    alike.pop_back();  // the end
    std::map<int, std::vector<Place>> by_parts;
    const std::vector<int> parts = common_parts(step, alike);
    for (std::size_t p = 0; p < alike.size(); ++p) by_parts[parts[p]].push_back(alike[p]);
    for (auto& [count, places] : by_parts) {
      if (places.size() < 2) continue;
      most = std::max(most, places.size());
      kinds.push_back({count, std::move(places)});
    }
  }
  std::erase_if(kinds, [most](const Kind& kind) { return 2 * kind.places.size() < most; });
  const auto best = std::min_element(
      kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) { return a.rank() < b.rank(); });
  std::vector<OpId> cuts;
  if (best == kinds.end()) return cuts;
  for (const Place& place : best->places) {
    cuts.push_back(OpId(static_cast<std::int64_t>(place.op)));
  }
  return cuts;
}

}  // namespace autopar
