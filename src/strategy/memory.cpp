// The copies of a value and of the views of it are the nodes of a tree; its edges say what a copy
// is made from. Copies that lie alike along such a path are one piece of memory. What is alive at
// one time spans a part of the tree: its top is charged in full, and every edge of it charges its
// lower end where that lies otherwise. That is what the pieces take, or more where a copy that is
// dead connects two that live: exact values of those would need more than two decisions at once.
#include "autopar/memory.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace autopar {
namespace {

using Kind = MemoryCharge::Kind;

struct Copy {
  int parent = -1;
  Kind in_full = Kind::kSpec;
  Kind by_edge = Kind::kSpec;
  ValueId value;  // in_full is of this value
  ValueId from;   // by_edge is of this value and reader
  OpId reader;
  int begin = 0, end = 0;  // alive
  bool repeats = false;    // the elements of its parent, which stays for as long as they are read
};

// When the update begins; of a graph of one pass, which it is a part of: never.
int begin_of_update(const Graph& graph) {
  if (!graph.has_passes()) return static_cast<int>(graph.ops.size());
  const auto first = std::find_if(graph.ops.begin(), graph.ops.end(),
                                  [](const Op& op) { return op.phase == Phase::kUpdate; });
  return static_cast<int>(first - graph.ops.begin());
}

class Trees {
 public:
  Trees(const Graph& graph, const std::vector<Readers>& readers)
      : graph_(graph), readers_(readers), first_(graph.values.size(), -1) {
    horizon_ = static_cast<int>(graph.ops.size());
    // Ops are in topological order, so a view comes after what it views.
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (!graph.values[v].producer.valid()) add_value(ValueId(static_cast<std::int64_t>(v)), -1);
    }
    for (const Op& op : graph.ops) add_outputs_of(op);
    keep_repeated();
    for (std::size_t c = 0; c < copies_.size(); ++c) {
      const int parent = copies_[c].parent;
      tree_of_.push_back(parent < 0 ? static_cast<int>(trees_.size())
                                    : tree_of_[static_cast<std::size_t>(parent)]);
      if (parent < 0) trees_.emplace_back();
      trees_[static_cast<std::size_t>(tree_of_.back())].push_back(static_cast<int>(c));
    }
  }

  // The next value of an input takes the input's place once nothing reads that any more.
  void donate(const std::vector<ValueId>& updated) {
    std::vector<std::pair<int, int>> ends;
    for (std::size_t v = 0; v < updated.size(); ++v) {
      if (!updated[v].valid() || first_[v] < 0) continue;
      const int output = output_copy(v);
      if (output < 0) continue;
      // What the update reads of it is the next value already, where a pass makes that.
      const OpId maker = graph_.values[v].producer;
      const bool of_pass = maker.valid() && graph_.op(maker).phase != Phase::kUpdate;
      ends.emplace_back(output, of_pass ? last_read_in_pass(updated[v]) : last_read(updated[v]));
    }
    for (const auto& [output, end] : ends) {
      Copy& copy = at(output);
      copy.end = std::max(copy.begin, std::min(copy.end, end));
    }
  }

  std::vector<MemoryCharge> charges() {
    for (const std::vector<int>& tree : trees_) add_charges(tree);
    return std::move(charges_);
  }

 private:
  Copy& at(int copy) { return copies_[static_cast<std::size_t>(copy)]; }
  const Readers& readers(ValueId id) const { return readers_[id.index()]; }

  int add(Copy copy) {
    copies_.push_back(copy);
    return static_cast<int>(copies_.size()) - 1;
  }

  static int last_op(const Readers& r) {
    return r.uses.empty() ? r.produced : r.uses.back().op.value;
  }

  // The copy that readers read from.
  int read_copy(ValueId id) const {
    const int first = first_[id.index()];
    return first >= 0 && readers(id).count() > 1 ? first + 1 : first;
  }

  int output_copy(std::size_t v) const {
    if (!readers_[v].is_output) return -1;
    return first_[v] + (readers_[v].count() > 1 ? 2 : 1);
  }

  void add_outputs_of(const Op& op) {
    for (ValueId output : op.outputs) {
      if (!output.valid()) continue;
      const OpKernel& kernel = graph_.kernel(op);
      const bool is_kernel_view = kernel.kind == OpKernel::Kind::kView;
      const bool repeats = is_kernel_view && op.type == "Expand";
      const bool in_place =
          repeats || (is_kernel_view && op.type == "Transpose") || writes_in_place(kernel);
      const bool view =
          (is_view(op) || in_place) && op.has_input(0) && read_copy(op.inputs[0]) >= 0;
      add_value(output, view ? read_copy(op.inputs[0]) : -1);
      if (view && repeats) at(first_[output.index()]).repeats = true;
    }
  }

  void keep_repeated() {
    std::vector<int> last_end;  // of the copy and of all that are made from it
    for (const Copy& copy : copies_) last_end.push_back(copy.end);
    // Copies come after what they are made from.
    for (std::size_t c = copies_.size(); c-- > 0;) {
      const Copy& copy = copies_[c];
      if (copy.parent < 0) continue;
      if (copy.repeats) at(copy.parent).end = std::max(at(copy.parent).end, last_end[c]);
      int& end = last_end[static_cast<std::size_t>(copy.parent)];
      end = std::max(end, last_end[c]);
    }
  }

  // First copy, hub, output, in this order.
  void add_value(ValueId id, int parent) {
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::kConstant) return;
    const Readers& r = readers(id);
    const OpId needed_by = graph_.needed_by(id);
    const int needed_until = needed_by.valid() ? static_cast<int>(needed_by.value) + 1 : 0;
    Copy first{parent, Kind::kSpec, Kind::kToReader, id, {}, {}, r.produced, r.first + 1};
    if (r.count() <= 1) first.end = std::max(first.end, needed_until);
    if (value.kind != ValueKind::kActivation) {
      first.begin = 0;
      first.end = horizon_;
    }
    if (parent >= 0) {
      first.from = at(parent).value;
      first.reader = value.producer;
      // While the op runs, it is the input's copy, or the target of the reshard that made it.
      first.begin = r.produced + 1;
    }
    int source = first_[id.index()] = add(first);
    if (r.count() > 1) {
      const int end = std::max(last_op(r) + 1, needed_until);
      source = add({source, Kind::kHub, Kind::kToHub, id, id, {}, r.first + 1, end});
    }
    if (!r.is_output) return;
    // What another chunk reads is sent at once.
    const int end = value.of_micro_batch ? std::min(r.produced + 2, horizon_) : horizon_;
    add({source, Kind::kOutput, Kind::kToOutput, id, id, {}, r.produced + 1, end});
  }

  // When the last copy that may be the input's own memory goes.
  int last_read(ValueId input) const {
    const int first = first_[input.index()];
    int end = last_op(readers(input)) + 1;
    for (int copy : trees_[static_cast<std::size_t>(tree_of_[static_cast<std::size_t>(first)])]) {
      if (copy != first) end = std::max(end, copies_[static_cast<std::size_t>(copy)].end);
    }
    return end;
  }

  // The same of what a pass reads, where the update reads the next value.
  int last_read_in_pass(ValueId input) const {
    const int update = begin_of_update(graph_);
    int end = 0;
    for (const auto& use : readers(input).uses) {
      if (use.op.value < update) end = std::max(end, static_cast<int>(use.op.value) + 1);
    }
    const int first = first_[input.index()];
    for (int copy : trees_[static_cast<std::size_t>(tree_of_[static_cast<std::size_t>(first)])]) {
      const Copy& other = copies_[static_cast<std::size_t>(copy)];
      if (other.value == input || other.begin >= update) continue;
      end = std::max(end, std::min(other.end, update));
    }
    return end;
  }

  // Linear in (number of copies) x (number of their ends), both small.
  void add_charges(const std::vector<int>& tree) {
    const Copy& first = at(tree.front());
    if (tree.size() == 1) {
      if (first.begin >= first.end) return;
      charges_.push_back({first.in_full, first.value, {}, first.begin, first.end});
      return;
    }
    std::vector<int> times;
    for (int c : tree) {
      if (at(c).begin >= at(c).end) continue;
      times.push_back(at(c).begin);
      times.push_back(at(c).end);
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    below_.resize(copies_.size());
    open_.resize(2 * copies_.size(), -1);
    for (std::size_t t = 0; t + 1 < times.size(); ++t) {
      charge_alive(tree, times[t], times[t + 1]);
    }
  }

  void charge_alive(const std::vector<int>& tree, int begin, int end) {
    for (int c : tree) below_[static_cast<std::size_t>(c)] = 0;
    int alive = 0;
    // Copies come after what they are made from.
    for (auto c = tree.rbegin(); c != tree.rend(); ++c) {
      const Copy& copy = at(*c);
      const bool lives = copy.begin <= begin && copy.end >= end && copy.begin < copy.end;
      alive += lives;
      const int count = below_[static_cast<std::size_t>(*c)] += lives;
      if (copy.parent >= 0) below_[static_cast<std::size_t>(copy.parent)] += count;
    }
    if (alive == 0) return;
    int top = tree.front();
    for (int c : tree) {
      if (below_[static_cast<std::size_t>(c)] == alive) top = c;
    }
    for (int c : tree) {
      const int below = below_[static_cast<std::size_t>(c)];
      if (c != top && (below == 0 || below == alive)) continue;
      charge(c, c == top, begin, end);
    }
  }

  void charge(int c, bool in_full, int begin, int end) {
    int& open = open_[2 * static_cast<std::size_t>(c) + (in_full ? 1 : 0)];
    if (open >= 0 && charges_[static_cast<std::size_t>(open)].end == begin) {
      charges_[static_cast<std::size_t>(open)].end = end;
      return;
    }
    const Copy& copy = at(c);
    open = static_cast<int>(charges_.size());
    charges_.push_back(in_full ? MemoryCharge{copy.in_full, copy.value, {}, begin, end}
                               : MemoryCharge{copy.by_edge, copy.from, copy.reader, begin, end});
  }

  const Graph& graph_;
  const std::vector<Readers>& readers_;
  int horizon_ = 0;
  std::vector<int> first_;  // per value its first copy; -1: none
  std::vector<Copy> copies_;
  std::vector<int> tree_of_;
  std::vector<std::vector<int>> trees_;  // copies in order
  std::vector<MemoryCharge> charges_;
  std::vector<int> below_;  // per copy the alive ones in its subtree
  // Per copy, by edge and in full, its last charge, which goes on where the next would begin at its
  // end; -1: none.
  std::vector<int> open_;
};

// What a runtime holds beside values as long as a pass needs it (Kernels).
void hold_in_pass(const Graph& graph, const std::vector<Readers>& readers,
                  std::vector<MemoryCharge>& charges) {
  for (MemoryCharge& charge : charges) {
    if (graph.value(charge.value).kind != ValueKind::kActivation) continue;
    charge.copies *= 1 + graph.held_in_pass(charge.value);
  }
  const int update = begin_of_update(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const int copies = graph.held_in_pass(id);
    if (copies == 0 || graph.values[v].kind == ValueKind::kActivation) continue;
    int begin = update - 1;  // the gradient of an embedding comes last
    for (const auto& use : readers[v].uses) {
      if (graph.op(use.op).phase == Phase::kBackward) begin = static_cast<int>(use.op.value);
    }
    charges.push_back({Kind::kSpec, id, {}, begin, update, copies});
  }
}

// Of what the runtime holds beside a value for its gradient: the sum in float32, so many times the
// bytes of the value. A graph with passes has it itself.
int accumulators_beside(const Graph& graph, ValueId id) {
  const int held = graph.held_beside(id);
  if (held == 0 || graph.has_passes()) return 0;
  const auto wide = size_of(DType::kFloat32) / size_of(graph.value(id).dtype);
  return std::min(held, static_cast<int>(wide));
}

// For the micro-batches in flight beside the one that is worked on.
void keep_in_flight(const Graph& graph, const std::vector<Readers>& readers,
                    std::vector<MemoryCharge>& charges) {
  const int turn = static_cast<int>(end_of_forward(graph));
  const int horizon = static_cast<int>(graph.ops.size());
  const std::size_t count = charges.size();
  // Of some values another copy is there from the turn on, and none before it that goes on.
  std::vector<char> goes_on(graph.values.size(), 0);
  for (const MemoryCharge& charge : charges) {
    if (charge.begin < turn && turn < charge.end) goes_on[charge.value.index()] = 1;
  }
  for (std::size_t c = 0; c < count; ++c) {
    MemoryCharge kept = charges[c];
    const Value& value = graph.value(kept.value);
    const auto& uses = readers[kept.value.index()].uses;
    // A gradient that comes from another chunk is there while it is worked on.
    const bool is_input = value.of_micro_batch && kept.kind == Kind::kSpec && !uses.empty() &&
                          uses.front().op.value < turn && uses.back().op.value >= turn;
    const bool is_of_forward = value.producer.valid() && value.producer.value < turn;
    const bool in_full = kept.kind == Kind::kSpec || kept.kind == Kind::kHub;
    const int last_begin = in_full && goes_on[kept.value.index()] == 0 ? turn : turn - 1;
    const bool is_kept = value.kind == ValueKind::kActivation && is_of_forward &&
                         kept.begin <= last_begin && turn < kept.end;
    if (!is_input && !is_kept) continue;
    kept.copies *= static_cast<int>(graph.in_flight - 1);
    kept.begin = 0;
    kept.end = horizon;
    charges.push_back(kept);
  }
}

// Data and outputs of the other micro-batches, where all of the batch is there.
void keep_batch(const Graph& graph, const std::vector<Readers>& readers,
                std::vector<MemoryCharge>& charges) {
  const int horizon = static_cast<int>(graph.ops.size());
  const int others = static_cast<int>(graph.passes - 1);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (!value.of_batch) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    const bool is_data = !value.producer.valid() && !value.of_micro_batch;
    if (is_data) charges.push_back({Kind::kSpec, id, {}, 0, horizon, others});
    const bool is_told = readers[v].is_output && value.producer.valid();
    if (is_told) charges.push_back({Kind::kOutput, id, {}, 0, horizon, others});
  }
}

// Of interleaved passes each has its data and what it makes, and may be where that is most. What
// they hand on to the next pass is there once.
void keep_copies(const Graph& graph, std::vector<MemoryCharge>& charges) {
  const int update = begin_of_update(graph);
  for (MemoryCharge& charge : charges) {
    const Value& value = graph.value(charge.value);
    const bool of_update =
        value.producer.valid() && graph.op(value.producer).phase == Phase::kUpdate;
    const bool leaves = charge.kind == Kind::kOutput || charge.kind == Kind::kToOutput;
    const bool is_stored = charge.kind == Kind::kSpec && (value.kind == ValueKind::kParameter ||
                                                          value.kind == ValueKind::kConstant);
    if (of_update || leaves || is_stored || charge.begin >= update) continue;
    charge.copies *= static_cast<int>(graph.copies);
  }
}

}  // namespace

LeastMemory least_memory(const Graph& graph, const std::vector<ValueId>& updated,
                         std::int64_t devices) {
  std::vector<Bytes> change(graph.ops.size() + 1, 0);
  for (const MemoryCharge& charge : memory_charges(graph, readers_of(graph), updated)) {
    const bool in_full =
        charge.kind == Kind::kSpec || charge.kind == Kind::kHub || charge.kind == Kind::kOutput;
    if (!in_full || charge.begin >= charge.end || graph.is_inside(charge.value)) continue;
    const Bytes bytes = charge.copies * graph.value(charge.value).bytes() / devices;
    change[static_cast<std::size_t>(charge.begin)] += bytes;
    change[static_cast<std::size_t>(charge.end)] -= bytes;
  }
  Bytes now = 0;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kConstant) now += value.bytes();
  }
  LeastMemory least{now, 0};
  for (std::size_t t = 0; t < graph.ops.size(); ++t) {
    now += change[t];
    if (now > least.bytes) least = {now, static_cast<int>(t)};
  }
  return least;
}

std::string no_updates(const std::string& pattern) {
  return "--updates " + pattern +
         " names no pair: an output whose name is that of an input in the place of *, of its shape "
         "and type; nothing is fed back or written in place";
}

std::vector<ValueId> updated_inputs(const Graph& graph, const std::string& pattern) {
  std::vector<ValueId> updated(graph.values.size());
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return updated;
  const std::string prefix = pattern.substr(0, star), suffix = pattern.substr(star + 1);
  std::map<std::string, ValueId> inputs;
  for (ValueId id : graph.inputs) inputs[graph.value(id).name] = id;
  for (ValueId id : graph.outputs) {
    const Value& output = graph.value(id);
    const std::string& name = output.name;
    if (name.size() < prefix.size() + suffix.size() || name.compare(0, star, prefix) != 0 ||
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
      continue;
    }
    const auto found = inputs.find(name.substr(star, name.size() - prefix.size() - suffix.size()));
    if (found == inputs.end()) continue;
    const Value& input = graph.value(found->second);
    if (input.shape == output.shape && input.dtype == output.dtype) {
      updated[id.index()] = found->second;
    }
  }
  return updated;
}

bool writes_in_place(const OpKernel& kernel) {
  return kernel.kind == OpKernel::Kind::kOwn && (kernel.inside_inputs & 1) != 0 &&
         (kernel.inside_outputs & 1) != 0;
}

std::vector<MemoryCharge> memory_charges(const Graph& graph, const std::vector<Readers>& readers,
                                         const std::vector<ValueId>& updated) {
  Trees trees(graph, readers);
  trees.donate(updated);
  std::vector<MemoryCharge> charges = trees.charges();
  if (!graph.kernels.held_in_pass.empty()) hold_in_pass(graph, readers, charges);
  if (graph.in_flight > 1) keep_in_flight(graph, readers, charges);
  if (graph.passes > 1) keep_batch(graph, readers, charges);
  if (graph.copies > 1) keep_copies(graph, charges);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    if (const int copies = accumulators_beside(graph, id); copies > 0) {
      charges.push_back({Kind::kSpec, id, {}, 0, static_cast<int>(graph.ops.size()), copies});
    }
  }
  return charges;
}

std::vector<GradientBuffer> gradient_buffers(const Graph& graph) {
  std::vector<GradientBuffer> buffers;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const int copies = graph.held_beside(id) - accumulators_beside(graph, id);
    if (copies > 0) buffers.push_back({id, copies});
  }
  return buffers;
}

bool has_replicas(const Spec& spec, const Mesh& mesh) {
  std::int64_t parts = 1;
  for (const AxisList& axes : spec.dims) parts *= axes_size(mesh, axes);
  return parts < mesh.size();
}

}  // namespace autopar
