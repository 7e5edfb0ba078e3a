#include "comm/spec_graph.hpp"

#include <algorithm>

namespace autopar {

namespace {

// What a mesh axis does; kFirstDim + d: splits dimension d.
constexpr int kIdle = 0;
constexpr int kPartial = 1;
constexpr int kMade = 2;
constexpr int kFirstDim = 3;
constexpr int kMaxRank = 250;

std::size_t role_at(int axis) { return 2 * static_cast<std::size_t>(axis); }
std::size_t position_at(int axis) { return role_at(axis) + 1; }
int role_of(const std::string& key, int axis) {
  return static_cast<unsigned char>(key[role_at(axis)]);
}
void set_role(std::string& key, int axis, int role, int position = 0) {
  key[role_at(axis)] = static_cast<char>(role);
  key[position_at(axis)] = static_cast<char>(position);
}
std::uint32_t bit(int axis) { return std::uint32_t{1} << axis; }

}  // namespace

SpecGraph::SpecGraph(Shape extents, Mesh mesh)
    : extents_(std::move(extents)), mesh_(std::move(mesh)), axes_(mesh_.rank()), sequences_(1) {
  AUTOPAR_CHECK(axes_ <= kMaxMeshAxes && static_cast<int>(extents_.size()) <= kMaxRank,
                "reshard: too many mesh axes or dimensions");
}

SpecGraph::Key SpecGraph::key_of(const Spec& spec, const Placing& placing) const {
  Key key(2 * static_cast<std::size_t>(axes_) + 1, '\0');
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    int position = 0;
    for (int axis : spec.dims[d]) set_role(key, axis, kFirstDim + placing.place[d], position++);
  }
  for (int axis : spec.partial) set_role(key, axis, kPartial);
  key.back() = static_cast<char>(spec.reduction);
  return key;
}

int SpecGraph::intern(const Key& key) {
  const auto [found, is_new] = state_of_key_.try_emplace(key, state_count());
  if (!is_new) return found->second;
  State state;
  state.key = key;
  state.reduction = static_cast<Reduction>(key.back());
  std::uint32_t partial = 0, made = 0;
  for (int axis = 0; axis < axes_; ++axis) {
    const int role = role_of(key, axis);
    if (role == kPartial) partial |= bit(axis);
    if (role == kMade) made |= bit(axis);
    if (role >= kFirstDim) state.parts *= mesh_.axes[static_cast<std::size_t>(axis)].size;
  }
  states_.push_back(std::move(state));
  partial_.push_back(partial);
  made_.push_back(made);
  return found->second;
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
      if (made >> i & 1) set_role(other, spec.partial[i], kMade);
    }
    states.push_back(intern(other));
  }
}

void SpecGraph::take_apart(const Key& key, Layout& layout) const {
  layout.dims.resize(extents_.size());
  layout.parts.assign(extents_.size(), 1);
  for (auto& axes : layout.dims) axes.clear();
  layout.idle.clear();
  layout.partial.clear();
  layout.made.clear();
  for (int axis = 0; axis < axes_; ++axis) {
    const int role = role_of(key, axis);
    if (role == kIdle) layout.idle.push_back(axis);
    if (role == kPartial) layout.partial.push_back(axis);
    if (role == kMade) layout.made.push_back(axis);
    if (role < kFirstDim) continue;
    const auto d = static_cast<std::size_t>(role - kFirstDim);
    const auto position = static_cast<std::size_t>(key[position_at(axis)]);
    if (layout.dims[d].size() <= position) layout.dims[d].resize(position + 1);
    layout.dims[d][position] = static_cast<std::int8_t>(axis);
    layout.parts[d] *= mesh_.axes[static_cast<std::size_t>(axis)].size;
  }
}

Spec SpecGraph::spec_of(int state, const Placing& placing) const {
  Layout layout;
  take_apart(states_[static_cast<std::size_t>(state)].key, layout);
  Spec spec = replicated(placing.place.size());
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    spec.dims[static_cast<std::size_t>(placing.tensor[d])] = layout.dims[d];
  }
  spec.partial.append(layout.partial.begin(), layout.partial.end());
  spec.partial.append(layout.made.begin(), layout.made.end());
  std::sort(spec.partial.begin(), spec.partial.end());
  spec.reduction = states_[static_cast<std::size_t>(state)].reduction;
  return spec;
}

Collective SpecGraph::collective_of(int from, const Move& move, const Placing& placing) const {
  const bool reduces =
      move.kind == CollectiveKind::kAllReduce || move.kind == CollectiveKind::kReduceScatter;
  const auto dimension = [&](std::int16_t d) {
    return d < 0 ? -1 : placing.tensor[static_cast<std::size_t>(d)];
  };
  return {move.kind, sequence(move).axes, dimension(move.axis), dimension(move.concat_axis),
          reduces ? states_[static_cast<std::size_t>(from)].reduction : Reduction::kSum};
}

std::strong_ordering SpecGraph::order(const Move& a, const Move& b) const {
  if (a.kind != b.kind) return a.kind <=> b.kind;
  if (a.sequence != b.sequence) return sequence(a).axes <=> sequence(b).axes;
  if (a.axis != b.axis) return a.axis <=> b.axis;
  return a.concat_axis <=> b.concat_axis;
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
  for (int axis = 0; axis < axes_; ++axis) partial = partial || role_of(key, axis) == kPartial;
  if (!partial) key.back() = static_cast<char>(Reduction::kSum);
  const int to = intern(key);
  hops_.push_back({to, price_of(move, parts_of(state))});
  moves_.push_back(move);
}

void SpecGraph::add_gathers(int state, const Layout& layout) {
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    const AxisList& axes = layout.dims[d];
    for (std::size_t first = 0; first < axes.size(); ++first) {
      Key key = states_[static_cast<std::size_t>(state)].key;
      int sequence = 0;
      for (std::size_t i = first; i < axes.size(); ++i) {
        set_role(key, axes[i], kIdle);
        sequence = longer(sequence, axes[i]);
      }
      add_edge(state, {CollectiveKind::kAllGather, static_cast<std::int16_t>(d), -1, sequence},
               std::move(key));
    }
  }
}

void SpecGraph::add_exchanges(int state, const Layout& layout) {
  for (std::size_t from = 0; from < layout.dims.size(); ++from) {
    const AxisList& axes = layout.dims[from];
    for (std::size_t first = 0; first < axes.size(); ++first) {
      int sequence = 0;
      for (std::size_t i = first; i < axes.size(); ++i) sequence = longer(sequence, axes[i]);
      const std::int64_t parts =
          axes_size(mesh_, sequences_[static_cast<std::size_t>(sequence)].axes);
      for (std::size_t to = 0; to < layout.dims.size(); ++to) {
        if (to == from || extents_[to] % (layout.parts[to] * parts) != 0) continue;
        Key key = states_[static_cast<std::size_t>(state)].key;
        for (std::size_t i = first; i < axes.size(); ++i) {
          set_role(key, axes[i], kFirstDim + static_cast<int>(to),
                   static_cast<int>(layout.dims[to].size() + i - first));
        }
        add_edge(state,
                 {CollectiveKind::kAllToAll, static_cast<std::int16_t>(to),
                  static_cast<std::int16_t>(from), sequence},
                 std::move(key));
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
      set_role(key, layout.partial[i], kIdle);
      sequence = longer(sequence, layout.partial[i]);
    }
    add_edge(state, {CollectiveKind::kAllReduce, -1, -1, sequence}, std::move(key));
  }
}

void SpecGraph::add_made_partials(int state, const Layout& layout) {
  if (states_[static_cast<std::size_t>(state)].reduction != Reduction::kSum) return;
  const std::uint32_t subsets = bit(static_cast<int>(layout.idle.size()));
  for (std::uint32_t chosen = 1; chosen < subsets; ++chosen) {
    Key key = states_[static_cast<std::size_t>(state)].key;
    int sequence = 0;
    for (std::size_t i = 0; i < layout.idle.size(); ++i) {
      if (!(chosen >> i & 1)) continue;
      set_role(key, layout.idle[i], kMade);
      sequence = longer(sequence, layout.idle[i]);
    }
    add_edge(state, {CollectiveKind::kMakePartial, -1, -1, sequence}, std::move(key));
  }
}

void SpecGraph::add_appends(int state, const Layout& layout, CollectiveKind kind, int d) {
  const auto at = static_cast<std::size_t>(d);
  const std::vector<int>& axes =
      kind == CollectiveKind::kReduceScatter ? layout.partial : layout.idle;
  append_more(state, axes, {kind, static_cast<std::int16_t>(d), -1, 0},
              extents_[at] / layout.parts[at], 0, Key(states_[static_cast<std::size_t>(state)].key),
              static_cast<int>(layout.dims[at].size()));
}

void SpecGraph::append_more(int state, const std::vector<int>& axes, const Move& move,
                            std::int64_t left, std::uint32_t used, const Key& key, int position) {
  for (int axis : axes) {
    const std::int64_t size = mesh_.axes[static_cast<std::size_t>(axis)].size;
    if ((used & bit(axis)) || left % size != 0) continue;
    Move next = move;
    next.sequence = longer(move.sequence, axis);
    Key next_key = key;
    set_role(next_key, axis, kFirstDim + move.axis, position);
    add_edge(state, next, next_key);
    append_more(state, axes, next, left / size, used | bit(axis), next_key, position + 1);
  }
}

}  // namespace autopar
