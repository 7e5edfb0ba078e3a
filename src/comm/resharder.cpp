// Tensors whose dimensions divide alike share their shortest paths: a tensor's dimensions are put
// in an order in which the source looks the same, whichever of several such dimensions it splits.
#include <algorithm>
#include <limits>
#include <numeric>

#include "autopar/comm.hpp"
#include "comm/shortest_paths.hpp"

namespace autopar {

namespace {

// Where there are so many states for each target, only those on the way are settled.
constexpr std::size_t kFewTargets = 4;

std::uint32_t mask_of(const AxisList& axes) {
  std::uint32_t mask = 0;
  for (int axis : axes) mask |= std::uint32_t{1} << axis;
  return mask;
}

}  // namespace

struct Resharder::State {
  std::shared_ptr<PathPool> pool;
  Shape shape;
  DType dtype = DType::kFloat32;
  PathPool::Family* family = nullptr;
  Shape extents;           // by dimension of the tensor, as the pool sees them
  std::vector<int> split;  // the dimensions that something splits, by falling extent

  State(Shape s, DType d, std::shared_ptr<PathPool> p) : pool(std::move(p)), shape(s), dtype(d) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      extents.push_back(pool->extent_of(shape[i]));
      split.push_back(static_cast<int>(i));
    }
    Shape kept;
    if (pool->splits()) std::erase_if(split, [&](int i) { return extent(i) == 1; });
    std::stable_sort(split.begin(), split.end(),
                     [&](int a, int b) { return extent(a) > extent(b); });
    for (int i : split) kept.push_back(extent(i));
    family = &pool->family(kept, element_count(shape) * size_of(dtype));
  }

  std::int64_t extent(int d) const { return extents[static_cast<std::size_t>(d)]; }

  // Equal extents in the order of what the source does with them.
  Placing placing_of(const Spec& source) const {
    Placing placing{std::vector<int>(shape.size(), -1), split};
    std::stable_sort(placing.tensor.begin(), placing.tensor.end(), [&](int a, int b) {
      if (extent(a) != extent(b)) return extent(a) > extent(b);
      return source.dims[static_cast<std::size_t>(a)] > source.dims[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < split.size(); ++i) {
      placing.place[static_cast<std::size_t>(placing.tensor[i])] = static_cast<int>(i);
    }
    return placing;
  }

  struct Reached {
    PathTree* tree;
    int state;  // -1: not at all
  };
  Reached reach(const Spec& from, const Spec& to, const Placing& placing) const {
    SpecGraph& graph = *family->graph;
    PathTree& tree = family->tree(graph.source_state(from, placing), mask_of(to.partial));
    std::vector<int> states;
    graph.add_target_states(to, placing, states);
    tree.settle(states);
    return {&tree, tree.reach(states.data(), states.data() + states.size())};
  }
};

Resharder::Resharder(Shape shape, DType dtype, Mesh mesh, Cluster cluster)
    : state_(new State(std::move(shape), dtype,
                       std::make_shared<PathPool>(std::move(mesh), std::move(cluster)))) {}
Resharder::Resharder(Shape shape, DType dtype, const Resharder& sibling)
    : state_(new State(std::move(shape), dtype, sibling.state_->pool)) {}
Resharder::~Resharder() = default;
Resharder::Resharder(Resharder&&) noexcept = default;
Resharder& Resharder::operator=(Resharder&&) noexcept = default;

void Resharder::limit(Allowance* allowance) { state_->pool->allowance = allowance; }

const Shape& Resharder::shape() const { return state_->shape; }
DType Resharder::dtype() const { return state_->dtype; }

Seconds Resharder::seconds(const Spec& from, const Spec& to) {
  const auto [tree, target] = state_->reach(from, to, state_->placing_of(from));
  return target < 0 ? kUnreachable : tree->seconds(target);
}

Reshard Resharder::path(const Spec& from, const Spec& to) {
  const Placing placing = state_->placing_of(from);
  const auto [tree, target] = state_->reach(from, to, placing);
  if (target < 0) return {{}, {}, {}, kUnreachable, 0};
  const SpecGraph& graph = *state_->family->graph;
  Reshard reshard;
  reshard.seconds = tree->seconds(target);
  reshard.peak_bytes = tree->peak_bytes(target);
  const std::vector<int> states = tree->states_to(target);
  for (std::size_t i = 1; i < states.size(); ++i) {
    const Move& move = tree->move_to(states[i]);
    CollectiveStep step =
        step_between(graph.spec_of(states[i - 1], placing), graph.spec_of(states[i], placing),
                     move.kind, graph.axes_of(move), shape());
    reshard.steps.push_back(std::move(step.collective));
    reshard.shapes.push_back(std::move(step.shape));
    reshard.specs.push_back(std::move(step.spec));
  }
  return reshard;
}

namespace {

// The states of all targets under one placing.
struct TargetStates {
  std::vector<int> states;
  std::vector<std::size_t> first;  // by target, and the end
  std::vector<int> only;           // by target; -1: there are several, or it depends on the source
};

TargetStates states_of(SpecGraph& graph, const std::vector<Spec>& to, const Placing& placing) {
  TargetStates targets;
  for (const Spec& spec : to) {
    const std::size_t first = targets.states.size();
    targets.first.push_back(first);
    graph.add_target_states(spec, placing, targets.states);
    const int state = targets.states[first];
    const bool simple = targets.states.size() == first + 1 && graph.is_reduced(state);
    targets.only.push_back(simple ? state : -1);
  }
  targets.first.push_back(targets.states.size());
  return targets;
}

}  // namespace

ReshardTable Resharder::table(const std::vector<Spec>& from, const std::vector<Spec>& to,
                              const ReshardWeights* weights) {
  SpecGraph& graph = *state_->family->graph;
  std::uint32_t wanted = 0;
  for (const Spec& spec : to) wanted |= mask_of(spec.partial);
  ReshardTable table{to.size()};
  table.seconds.resize(from.size() * to.size());
  table.peak_bytes.resize(from.size() * to.size());
  if (weights != nullptr) table.weighted.resize(from.size() * to.size());
  std::map<std::vector<int>, TargetStates> targets_of;  // by placing
  for (std::size_t f = 0; f < from.size(); ++f) {
    const Placing placing = state_->placing_of(from[f]);
    auto known = targets_of.find(placing.tensor);
    if (known == targets_of.end()) {
      known = targets_of.emplace(placing.tensor, states_of(graph, to, placing)).first;
    }
    const TargetStates& targets = known->second;
    PathTree& tree = state_->family->tree(graph.source_state(from[f], placing), wanted);
    if (targets.states.size() * kFewTargets < static_cast<std::size_t>(graph.state_count())) {
      tree.settle(targets.states);
    } else {
      tree.settle_all();
    }
    if (Allowance* allowance = state_->pool->allowance) {
      allowance->add(tree.take_work() + static_cast<double>(to.size()), tree.take_bytes());
      if (allowance->over()) break;
    }
    const double* by_price =
        weights != nullptr ? state_->family->prices.weighted(*weights) : nullptr;
    Seconds* seconds = table.seconds.data() + f * to.size();
    Bytes* peak_bytes = table.peak_bytes.data() + f * to.size();
    for (std::size_t t = 0; t < to.size(); ++t) {
      int target = targets.only[t];
      if (target < 0) {
        target = tree.reach(targets.states.data() + targets.first[t],
                            targets.states.data() + targets.first[t + 1]);
      }
      seconds[t] = target < 0 ? kUnreachable : tree.seconds(target);
      peak_bytes[t] = target < 0 ? 0 : tree.peak_bytes(target);
      if (weights == nullptr) continue;
      table.weighted[f * to.size() + t] =
          target < 0 ? kUnreachable : tree.weighted(target, by_price);
    }
  }
  return table;
}

}  // namespace autopar
