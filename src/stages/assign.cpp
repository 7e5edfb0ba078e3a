#include "stages/assign.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace autopar::stages {

namespace {

constexpr int kUnknown = -2;

// What is trained has a rank, be it a bias of one number.
bool is_number(const Value& value) { return value.shape.empty(); }

// What adds up numbers of the data alone, such as that of tokens: all updates need it, so it is
// where none of them waits for the chunk of another.
bool counts(const Graph& graph, const std::vector<char>& shared, const Op& op) {
  return std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
    const Value& value = graph.value(id);
    return is_number(value) &&
           (value.accumulates || (value.producer.valid() && shared[value.producer.index()]));
  });
}

// Readers come after what they read: what is made of weights alone goes where it is read first.
std::vector<OpId> deciding(const Graph& graph, const std::vector<std::vector<Use>>& uses,
                           const std::vector<ValueId>& next, const std::vector<char>& shared) {
  std::vector<char> of_weights(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::kForward || shared[o]) continue;
    of_weights[o] = std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      if (!id.valid() || graph.value(id).kind == ValueKind::kConstant) return true;
      const OpId maker = graph.value(id).producer;
      if (maker.valid()) return of_weights[maker.index()] != 0;
      return graph.value(id).kind == ValueKind::kParameter || next[id.index()].valid();
    });
  }
  std::vector<OpId> decides(graph.ops.size());
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::kForward || shared[o]) continue;
    decides[o] = counts(graph, shared, op) ? OpId(0) : OpId(static_cast<std::int64_t>(o));
    if (of_weights[o] == 0) continue;
    OpId first;
    for (ValueId output : op.outputs) {
      for (const Use& use : output.valid() ? uses[output.index()] : std::vector<Use>()) {
        const OpId reader = decides[use.op.index()];
        if (reader.valid()) first = first.valid() ? std::min(first, reader) : reader;
      }
    }
    if (first.valid()) decides[o] = first;
  }
  return decides;
}

class Assigner {
 public:
  Assigner(const Graph& step, const std::vector<OpId>& cuts, const std::string& updates)
      : graph_(step), cuts_(cuts), uses_(uses_of(step)), chunk_(step.ops.size(), kUnknown) {
    found_.next = next_values(step, updates);
    shared_ = made_of_data(step, found_.next);
  }

  Ownership run() {
    forward();
    backward();
    update();
    found_.chunk_of_op = std::move(chunk_);
    return std::move(found_);
  }

 private:
  int& chunk(std::size_t op) { return chunk_[op]; }
  OpId maker(ValueId id) const { return graph_.value(id).producer; }

  int by_position(std::size_t op) const {
    const auto after = std::upper_bound(cuts_.begin(), cuts_.end(), op,
                                        [](std::size_t o, OpId cut) { return o < cut.index(); });
    return static_cast<int>(after - cuts_.begin());
  }

  void forward() {
    const std::vector<OpId> decides = deciding(graph_, uses_, found_.next, shared_);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (shared_[o]) chunk(o) = kShared;
      if (decides[o].valid()) chunk(o) = by_position(decides[o].index());
    }
  }

  // By the forward op whose gradients an op makes, which its name begins with; never behind a chunk
  // whose gradients it reads, which has its turn before.
  void backward() {
    // Families: the ops of a loss, of which the one with its name may be gone.
    std::map<std::string, int> forward, families;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const std::string& name = graph_.ops[o].name;
      if (graph_.ops[o].phase != Phase::kForward || chunk_[o] < 0) continue;
      forward[name] = chunk_[o];
      int& family = families.try_emplace(name.substr(0, name.find('/')), chunk_[o]).first->second;
      family = std::max(family, chunk_[o]);
    }
    forward.merge(families);  // an op's own name comes first
    const int behind_all = static_cast<int>(cuts_.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase != Phase::kBackward || shared_[o]) continue;
      int of_forward = kUnknown, first = kUnknown, last = kUnknown;
      for (std::size_t at = op.name.find(".grad"); at != std::string::npos;
           at = op.name.find(".grad", at + 1)) {
        const auto known = forward.find(op.name.substr(0, at));
        if (known != forward.end()) of_forward = known->second;
      }
      for (ValueId id : op.inputs) {
        const OpId made_by = id.valid() ? maker(id) : OpId();
        if (!made_by.valid() || chunk_[made_by.index()] < 0) continue;
        const int at = chunk_[made_by.index()];
        if (graph_.op(made_by).phase == Phase::kForward) {
          last = std::max(last, at);
        } else {
          first = first < 0 ? at : std::min(first, at);
        }
      }
      chunk(o) = of_forward >= 0 ? of_forward : first >= 0 ? first : last >= 0 ? last : behind_all;
      if (counts(graph_, shared_, op)) chunk(o) = 0;
      if (first >= 0) chunk(o) = std::min(chunk(o), first);
    }
  }

  // Ops that tensors connect update one parameter, whose gradient is where its accumulator is.
  // What is made of single numbers goes behind all that it is made of, so that chunks wait for each
  // other in one direction.
  void update() {
    for (ValueId output : graph_.outputs) {
      if (maker(output).valid()) home_[output] = chunk_[maker(output).index()];
    }
    component_.resize(graph_.values.size());
    std::iota(component_.begin(), component_.end(), std::size_t{0});
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::kUpdate) connect(op);
    }
    std::map<std::size_t, int> chunk_of;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const int at = home_of(ValueId(static_cast<std::int64_t>(v)));
      if (at < 0) continue;
      int& known = chunk_of.try_emplace(root(v), at).first->second;
      known = std::max(known, at);
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase != Phase::kUpdate || shared_[o]) continue;
      const auto tensor = tensor_of(op);
      const auto known = tensor.valid() ? chunk_of.find(root(tensor.index())) : chunk_of.end();
      chunk(o) = known != chunk_of.end() ? known->second : last_of(op);
    }
  }

  void connect(const Op& op) {
    const ValueId first = tensor_of(op);
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (ValueId id : *ids) {
        const bool is_tensor = id.valid() && !is_number(graph_.value(id)) &&
                               graph_.value(id).kind != ValueKind::kConstant;
        if (is_tensor) component_[root(id.index())] = root(first.index());
      }
    }
  }

  ValueId tensor_of(const Op& op) const {
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (ValueId id : *ids) {
        const bool is_tensor = id.valid() && !is_number(graph_.value(id)) &&
                               graph_.value(id).kind != ValueKind::kConstant;
        if (is_tensor) return id;
      }
    }
    return {};
  }

  std::size_t root(std::size_t value) {
    while (component_[value] != value) {
      value = component_[value] = component_[component_[value]];
    }
    return value;
  }

  // Of an accumulator: where the passes add to it.
  int home_of(ValueId id) const {
    const ValueId next = found_.next[id.index()];
    if (!graph_.value(id).accumulates || !next.valid()) return kUnknown;
    const auto known = home_.find(next);
    return known == home_.end() ? kUnknown : known->second;
  }

  int last_of(const Op& op) const {
    int last = 0;
    for (ValueId id : op.inputs) {
      if (!id.valid()) continue;
      last = std::max(last, maker(id).valid() ? chunk_[maker(id).index()] : home_of(id));
    }
    return last;
  }

  const Graph& graph_;
  const std::vector<OpId>& cuts_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<int> chunk_;
  std::vector<char> shared_;
  Ownership found_;
  std::map<ValueId, int> home_;  // outputs
  std::vector<std::size_t> component_;
};

}  // namespace

std::vector<ValueId> next_values(const Graph& step, const std::string& updates) {
  std::vector<ValueId> next(step.values.size());
  const std::vector<ValueId> updated = updated_inputs(step, updates);
  for (std::size_t v = 0; v < updated.size(); ++v) {
    if (updated[v].valid()) next[updated[v].index()] = ValueId(static_cast<std::int64_t>(v));
  }
  return next;
}

// Of updates: what is made of single numbers that are stored, too, but for accumulators, which one
// chunk has.
std::vector<char> made_of_data(const Graph& step, const std::vector<ValueId>& next) {
  std::vector<char> found(step.ops.size());
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    const bool updates = op.phase == Phase::kUpdate;
    found[o] = std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      if (!id.valid()) return true;
      const Value& value = step.value(id);
      if (value.kind == ValueKind::kConstant) return true;
      if (value.producer.valid()) return found[value.producer.index()] != 0;
      const bool is_stored = value.kind == ValueKind::kParameter || next[id.index()].valid();
      return updates ? is_number(value) && !value.accumulates : !is_stored;
    });
  }
  return found;
}

Ownership assign_ops(const Graph& step, const std::vector<OpId>& cuts, const std::string& updates) {
  return Assigner(step, cuts, updates).run();
}

}  // namespace autopar::stages

namespace autopar {

std::vector<OpId> deciding_ops(const Graph& step, const std::string& updates) {
  const std::vector<ValueId> next = stages::next_values(step, updates);
  return stages::deciding(step, uses_of(step), next, stages::made_of_data(step, next));
}

}  // namespace autopar
