// Functions of one tensor, and what the backward pass makes again of them.
#include <algorithm>

#include "autopar/ops.hpp"
#include "cost/kernels/finders.hpp"

namespace autopar {
namespace {

class Functions {
 public:
  explicit Functions(Grouping& all) : all_(all), graph_(all.graph) {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      argument_.emplace_back(static_cast<std::int64_t>(v));
    }
  }

  void join() {
    std::vector<char> joined(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (all_.views[o] || !is_on_elements(op(o)) || !op(o).has_output(0)) continue;
      if (all_.found.of_op[o].kind != OpKernel::Kind::kOwn) continue;
      const ValueId of = argument_of(o);
      const ValueId made = op(o).outputs[0];
      const bool whole = of.valid() && element_count(graph_.value(of).shape) ==
                                           element_count(graph_.value(made).shape);
      if (!whole || op(o).outputs.size() > 1) continue;
      argument_[made.index()] = of;
      for (const ValueId input : op(o).inputs) {
        if (!input.valid()) continue;
        const ValueId from = all_.base(input);
        const OpId maker = graph_.value(from).producer;
        if (!maker.valid() || from == of || graph_.op(maker).phase != op(o).phase) continue;
        if (argument_[from.index()] != of) continue;
        all_.join(maker.index(), o);
        joined[maker.index()] = joined[o] = 1;
      }
      if (op(o).phase != Phase::kUpdate) make_again(o);
    }
    for (std::size_t o = 0; o < joined.size(); ++o) {
      if (joined[o]) all_.found.of_op[o].kind = OpKernel::Kind::kElements;
    }
  }

 private:
  const Op& op(std::size_t o) const { return graph_.ops[o]; }

  // The one value that an op on elements reads, seen through functions; invalid: several.
  ValueId argument_of(std::size_t o) const {
    ValueId one;
    for (const ValueId input : op(o).inputs) {
      if (!input.valid()) continue;
      const ValueId from = all_.base(input);
      const Value& value = graph_.value(from);
      if (value.kind == ValueKind::kConstant) continue;
      const bool again = all_.found.inside[from.index()] && value.producer.valid() &&
                         graph_.op(value.producer).phase != op(o).phase;
      if (again) continue;
      const ValueId of = argument_[from.index()];
      if (one.valid() && !(of == one)) return {};
      one = of;
    }
    return one;
  }

  // Of a function that goes on here: what this op reads of it is not kept for the backward pass,
  // but for its argument. Nor is what it makes in the backward pass, where fused chains read it.
  void make_again(std::size_t o) {
    for (const ValueId input : op(o).inputs) {
      if (!input.valid()) continue;
      const ValueId from = all_.base(input);
      if (argument_[from.index()] == from) continue;
      const OpId maker = graph_.value(from).producer;
      if (maker.valid() && graph_.op(maker).phase == op(o).phase) make_again(from);
    }
    if (op(o).phase == Phase::kBackward && all_.profile.fuses_elementwise) {
      make_again(op(o).outputs[0]);
    }
  }

  void make_again(ValueId value) {
    if (graph_.value(value).kind != ValueKind::kActivation) return;
    const Grouping::ReadBy read = all_.read_by(value);
    if (read.leaves) return;
    const ValueId of = argument_[value.index()];
    const Phase phase = graph_.op(graph_.value(value).producer).phase;
    std::vector<std::size_t> others;  // that read it and are not of the function
    const bool only = std::all_of(read.ops.begin(), read.ops.end(), [&](std::size_t r) {
      if (!is_on_elements(op(r))) return false;
      if (op(r).phase == phase && argument_of(r) == of) return true;
      others.push_back(r);
      return op(r).phase == Phase::kBackward;
    });
    if (!only) return;
    all_.found.inside[value.index()] = 1;
    auto& readers = all_.made_again[of];
    readers.insert(readers.end(), others.begin(), others.end());
  }

  Grouping& all_;
  const Graph& graph_;
  std::vector<ValueId> argument_;  // per value: of the function, or the value itself
};

}  // namespace

void join_functions(Grouping& all) { Functions(all).join(); }

void keep_arguments(Grouping& all) {
  for (const auto& [of, read] : all.made_again) {
    const OpId maker = all.graph.value(of).producer;
    const int own = maker.valid() ? all.group_of(maker.index()) : -1;
    OpId last;
    for (const std::size_t r : read) {
      const OpId reader(static_cast<std::int64_t>(r));
      if (all.group_of(r) != own && (!last.valid() || last < reader)) last = reader;
    }
    if (!last.valid()) continue;
    all.found.needed_by.resize(all.graph.values.size());
    all.found.needed_by[of.index()] = last;
  }
}

}  // namespace autopar
