// Functions of one tensor, and what the backward pass makes again of them.
#include <algorithm>
#include <map>
#include <set>

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
    has_function_.assign(graph_.values.size(), 0);
    is_of_derivative_.assign(graph_.ops.size(), 0);
    for (const Value& value : graph_.values) {
      is_constant_.push_back(value.kind == ValueKind::kConstant);
    }
  }

  void join() {
    std::vector<char> joined(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (all_.views[o] || !is_on_elements(op(o)) || !op(o).has_output(0)) continue;
      if (reads_of(o).empty()) {
        is_constant_[op(o).outputs[0].index()] = 1;
        continue;
      }
      if (all_.found.of_op[o].kind != OpKernel::Kind::kOwn) continue;
      if (op(o).phase == Phase::kBackward && is_derivative(o, joined)) continue;
      const ValueId made = op(o).outputs[0];
      if (const ValueId again = made_again_alone(o); again.valid()) {
        argument_[made.index()] = again;
        is_of_derivative_[o] = 1;
        continue;
      }
      const ValueId of = argument_of(o);
      const bool whole = of.valid() && element_count(graph_.value(of).shape) ==
                                           element_count(graph_.value(made).shape);
      if (!whole || op(o).outputs.size() > 1) continue;
      argument_[made.index()] = of;
      is_of_derivative_[o] = op(o).phase == Phase::kBackward && !is_backward(of);
      for (const ValueId input : op(o).inputs) {
        if (!input.valid()) continue;
        const ValueId from = all_.base(input);
        const OpId maker = graph_.value(from).producer;
        if (!maker.valid() || from == of || graph_.op(maker).phase != op(o).phase) continue;
        if (argument_[from.index()] != of) continue;
        all_.join(maker.index(), o);
        joined[maker.index()] = joined[o] = 1;
        is_of_derivative_[o] = is_of_derivative_[o] || is_of_derivative_[maker.index()];
        if (op(o).type != "Cast") has_function_[of.index()] = 1;
      }
      if (op(o).phase != Phase::kUpdate) make_again(o);
    }
    for (std::size_t o = 0; o < joined.size(); ++o) {
      if (joined[o]) all_.found.of_op[o].kind = OpKernel::Kind::kElements;
    }
  }

 private:
  const Op& op(std::size_t o) const { return graph_.ops[o]; }

  // What an op reads, seen through views, constants aside.
  std::vector<ValueId> reads_of(std::size_t o) const {
    std::vector<ValueId> reads;
    for (const ValueId input : op(o).inputs) {
      if (!input.valid()) continue;
      const ValueId from = all_.base(input);
      if (!is_constant_[from.index()]) reads.push_back(from);
    }
    return reads;
  }

  // Whether the op reads of a function of another phase alone, which is made again: its argument.
  ValueId made_again_alone(std::size_t o) const {
    ValueId one;
    for (const ValueId from : reads_of(o)) {
      const ValueId of = argument_[from.index()];
      if (!is_made_again(from, op(o).phase) || (one.valid() && !(of == one))) return {};
      one = of;
    }
    const auto elements = [&](ValueId id) { return element_count(graph_.value(id).shape); };
    return one.valid() && elements(one) == elements(op(o).outputs[0]) ? one : ValueId();
  }

  bool is_made_again(ValueId value, Phase phase) const {
    const OpId maker = graph_.value(value).producer;
    return all_.found.inside[value.index()] && maker.valid() && graph_.op(maker).phase != phase;
  }

  // The one value that an op on elements reads, seen through functions; invalid: several.
  ValueId argument_of(std::size_t o) const {
    ValueId one;
    for (const ValueId from : reads_of(o)) {
      if (is_made_again(from, op(o).phase)) continue;
      const ValueId of = argument_[from.index()];
      if (one.valid() && !(of == one)) return {};
      one = of;
    }
    return one;
  }

  bool is_backward(ValueId value) const {
    const OpId maker = graph_.value(value).producer;
    return maker.valid() && graph_.op(maker).phase == Phase::kBackward;
  }

  // Joins an op that makes a part of a function's derivative, of the function's argument and the
  // gradient of what it makes alone, to what it reads of it.
  bool is_derivative(std::size_t o, std::vector<char>& joined) {
    std::set<ValueId> read;
    for (const ValueId from : reads_of(o)) {
      const auto part = derivative_.find(from);
      if (part == derivative_.end()) {
        read.insert(argument_[from.index()]);
      } else {
        read.insert(part->second.begin(), part->second.end());
      }
    }
    if (read.size() != 2) return false;
    const ValueId gradient = gradient_of(*read.begin(), *read.rbegin());
    if (!gradient.valid()) return false;
    const ValueId made = op(o).outputs[0];
    for (const ValueId of : read) {
      if (element_count(graph_.value(of).shape) != element_count(graph_.value(made).shape)) {
        return false;
      }
    }
    for (const ValueId from : reads_of(o)) {
      if (read.count(from) != 0 || !is_backward(from)) continue;
      const std::size_t maker = graph_.value(from).producer.index();
      // A function that is repeated is an earlier kernel.
      if (!is_of_derivative_[maker] && !(argument_[from.index()] == gradient)) continue;
      all_.join(maker, o);
      joined[maker] = joined[o] = 1;
    }
    is_of_derivative_[o] = 1;
    derivative_[made] = std::move(read);
    return true;
  }

  // Which of the two is a gradient where the other one is a function's argument, which too may be
  // made in the backward pass, where that is repeated; else nothing.
  ValueId gradient_of(ValueId a, ValueId b) const {
    const auto is_gradient = [&](ValueId gradient, ValueId argument) {
      return has_function_[argument.index()] && is_backward(gradient) &&
             (!has_function_[gradient.index()] || !is_backward(argument));
    };
    return is_gradient(a, b) ? a : is_gradient(b, a) ? b : ValueId();
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
  std::vector<ValueId> argument_;       // per value: of the function, or the value itself
  std::vector<char> is_constant_;       // per value: it is one, or made of constants alone
  std::vector<char> has_function_;      // per value: ops are joined to a function of it
  std::vector<char> is_of_derivative_;  // per op: only derivatives are made of what it makes
  // Per part of a derivative: the function's argument and the gradient of what it makes.
  std::map<ValueId, std::set<ValueId>> derivative_;
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
