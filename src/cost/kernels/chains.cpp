// Chains of ops on elements and of sums over rows.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "autopar/ops.hpp"
#include "cost/kernels/finders.hpp"

namespace autopar {
namespace {

class Chains {
 public:
  explicit Chains(Grouping& all) : all_(all), graph_(all.graph) {}

  void join() {
    find_depths();
    move_to_readers();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_in_chain(o)) continue;
      for (const ValueId input : op(o).inputs) {
        if (!input.valid()) continue;
        const OpId maker = graph_.value(all_.base(input)).producer;
        if (!maker.valid() || !is_in_chain(maker.index())) continue;
        const bool alike =
            depth_[maker.index()] == depth_[o] && graph_.op(maker).phase == op(o).phase;
        if (alike) all_.join(maker.index(), o);
      }
    }
    const std::vector<std::size_t> fused = fused_ops();
    for (const std::size_t o : fused) all_.found.of_op[o].kind = OpKernel::Kind::kElements;
    make_again(fused);
  }

 private:
  const Op& op(std::size_t o) const { return graph_.ops[o]; }

  bool is_in_chain(std::size_t o) const {
    if (all_.views[o] || all_.found.of_op[o].kind == OpKernel::Kind::kAttention) return false;
    return is_on_elements(op(o)) || is_over_rows(graph_, op(o));
  }

  void find_depths() {
    depth_.assign(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const ValueId input : op(o).inputs) {
        if (!input.valid() || !graph_.value(input).producer.valid()) continue;
        const std::size_t maker = graph_.value(input).producer.index();
        const bool ends =
            !all_.views[maker] && (!is_in_chain(maker) || op(maker).phase != op(o).phase);
        depth_[o] = std::max(depth_[o], depth_[maker] + (ends ? 1 : 0));
      }
    }
  }

  // What only later chains read is made where they read it, where no more is stored for that: an
  // Adam step that waits for all gradients to be finite is one kernel with what it decides on.
  void move_to_readers() {
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      if (!is_in_chain(o) || !is_on_elements(op(o)) || op(o).outputs.size() != 1) continue;
      if (all_.found.of_op[o].kind == OpKernel::Kind::kElements) continue;  // of a function
      const Grouping::ReadBy read = all_.read_by(op(o).outputs[0]);
      if (read.leaves || read.ops.empty()) continue;
      int first = std::numeric_limits<int>::max();
      const bool chains = std::all_of(read.ops.begin(), read.ops.end(), [&](std::size_t r) {
        first = std::min(first, depth_[r]);
        return is_in_chain(r) && op(r).phase == op(o).phase;
      });
      if (!chains || first <= depth_[o]) continue;
      if (stored_for(o) <= graph_.value(op(o).outputs[0]).bytes()) depth_[o] = first;
    }
  }

  // Bytes of what an op reads of a chain that others read as well: they would be stored for it if
  // it were made in another chain.
  std::int64_t stored_for(std::size_t o) const {
    std::int64_t stored = 0;
    std::set<ValueId> counted;
    for (const ValueId input : op(o).inputs) {
      if (!input.valid() || !counted.insert(all_.base(input)).second) continue;
      const Value& value = graph_.value(all_.base(input));
      if (!value.producer.valid() || !is_in_chain(value.producer.index())) continue;
      if (graph_.op(value.producer).phase != op(o).phase) continue;
      if (all_.uses[all_.base(input).index()].size() > 1) stored += value.bytes();
    }
    return stored;
  }

  // Of the chains, as the profile says.
  std::vector<std::size_t> fused_ops() {
    std::vector<char> has_rows(graph_.ops.size(), 0);  // per first op of a chain
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (is_in_chain(o) && is_over_rows(graph_, op(o))) has_rows[first_of(o)] = 1;
    }
    const Profile& profile = all_.profile;
    std::vector<std::size_t> ops;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_in_chain(o)) continue;
      const bool rows = has_rows[first_of(o)] != 0;
      const bool fused = op(o).phase == Phase::kUpdate ? profile.fuses_optimizer
                         : rows                        ? profile.fuses_normalisation
                                                       : profile.fuses_elementwise;
      if (!fused) continue;
      all_.found.of_op[o].has_rows = rows;
      ops.push_back(o);
    }
    return ops;
  }

  std::size_t first_of(std::size_t o) { return static_cast<std::size_t>(all_.root(o)); }

  // Of a normalisation and the like the backward pass is given what it reads and its sums over
  // rows, and of other fused chains what they read: what else its kernels read of them they make
  // again. What they cast to a wider type is kept as it was before.
  void make_again(const std::vector<std::size_t>& fused) {
    std::vector<char> again(graph_.values.size(), 0);
    std::map<ValueId, std::set<ValueId>> kept_for;  // per value that is made again: narrow ones
    for (const std::size_t o : fused) {
      if (op(o).phase != Phase::kForward || !is_on_elements(op(o)) || !op(o).has_output(0))
        continue;
      std::set<ValueId> narrow;
      bool can = true;
      for (const ValueId id : op(o).inputs) {
        if (!id.valid()) continue;
        const ValueId from = all_.base(id);
        if (again[from.index()]) {
          narrow.insert(kept_for[from].begin(), kept_for[from].end());
        } else if (!waits(from)) {
          can = can && is_widened(o) && !all_.found.inside[from.index()];
          narrow.insert(from);
        }
      }
      if (!can) continue;
      const ValueId made = op(o).outputs[0];
      const int kernel = all_.root(o);
      const Grouping::ReadBy read = all_.read_by(made);
      const bool only = std::all_of(read.ops.begin(), read.ops.end(), [&](std::size_t r) {
        if (all_.found.of_op[r].kind != OpKernel::Kind::kElements) return false;
        return op(r).phase == Phase::kBackward || all_.root(r) == kernel;
      });
      const bool is_inside = only && !read.leaves;
      again[made.index()] = is_inside || narrow.empty();
      if (!is_inside) continue;
      all_.found.inside[made.index()] = 1;
      for (const ValueId from : narrow) {
        for (const std::size_t r : read.ops) {
          if (op(r).phase == Phase::kBackward) all_.made_again[from].push_back(r);
        }
      }
      kept_for[made] = std::move(narrow);
    }
  }

  bool is_widened(std::size_t o) const {
    if (op(o).type != "Cast" || !op(o).domain.empty()) return false;
    const DType from = graph_.value(op(o).inputs[0]).dtype;
    const DType to = graph_.value(op(o).outputs[0]).dtype;
    return is_floating(from) && is_floating(to) && size_of(to) > size_of(from);
  }

  // Whether a value is there in the backward pass: it is stored, or an op of that pass reads it.
  bool waits(ValueId id) const {
    if (!graph_.value(id).producer.valid()) return true;
    const auto& uses = all_.uses[id.index()];
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return graph_.op(use.op).phase == Phase::kBackward; });
  }

  Grouping& all_;
  const Graph& graph_;
  std::vector<int> depth_;  // per op: what is of no chain of its phase on the longest way to it
};

}  // namespace

void join_chains(Grouping& all) { Chains(all).join(); }

}  // namespace autopar
