// What follows from the groups: which ops launch a kernel, and what goes from and to memory.
#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "cost/kernels/finders.hpp"

namespace autopar {
namespace {

constexpr std::size_t kPorts = 64;  // of an op that the masks of OpKernel can tell

// A kernel reads a stored value once, and what it made itself not at all.
void mark_reads(Grouping& all, const std::vector<char>& stored) {
  std::set<std::pair<int, ValueId>> read;
  for (std::size_t o = 0; o < all.graph.ops.size(); ++o) {
    if (all.views[o]) continue;
    const Op& op = all.op(o);
    for (std::size_t i = 0; i < op.inputs.size() && i < kPorts; ++i) {
      if (!op.has_input(i)) continue;
      const ValueId from = all.base(op.inputs[i]);
      const OpId maker = all.graph.value(from).producer;
      const bool own = all.is_grouped(o) && maker.valid() && all.is_grouped(maker.index()) &&
                       all.group_of(maker.index()) == all.group_of(o);
      const bool again = all.is_grouped(o) && !read.insert({all.group_of(o), from}).second;
      const bool nowhere = !stored[from.index()];
      if (own || again || nowhere) all.found.of_op[o].inside_inputs |= std::uint64_t{1} << i;
    }
  }
}

}  // namespace

void mark_launches(Grouping& all) {
  std::set<int> launched;
  bool updates = false;
  for (std::size_t o = 0; o < all.graph.ops.size(); ++o) {
    OpKernel& kernel = all.found.of_op[o];
    const bool is_update = all.op(o).phase == Phase::kUpdate;
    if (kernel.kind == OpKernel::Kind::kView) {
      kernel.launches = false;
    } else if (all.profile.fuses_optimizer && is_update && all.is_grouped(o)) {
      kernel.launches = !std::exchange(updates, true);
    } else {
      kernel.launches = launched.insert(all.group_of(o)).second;
    }
  }
}

void mark_inside(Grouping& all) {
  Kernels& found = all.found;
  std::vector<char> stored(all.graph.values.size(), 1);
  for (std::size_t o = 0; o < all.graph.ops.size(); ++o) {
    if (!all.is_grouped(o)) continue;
    const std::vector<ValueId>& outputs = all.op(o).outputs;
    for (std::size_t j = 0; j < outputs.size() && j < kPorts; ++j) {
      const ValueId made = outputs[j];
      if (!made.valid()) continue;
      const Grouping::ReadBy read = all.read_by(made);
      const bool own = std::all_of(read.ops.begin(), read.ops.end(), [&](std::size_t r) {
        return all.is_grouped(r) && all.group_of(r) == all.group_of(o);
      });
      const bool is_needed = !found.needed_by.empty() && found.needed_by[made.index()].valid();
      if (!found.inside[made.index()] && (read.leaves || !own || is_needed)) continue;
      stored[made.index()] = 0;
      found.inside[made.index()] = 1;
      found.of_op[o].inside_outputs |= std::uint64_t{1} << j;
    }
  }
  // Views of what is not stored are not, either.
  for (std::size_t o = 0; o < all.graph.ops.size(); ++o) {
    if (!all.views[o] || !all.op(o).has_input(0)) continue;
    if (!stored[all.base(all.op(o).inputs[0]).index()]) {
      for (const ValueId made : all.op(o).outputs) {
        if (made.valid()) found.inside[made.index()] = 1;
      }
    }
  }
  mark_reads(all, stored);
}

}  // namespace autopar
