#include "comm/spec_graph.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace autopar {

namespace {

constexpr int kMostPlaces = 256;
// What a mesh axis does; kFirstDim + d: splits dimension d.
constexpr int kIdle = 0;
constexpr int kPartial = 1;
constexpr int kMade = 2;
constexpr int kFirstDim = 3;
constexpr int kMaxRank = 250;

std::uint32_t bit(int axis) { return std::uint32_t{1} << axis; }

}  // namespace

SpecGraph::SpecGraph(Shape extents, Mesh mesh, Blocks blocks)
    : extents_(std::move(extents)),
      mesh_(std::move(mesh)),
      blocks_(blocks),
      axes_(mesh_.rank()),
      state_at_(1024, -1),
      sequences_(1) {
  AUTOPAR_CHECK(axes_ <= kMaxMeshAxes && static_cast<int>(extents_.size()) <= kMaxRank,
                "reshard: too many mesh axes or dimensions");
  if (blocks_ != Blocks::kSeveral) return;
  std::set<std::int64_t> products = {1};
  std::vector<std::vector<std::int64_t>> before;  // products of axes before each
  for (int axis = 0; axis < axes_; ++axis) {
    before.emplace_back(products.begin(), products.end());
    for (std::int64_t product : before.back()) products.insert(product * size_of(axis));
  }
  products_.assign(products.begin(), products.end());
  AUTOPAR_CHECK(static_cast<int>(products_.size()) <= kMostPlaces, "reshard: too many mesh axes");
  for (int axis = 0; axis < axes_; ++axis) {
    ordered_.emplace_back(products_.size(), 0);
    for (int alike = 0; alike < axes_; ++alike) {
      if (size_of(alike) != size_of(axis)) continue;
      for (std::int64_t product : before[static_cast<std::size_t>(alike)]) {
        const auto place = std::lower_bound(products_.begin(), products_.end(), product);
        ordered_.back()[static_cast<std::size_t>(place - products_.begin())] = 1;
      }
    }
  }
}

bool SpecGraph::in_mesh_order(const Key& key) const {
  for (int axis = 0; axis < axes_; ++axis) {
    if (key.what(axis) < kFirstDim) continue;
    const auto place = static_cast<std::size_t>(key.place(axis));
    if (ordered_[static_cast<std::size_t>(axis)][place] == 0) return false;
  }
  return true;
}

// The digits of a dimension leave none out where they end with as many parts as they make.
bool SpecGraph::has_gap(const Key& key) const {
  if (blocks_ == Blocks::kOne) return false;
  for (int axis = 0; axis < axes_; ++axis) {
    if (key.what(axis) < kFirstDim) continue;
    std::int64_t parts = 1, end = 1;
    for (int other = 0; other < axes_; ++other) {
      if (key.what(other) != key.what(axis)) continue;
      parts *= size_of(other);
      end = std::max(end, products_[static_cast<std::size_t>(key.place(other))] * size_of(other));
    }
    if (end != parts) return true;
  }
  return false;
}

std::span<const std::int64_t> SpecGraph::places(const Layout& layout, std::size_t d) const {
  if (blocks_ == Blocks::kSeveral) return products_;
  return {&layout.parts[d], 1};
}

bool SpecGraph::is_free(const Layout& layout, std::size_t d, std::int64_t offset,
                        std::int64_t parts) const {
  const std::int64_t end = offset * parts;
  if (extents_[d] % end != 0) return false;
  if (blocks_ != Blocks::kSeveral) return true;
  if (!std::binary_search(products_.begin(), products_.end(), end)) return false;
  for (std::size_t i = 0; i < layout.dims[d].size(); ++i) {
    const std::int64_t other = layout.offsets[d][i];
    const std::int64_t other_end = other * size_of(layout.dims[d][i]);
    if (other % end != 0 && offset % other_end != 0) return false;
  }
  return true;
}

// Of an axis after so many others of its dimension, which make so many parts of it.
int SpecGraph::place_of(std::size_t before, std::int64_t offset) const {
  if (blocks_ == Blocks::kOne) return static_cast<int>(before);
  return static_cast<int>(std::lower_bound(products_.begin(), products_.end(), offset) -
                          products_.begin());
}

SpecGraph::Key SpecGraph::key_of(const Spec& spec, const Placing& placing) const {
  Key key;
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    std::int64_t offset = 1;
    std::size_t before = 0;
    for (int axis : spec.dims[d]) {
      key.set(axis, kFirstDim + placing.place[d], place_of(before++, offset));
      offset *= size_of(axis);
    }
  }
  for (int axis : spec.partial) key.set(axis, kPartial);
  key.reduction = spec.reduction;
  return key;
}

// Where a key is, or else the free slot for it.
std::size_t SpecGraph::slot_of(const Key& key) const {
  std::uint64_t hash = static_cast<std::uint64_t>(key.reduction);
  for (int axis = 0; axis < axes_; ++axis) {
    hash = hash * 0x2545f491 + static_cast<std::uint64_t>(key.what(axis) << 8 | key.place(axis));
  }
  hash *= 0x9e3779b97f4a7c15ULL;  // D. E. Knuth, "The art of computer programming", volume 3, 6.4
  const std::size_t mask = state_at_.size() - 1;
  std::size_t slot = (hash >> 32) & mask;
  while (state_at_[slot] >= 0 && !(states_[static_cast<std::size_t>(state_at_[slot])].key == key)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

int SpecGraph::intern(const Key& key) {
  const std::size_t slot = slot_of(key);
  if (state_at_[slot] >= 0) return state_at_[slot];
  const int made_state = state_at_[slot] = state_count();
  State state;
  state.key = key;
  std::uint32_t partial = 0, made = 0;
  for (int axis = 0; axis < axes_; ++axis) {
    const int what = key.what(axis);
    if (what == kPartial) partial |= bit(axis);
    if (what == kMade) made |= bit(axis);
    if (what >= kFirstDim) state.parts *= size_of(axis);
  }
  states_.push_back(state);
  partial_.push_back(partial);
  made_.push_back(made);
  gap_.push_back(has_gap(key));
  if (2 * states_.size() > state_at_.size()) {
    state_at_.assign(2 * state_at_.size(), -1);
    for (int known = 0; known < state_count(); ++known) {
      state_at_[slot_of(states_[static_cast<std::size_t>(known)].key)] = known;
    }
  }
  return made_state;
}

int SpecGraph::source_state(const Spec& spec, const Placing& placing) {
  return intern(key_of(spec, placing));
}

void SpecGraph::add_target_states(const Spec& spec, const Placing& placing,
                                  std::vector<int>& states) {
  const Key key = key_of(spec, placing);
  states.push_back(intern(key));
  if (spec.reduction != Reduction::kSum) return;
  const std::uint32_t subsets = bit(static_cast<int>(spec.partial.size()));
  for (std::uint32_t made = 1; made < subsets; ++made) {
    Key other = key;
    for (std::size_t i = 0; i < spec.partial.size(); ++i) {
      if (made >> i & 1) other.set(spec.partial[i], kMade);
    }
    states.push_back(intern(other));
  }
}

void SpecGraph::take_apart(const Key& key, Layout& layout) const {
  layout.dims.resize(extents_.size());
  layout.offsets.resize(extents_.size());
  layout.parts.assign(extents_.size(), 1);
  for (auto& axes : layout.dims) axes.clear();
  for (auto& offsets : layout.offsets) offsets.clear();
  layout.idle.clear();
  layout.partial.clear();
  layout.made.clear();
  for (int axis = 0; axis < axes_; ++axis) {
    const int role = key.what(axis);
    if (role == kIdle) layout.idle.push_back(axis);
    if (role == kPartial) layout.partial.push_back(axis);
    if (role == kMade) layout.made.push_back(axis);
    if (role < kFirstDim) continue;
    const auto d = static_cast<std::size_t>(role - kFirstDim);
    AxisList& axes = layout.dims[d];
    axes.push_back(axis);
    for (std::size_t i = axes.size() - 1; i > 0; --i) {
      if (key.place(axes[i - 1]) <= key.place(axis)) break;
      std::swap(axes[i - 1], axes[i]);
    }
    layout.parts[d] *= size_of(axis);
  }
  if (blocks_ != Blocks::kSeveral) return;
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    for (int axis : layout.dims[d]) {
      layout.offsets[d].push_back(products_[static_cast<std::size_t>(key.place(axis))]);
    }
  }
}

DigitSpec SpecGraph::spec_of(int state, const Placing& placing) const {
  Layout layout;
  take_apart(states_[static_cast<std::size_t>(state)].key, layout);
  DigitSpec spec;
  spec.dims.resize(placing.place.size());
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    std::int64_t end = 1;
    for (std::size_t i = 0; i < layout.dims[d].size(); ++i) {
      const int axis = layout.dims[d][i];
      const std::int64_t start = blocks_ == Blocks::kSeveral ? layout.offsets[d][i] : end;
      end = start * size_of(axis);
      spec.dims[static_cast<std::size_t>(placing.tensor[d])].push_back({axis, start, end});
    }
  }
  spec.partial.append(layout.partial.begin(), layout.partial.end());
  spec.partial.append(layout.made.begin(), layout.made.end());
  std::sort(spec.partial.begin(), spec.partial.end());
  spec.reduction = states_[static_cast<std::size_t>(state)].key.reduction;
  return spec;
}

std::strong_ordering SpecGraph::order(const Move& a, const Move& b) const {
  if (a.kind != b.kind) return a.kind <=> b.kind;
  if (a.sequence != b.sequence) return sequence(a).axes <=> sequence(b).axes;
  if (a.axis != b.axis) return a.axis <=> b.axis;
  if (a.concat_axis != b.concat_axis) return a.concat_axis <=> b.concat_axis;
  return a.place <=> b.place;
}

int SpecGraph::longer(int sequence, int axis) {
  const auto at = static_cast<std::size_t>(sequence);
  if (sequences_[at].longer.empty()) sequences_[at].longer.resize(static_cast<std::size_t>(axes_));
  const int known = sequences_[at].longer[static_cast<std::size_t>(axis)];
  if (known != 0) return known;
  Sequence next{sequences_[at].axes, sequences_[at].mask | bit(axis), {}};
  next.axes.push_back(axis);
  const int made = static_cast<int>(sequences_.size());
  sequences_[at].longer[static_cast<std::size_t>(axis)] = made;
  sequences_.push_back(std::move(next));
  return made;
}

int SpecGraph::price_of(const Move& move, std::int64_t parts) {
  const std::uint32_t mask = sequence(move).mask;
  const std::uint64_t key = (static_cast<std::uint64_t>(move.kind) << 48) |
                            (static_cast<std::uint64_t>(mask) << 24) |
                            static_cast<std::uint64_t>(parts);
  const auto [found, is_new] = price_of_.try_emplace(key, price_count());
  if (!is_new) return found->second;
  PriceKey price{move.kind, {}, parts};
  for (int axis = 0; axis < axes_; ++axis) {
    if (mask & bit(axis)) price.axes.push_back(axis);
  }
  prices_.push_back(price);
  return found->second;
}

double SpecGraph::take_bytes() {
  const double bytes = static_cast<double>(states_.size() * (sizeof(State) + 3 * sizeof(int)) +
                                           hops_.size() * (sizeof(Hop) + sizeof(Move)));
  return bytes - std::exchange(counted_bytes_, bytes);
}

std::pair<int, int> SpecGraph::edges_of(int state) {
  const auto at = static_cast<std::size_t>(state);
  if (states_[at].first_edge >= 0) return {states_[at].first_edge, states_[at].last_edge};
  states_[at].first_edge = static_cast<int>(hops_.size());
  take_apart(states_[at].key, layout_);
  add_reductions(state, layout_);
  add_gathers(state, layout_);
  add_exchanges(state, layout_);
  for (int d = 0; d < static_cast<int>(extents_.size()); ++d) {
    add_appends(state, layout_, CollectiveKind::kReduceScatter, d);
    add_appends(state, layout_, CollectiveKind::kShardSlice, d);
  }
  add_made_partials(state, layout_);
  states_[at].last_edge = static_cast<int>(hops_.size());
  return {states_[at].first_edge, states_[at].last_edge};
}

void SpecGraph::add_edge(int state, const Move& move, Key key) {
  // Without any source's partial axis left, the reduction has no meaning any more.
  bool partial = false;
  for (int axis = 0; axis < axes_; ++axis) partial = partial || key.what(axis) == kPartial;
  if (!partial) key.reduction = Reduction::kSum;
  if (blocks_ == Blocks::kSeveral && !in_mesh_order(key) && has_gap(key)) return;
  const int to = intern(key);
  hops_.push_back({to, price_of(move, parts_of(state))});
  moves_.push_back(move);
}

// Of one block those at the minor end, of several all that follow each other.
void SpecGraph::add_runs(const Layout& layout, std::size_t d, std::vector<Run>& runs) {
  runs.clear();
  const AxisList& axes = layout.dims[d];
  for (std::size_t first = 0; first < axes.size(); ++first) {
    Run run;
    for (std::size_t i = first; i < axes.size(); ++i) {
      if (blocks_ == Blocks::kSeveral && i > first &&
          layout.offsets[d][i] != layout.offsets[d][i - 1] * size_of(axes[i - 1])) {
        break;
      }
      extend(run, axes[i]);
      if (blocks_ == Blocks::kSeveral || i + 1 == axes.size()) runs.push_back(run);
    }
  }
}

void SpecGraph::extend(Run& run, int axis) {
  run.sequence = longer(run.sequence, axis);
  run.parts *= size_of(axis);
  run.axes.push_back(axis);
}

void SpecGraph::add_gathers(int state, const Layout& layout) {
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    add_runs(layout, d, runs_);
    for (const Run& run : runs_) {
      Key key = states_[static_cast<std::size_t>(state)].key;
      for (int axis : run.axes) key.set(axis, kIdle);
      add_edge(state,
               {CollectiveKind::kAllGather, static_cast<std::int16_t>(d), -1, 0, run.sequence},
               std::move(key));
    }
  }
}

void SpecGraph::add_exchanges(int state, const Layout& layout) {
  for (std::size_t from = 0; from < layout.dims.size(); ++from) {
    add_runs(layout, from, runs_);
    for (const Run& run : runs_) {
      for (std::size_t to = 0; to < layout.dims.size(); ++to) {
        if (to == from && blocks_ != Blocks::kSeveral) continue;
        for (std::int64_t start : places(layout, to)) {
          if (!is_free(layout, to, start, run.parts)) continue;
          Key key = states_[static_cast<std::size_t>(state)].key;
          std::int64_t offset = start;
          for (std::size_t i = 0; i < run.axes.size(); ++i) {
            key.set(run.axes[i], kFirstDim + static_cast<int>(to),
                    place_of(layout.dims[to].size() + i, offset));
            offset *= size_of(run.axes[i]);
          }
          add_edge(
              state,
              {CollectiveKind::kAllToAll, static_cast<std::int16_t>(to),
               static_cast<std::int16_t>(from),
               static_cast<std::int16_t>(place_of(layout.dims[to].size(), start)), run.sequence},
              std::move(key));
        }
      }
    }
  }
}

void SpecGraph::add_reductions(int state, const Layout& layout) {
  const std::uint32_t subsets = bit(static_cast<int>(layout.partial.size()));
  for (std::uint32_t chosen = 1; chosen < subsets; ++chosen) {
    Key key = states_[static_cast<std::size_t>(state)].key;
    int sequence = 0;
    for (std::size_t i = 0; i < layout.partial.size(); ++i) {
      if (!(chosen >> i & 1)) continue;
      key.set(layout.partial[i], kIdle);
      sequence = longer(sequence, layout.partial[i]);
    }
    add_edge(state, {CollectiveKind::kAllReduce, -1, -1, 0, sequence}, std::move(key));
  }
}

void SpecGraph::add_made_partials(int state, const Layout& layout) {
  if (states_[static_cast<std::size_t>(state)].key.reduction != Reduction::kSum) return;
  const std::uint32_t subsets = bit(static_cast<int>(layout.idle.size()));
  for (std::uint32_t chosen = 1; chosen < subsets; ++chosen) {
    Key key = states_[static_cast<std::size_t>(state)].key;
    int sequence = 0;
    for (std::size_t i = 0; i < layout.idle.size(); ++i) {
      if (!(chosen >> i & 1)) continue;
      key.set(layout.idle[i], kMade);
      sequence = longer(sequence, layout.idle[i]);
    }
    add_edge(state, {CollectiveKind::kMakePartial, -1, -1, 0, sequence}, std::move(key));
  }
}

void SpecGraph::add_appends(int state, const Layout& layout, CollectiveKind kind, int d) {
  const auto at = static_cast<std::size_t>(d);
  const std::vector<int>& axes =
      kind == CollectiveKind::kReduceScatter ? layout.partial : layout.idle;
  if (axes.empty()) return;
  for (std::int64_t start : places(layout, at)) {
    append_more(state, layout, axes,
                {kind, static_cast<std::int16_t>(d), -1,
                 static_cast<std::int16_t>(place_of(layout.dims[at].size(), start)), 0},
                start, 1, Key(states_[static_cast<std::size_t>(state)].key));
  }
}

void SpecGraph::append_more(int state, const Layout& layout, const std::vector<int>& axes,
                            const Move& move, std::int64_t start, std::int64_t parts,
                            const Key& key) {
  const auto d = static_cast<std::size_t>(move.axis);
  const std::size_t before = sequence(move).axes.size();
  const std::uint32_t used = sequence(move).mask;
  for (int axis : axes) {
    if (used & bit(axis)) continue;
    if (!is_free(layout, d, start, parts * size_of(axis))) continue;
    Move next = move;
    next.sequence = longer(move.sequence, axis);
    Key next_key = key;
    next_key.set(axis, kFirstDim + move.axis,
                 place_of(layout.dims[d].size() + before, start * parts));
    add_edge(state, next, next_key);
    append_more(state, layout, axes, next, start, parts * size_of(axis), next_key);
  }
}

}  // namespace autopar
