#include <limits>

#include "partition/program.hpp"

namespace autopar {
namespace {

class Ordering {
 public:
  Ordering(Graph& program, OrderBy by)
      : program_(program), by_(by), behind_(program.values.size(), -1) {
    last_read_.resize(program.values.size(), 0);
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      for (const ValueId input : program.ops[o].inputs) {
        if (input.valid()) last_read_[input.index()] = o;
      }
    }
    for (const ValueId output : program.outputs) {
      last_read_[output.index()] = std::numeric_limits<std::size_t>::max();
    }
  }

  AddedOrder run() {
    for (std::size_t o = 0; o < program_.ops.size(); ++o) {
      Op& op = program_.ops[o];
      std::int64_t waits_for = -1;
      for (const ValueId input : op.inputs) {
        if (input.valid()) waits_for = std::max(waits_for, behind_[input.index()]);
      }
      if (exchanges_data(op)) {
        if (calls_ > 0 && waits_for + 1 != calls_) order(op, o);
        waits_for = calls_++;
        after_.clear();
      }
      for (const ValueId output : op.outputs) {
        if (!output.valid()) continue;
        behind_[output.index()] = waits_for;
        if (calls_ > 0 && waits_for + 1 == calls_) after_.push_back(output);
      }
    }
    added_.calls = static_cast<std::size_t>(calls_);
    return added_;
  }

 private:
  // Behind the call before.
  void order(Op& op, std::size_t o) {
    ValueId best = after_.front();
    if (by_ == OrderBy::kWhatIsThere) {
      for (const ValueId value : after_) {
        if (kept_for(value, o) < kept_for(best, o)) best = value;
      }
    }
    op.inputs.push_back(best);
    if (added_.inputs++ == 0) added_.first = OpId(static_cast<std::int64_t>(o));
    last_read_[best.index()] = std::max(last_read_[best.index()], o);
  }

  // What is in memory up to this op for the order alone.
  Bytes kept_for(ValueId value, std::size_t o) const {
    return last_read_[value.index()] >= o ? 0 : program_.value(value).bytes();
  }

  Graph& program_;
  const OrderBy by_;
  std::vector<std::size_t> last_read_;  // by value: the op
  std::vector<std::int64_t> behind_;    // by value: the last call on the way to it
  std::int64_t calls_ = 0;
  std::vector<ValueId> after_;  // values behind the last call, its own first
  AddedOrder added_;
};

}  // namespace

AddedOrder add_order_inputs(Graph& program, OrderBy by) { return Ordering(program, by).run(); }

void order_collectives(Graph& program, OrderBy by) {
  std::int64_t seq = 0;
  for (Op& op : program.ops) {
    if (is_collective(op)) op.attributes["seq"] = seq++;
  }
  add_order_inputs(program, by);
}

}  // namespace autopar
