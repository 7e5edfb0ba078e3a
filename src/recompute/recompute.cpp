#include "autopar/recompute.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "autopar/pattern.hpp"
#include "recompute/checkpoints.hpp"
#include "recompute/cut.hpp"
#include "recompute/of_unit.hpp"
#include "recompute/repeatable.hpp"

namespace autopar {
namespace {

constexpr std::array kNames = {
    std::pair(Recompute::kNone, "none"), std::pair(Recompute::kCheap, "cheap"),
    std::pair(Recompute::kProducts, "products"), std::pair(Recompute::kFull, "full")};

class Rewrite {
 public:
  // Of a unit there are no checkpoints but at its end.
  enum class Turn : std::uint8_t { kPeak, kEndOfForward, kEndOfUnit };
  Rewrite(const Graph& graph, RecomputeLevels levels, Turn turn,
          const std::vector<std::string>& checkpoints = {})
      : graph_(graph),
        levels_(std::move(levels)),
        turn_at_(turn),
        given_(checkpoints),
        repeatable_(graph) {}

  Recomputed run() {
    Recomputed result;
    result.kept = find_turn(graph_);
    is_checkpoint_.assign(graph_.values.size(), false);
    if (!given_.empty()) {
      take_checkpoints();
    } else if (turn_at_ != Turn::kEndOfUnit) {
      find_checkpoints();
    }
    cut();
    rebuild();
    result.kept_after = Rewrite(again_, levels_, turn_at_).find_turn(again_);
    if (repeated_ == 0 || result.kept_after >= result.kept) {
      result.graph = graph_;
      result.kept_after = result.kept;
      return result;
    }
    result.graph = std::move(again_);
    result.op_of_repeat = std::move(op_of_repeat_);
    result.value_of_repeat = std::move(value_of_repeat_);
    result.repeated = repeated_;
    return result;
  }

  // These values are made again for the backward pass.
  Recomputed repeat_for_backward(std::vector<bool> values) {
    Recomputed result;
    result.kept = find_turn(graph_);
    is_checkpoint_.assign(graph_.values.size(), false);
    repeat_ = std::move(values);
    by_phase_ = true;
    rebuild();
    result.kept_after = Rewrite(again_, levels_, turn_at_).find_turn(again_);
    result.graph = std::move(again_);
    result.op_of_repeat = std::move(op_of_repeat_);
    result.value_of_repeat = std::move(value_of_repeat_);
    result.repeated = repeated_;
    return result;
  }
  // After that: whether a copy of the value was made, since somebody reads it.
  bool has_copy(ValueId id) const { return copies_[id.index()].valid(); }

 private:
  bool reads_copies(std::size_t op) const {
    return by_phase_ ? graph_.ops[op].phase == Phase::kBackward : op > turn_;
  }

  // The time of the largest peak of activations in the passes, or the last one of the forward pass,
  // and what is there. A view is its input's memory. An update runs once, on what all passes left:
  // nothing is repeated for it.
  Bytes find_turn(const Graph& graph) {
    std::vector<std::size_t> memory(graph.values.size());
    std::vector<int> begin(graph.values.size(), -1), end(graph.values.size(), -1);
    for (std::size_t v = 0; v < memory.size(); ++v) memory[v] = v;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      for (ValueId input : op.inputs) {
        if (input.valid()) end[memory[input.index()]] = static_cast<int>(o);
      }
      for (ValueId output : op.outputs) {
        if (!output.valid()) continue;
        const bool view = is_view(op) && op.has_input(0) &&
                          graph.value(op.inputs[0]).kind != ValueKind::kConstant;
        if (view) memory[output.index()] = memory[op.inputs[0].index()];
        if (!view) begin[output.index()] = static_cast<int>(o);
        end[memory[output.index()]] = static_cast<int>(o);
      }
    }
    std::vector<Bytes> change(graph.ops.size() + 1, 0);
    for (std::size_t v = 0; v < memory.size(); ++v) {
      if (begin[v] < 0) continue;
      change[static_cast<std::size_t>(begin[v])] += graph.values[v].bytes();
      change[static_cast<std::size_t>(end[v]) + 1] -= graph.values[v].bytes();
    }
    Bytes now = 0, peak = 0;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      now += change[o];
      const bool is_forward = graph.ops[o].phase == Phase::kForward;
      const bool may_be =
          turn_at_ == Turn::kPeak ? now > peak && graph.ops[o].phase != Phase::kUpdate : is_forward;
      if (!may_be) continue;
      peak = now;
      turn_ = o;
    }
    return peak;
  }

  bool before_turn(ValueId id) const {
    const OpId producer = graph_.value(id).producer;
    return producer.valid() && producer.index() <= turn_;
  }

  // What is behind the last one is in no segment.
  void take_checkpoints() {
    std::size_t last = 0;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const bool is_given = std::any_of(
          given_.begin(), given_.end(),
          [&](const std::string& pattern) { return matches(pattern, graph_.values[v].name); });
      is_checkpoint_[v] = is_given && in_network(ValueId(static_cast<std::int64_t>(v)));
      if (is_checkpoint_[v]) last = std::max(last, graph_.values[v].producer.index());
    }
    end_ = last;
  }

  // What is handed on between segments of the forward pass is kept; the rest can be repeated.
  void find_checkpoints() {
    std::vector<std::size_t> last(graph_.values.size(), 0);  // forward op that reads it
    std::vector<bool> read_later(graph_.values.size(), false);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (ValueId input : graph_.ops[o].inputs) {
        if (!in_network(input)) continue;
        if (o <= turn_) last[input.index()] = o;
        if (o > turn_) read_later[input.index()] = true;
      }
    }
    std::vector<Bytes> across(turn_ + 1, 0), made(turn_ + 1, 0);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!in_network(ValueId(static_cast<std::int64_t>(v)))) continue;
      const std::size_t begin = graph_.values[v].producer.index();
      const Bytes bytes = graph_.values[v].bytes();
      if (read_later[v]) made[begin] += bytes;
      if (last[v] <= begin) continue;
      across[begin] += bytes;
      across[last[v]] -= bytes;
    }
    for (std::size_t t = 1; t <= turn_; ++t) across[t] += across[t - 1];
    const auto keep_after = [&](std::size_t t) {
      for (std::size_t v = 0; v < graph_.values.size(); ++v) {
        if (!in_network(ValueId(static_cast<std::int64_t>(v)))) continue;
        if (graph_.values[v].producer.index() <= t && last[v] > t) is_checkpoint_[v] = true;
      }
    };
    const auto& from = levels_.from();
    for (std::size_t part = 0; part < from.size(); ++part) {
      const std::size_t begin = from[part].op;
      const std::size_t next = part + 1 < from.size() ? from[part + 1].op : turn_ + 1;
      const std::size_t end = std::min(next, turn_ + 1);
      if (from[part].level != Recompute::kFull || begin > turn_) continue;
      const auto part_of = [&](const std::vector<Bytes>& all) {
        return std::vector<Bytes>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                  all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      for (const std::size_t t : checkpoints(part_of(across), part_of(made))) keep_after(begin + t);
      if (end <= turn_) keep_after(end - 1);
    }
  }

  bool makes_checkpoint(const Op& op) const {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [this](ValueId output) {
      return output.valid() && is_checkpoint_[output.index()];
    });
  }

  bool repeatable(const Op& op) const {
    const auto place = static_cast<std::size_t>(&op - graph_.ops.data());
    const Recompute level = levels_.of(place);
    if (level == Recompute::kFull && makes_checkpoint(op)) return false;
    return place <= end_ && repeatable_.may_repeat(op, level);
  }

  bool in_network(ValueId id) const {
    return id.valid() && before_turn(id) && !repeatable_.is_ready(id);
  }

  // Value v is arc 2v -> 2v + 1 of its bytes.
  void cut() {
    const int source = static_cast<int>(2 * graph_.values.size()), sink = source + 1;
    MinimumCut network(sink + 1);
    const auto in = [](ValueId id) { return 2 * id.value; };
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (o > turn_) {
        for (ValueId input : op.inputs) {
          if (in_network(input)) network.connect(in(input) + 1, sink, MinimumCut::kUnlimited);
        }
        continue;
      }
      for (ValueId output : op.outputs) {
        if (!in_network(output)) continue;
        network.connect(in(output), in(output) + 1, graph_.value(output).bytes());
        if (!repeatable(op)) network.connect(source, in(output), MinimumCut::kUnlimited);
        for (ValueId input : op.inputs) {
          if (!repeatable(op) || !in_network(input)) continue;
          network.connect(in(input) + 1, in(output), MinimumCut::kUnlimited);
        }
      }
    }
    const std::vector<bool> far = network.far_side(source, sink);
    repeat_.assign(graph_.values.size(), false);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      repeat_[v] = in_network(id) && far[2 * v] && repeatable(graph_.op(graph_.value(id).producer));
    }
  }

  void rebuild() {
    values_ = graph_.values;
    for (const Value& value : graph_.values) value_names_.take(value.name);
    for (const Op& op : graph_.ops) op_names_.take(op.name);
    copies_.assign(graph_.values.size(), ValueId());
    find_ends();
    const bool phased = has_backward_pass(graph_);
    // Passes of a model that is not trained are forward passes.
    const Phase later = phased || !graph_.has_passes() ? Phase::kBackward : Phase::kForward;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      Op op = graph_.ops[o];
      for (ValueId& input : op.inputs) {
        if (reads_copies(o) && input.valid() && repeat_[input.index()]) {
          input = copy_of(input, phased && op.phase == Phase::kForward ? Phase::kForward : later);
        }
      }
      op.ends_segment = ends_segment_[o];
      ops_.push_back({std::move(op), -1});
      place_.push_back(static_cast<int>(ops_.size()) - 1);
    }
    assemble();
  }

  // What the segments of kFull end with: made of what is repeated, up to the next checkpoint.
  void find_ends() {
    ends_segment_.assign(graph_.ops.size(), false);
    if (by_phase_) return;
    std::vector<bool> goes_on(graph_.values.size(), false);
    for (std::size_t o = 0; o <= std::min(turn_, end_); ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase != Phase::kForward || levels_.of(o) != Recompute::kFull) continue;
      const auto is_repeated = [&](ValueId id) { return id.valid() && repeat_[id.index()]; };
      const bool is_left = std::none_of(op.outputs.begin(), op.outputs.end(), is_repeated);
      const bool is_of_segment = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
        return is_repeated(id) || (id.valid() && goes_on[id.index()]);
      });
      if (!is_left || !is_of_segment || op.outputs.empty()) continue;
      ends_segment_[o] = true;
      for (const ValueId output : op.outputs) {
        if (output.valid()) goes_on[output.index()] = !is_checkpoint_[output.index()];
      }
    }
  }

  // Depth first by a stack: chains of repeated ops may be long. Copies are of the pass that reads
  // them first: the peak may lie before the end of the forward pass.
  ValueId copy_of(ValueId wanted, Phase phase) {
    std::vector<ValueId> pending = {wanted};
    while (!pending.empty()) {
      const ValueId id = pending.back();
      if (copies_[id.index()].valid()) {
        pending.pop_back();
        continue;
      }
      const OpId producer = graph_.value(id).producer;
      Op op = graph_.op(producer);
      bool ready = true;
      for (ValueId& input : op.inputs) {
        if (!input.valid() || !repeat_[input.index()]) continue;
        if (copies_[input.index()].valid()) {
          input = copies_[input.index()];
        } else {
          pending.push_back(input);
          ready = false;
        }
      }
      if (!ready) continue;
      op.phase = phase;
      repeat(std::move(op), producer);
    }
    return copies_[wanted.index()];
  }

  // Running statistics are counted once. ONNX Runtime writes the next ones over those it reads, so
  // that a copy reads none that anybody needs: what it is for does not depend on them.
  void forget_statistics(Op& op) {
    if (op.type != "BatchNormalization" || op.int_attribute("training_mode", 0) == 0) return;
    const ValueId mean = op.inputs[3];
    Value nothing;
    nothing.name = value_names_.unique(op.name + ".again.no_statistics");
    nothing.dtype = values_[mean.index()].dtype;
    nothing.shape = values_[mean.index()].shape;
    values_.push_back(std::move(nothing));
    Op zero;
    zero.name = zero.origin_name = op_names_.unique(op.name + ".again.no_statistics");
    zero.type = zero.origin_type = "Sub";
    zero.phase = op.phase;
    zero.inputs = {mean, mean};
    zero.outputs = {ValueId(static_cast<std::int64_t>(values_.size()) - 1)};
    op.inputs[3] = op.inputs[4] = zero.outputs[0];
    ops_.push_back({std::move(zero), -1});
  }

  void repeat(Op op, OpId original) {
    forget_statistics(op);
    for (ValueId& output : op.outputs) {
      if (!output.valid()) continue;
      values_.push_back(values_[output.index()]);
      ValueId& copy = copies_[output.index()];
      output = copy = ValueId(static_cast<std::int64_t>(values_.size()) - 1);
    }
    ops_.push_back({std::move(op), original.value});
  }

  // The graph of the ops that somebody reads. A copy whose original nobody reads has only moved,
  // and keeps the names.
  void assemble() {
    std::vector<bool> read(values_.size(), false), kept(ops_.size(), false);
    for (ValueId output : graph_.outputs) read[output.index()] = true;
    for (std::size_t o = ops_.size(); o-- > 0;) {
      for (ValueId output : ops_[o].op.outputs) {
        if (output.valid() && read[output.index()]) kept[o] = true;
      }
      if (!kept[o]) continue;
      for (ValueId input : ops_[o].op.inputs) {
        if (input.valid()) read[input.index()] = true;
      }
    }
    again_.name = graph_.name;
    again_.opset = graph_.opset;
    again_.passes = graph_.passes;
    again_.accumulates = graph_.accumulates;
    again_.in_flight = graph_.in_flight;
    again_.copies = graph_.copies;
    std::vector<ValueId> moved(values_.size());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].producer.valid()) continue;
      moved[v] = again_.add_value(graph_.values[v]);
    }
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      if (!kept[o]) continue;
      Op op = std::move(ops_[o].op);
      const int original = ops_[o].original;
      const bool repeats =
          original >= 0 &&
          kept[static_cast<std::size_t>(place_[static_cast<std::size_t>(original)])];
      if (repeats) op.name = named_again(op.name, op_names_, op_of_repeat_);
      for (ValueId& input : op.inputs) {
        if (input.valid()) input = moved[input.index()];
      }
      for (ValueId& output : op.outputs) {
        if (!output.valid()) continue;
        Value value = values_[output.index()];
        if (repeats) value.name = named_again(value.name, value_names_, value_of_repeat_);
        value.producer = {};
        output = moved[output.index()] = again_.add_value(std::move(value));
      }
      again_.add_op(std::move(op));
      repeated_ += original >= 0;
    }
    for (ValueId id : graph_.inputs) again_.inputs.push_back(moved[id.index()]);
    for (ValueId id : graph_.outputs) again_.outputs.push_back(moved[id.index()]);
  }

  static std::string named_again(const std::string& name, Names& names,
                                 std::map<std::string, std::string>& of_repeat) {
    std::string again = names.unique(name + ".again");
    of_repeat[again] = name;
    return again;
  }

  const Graph& graph_;
  const RecomputeLevels levels_;
  Turn turn_at_;
  std::vector<std::string> given_;  // patterns of checkpoints
  std::size_t turn_ = 0;
  std::size_t end_ = std::numeric_limits<std::size_t>::max();  // no op behind it is repeated
  Repeatable repeatable_;
  std::vector<bool> is_checkpoint_;
  std::vector<bool> repeat_;  // readers after the turn read a copy
  bool by_phase_ = false;     // those of the backward pass do, wherever the turn is
  std::vector<bool> ends_segment_;
  struct Placed {
    Op op;
    int original;  // of a copy: the op's place in the graph; else -1
  };
  std::vector<Placed> ops_;    // in their new order
  std::vector<int> place_;     // per op of the graph: its place in ops_
  std::vector<Value> values_;  // the graph's, then those of copies
  std::vector<ValueId> copies_;
  Names value_names_, op_names_;
  std::map<std::string, std::string> op_of_repeat_, value_of_repeat_;
  Graph again_;
  std::size_t repeated_ = 0;
};

}  // namespace

const char* name_of(Recompute recompute) {
  for (const auto& [value, name] : kNames) {
    if (value == recompute) return name;
  }
  return "";
}

std::optional<Recompute> parse_recompute(const std::string& name) {
  for (const auto& [value, text] : kNames) {
    if (name == text) return value;
  }
  return std::nullopt;
}

RecomputeLevels::RecomputeLevels(const std::vector<From>& from) {
  for (const From& one : from) {
    if (from_.empty() || from_.back().level != one.level) from_.push_back(one);
  }
  AUTOPAR_CHECK(!from_.empty() && from_.front().op == 0, "levels begin with the first op");
}

Recompute RecomputeLevels::of(std::size_t op) const {
  const auto next =
      std::find_if(from_.begin(), from_.end(), [&](const From& one) { return one.op > op; });
  return std::prev(next)->level;
}

const char* name_of(const RecomputeLevels& levels) {
  return levels.are_mixed() ? kMixedLevels : name_of(levels.from().front().level);
}

Recomputed recompute(const Graph& graph, const RecomputeLevels& levels,
                     const std::vector<std::string>& checkpoints) {
  if (levels.repeat_nothing() || graph.ops.empty()) return {graph, 0, 0, 0};
  // What is given is kept between the passes, whatever a pass holds most at; and where several are
  // in flight what each keeps counts most.
  const bool takes_given = levels == Recompute::kFull && !checkpoints.empty();
  const bool at_end = (takes_given || graph.in_flight > 1) && has_backward_pass(graph);
  const Rewrite::Turn turn = at_end ? Rewrite::Turn::kEndOfForward : Rewrite::Turn::kPeak;
  return Rewrite(graph, levels, turn, takes_given ? checkpoints : std::vector<std::string>()).run();
}

Result<Recomputed> repeat_these(const Graph& graph, const std::set<std::string>& ops) {
  const Repeatable repeatable(graph);
  const auto refuse = [](const std::string& name, const std::string& reason) {
    return input_error("op '" + name + "': cannot be repeated in the backward pass: " + reason);
  };
  std::vector<bool> values(graph.values.size(), false);
  std::set<std::string> found;
  for (const Op& op : graph.ops) {
    if (ops.count(op.name) == 0) continue;
    found.insert(op.name);
    if (!has_backward_pass(graph)) return refuse(op.name, "the model has none");
    if (op.phase != Phase::kForward) {
      return refuse(op.name, std::string("it is of the ") + name_of(op.phase) + " pass");
    }
    if (is_random(op)) return refuse(op.name, "it is random, and would give other numbers");
    if (!repeatable.may_repeat(op, Recompute::kFull)) {
      return refuse(op.name, "it looks weights up, which is not repeated");
    }
    for (ValueId output : op.outputs) {
      if (output.valid()) values[output.index()] = true;
    }
  }
  for (const std::string& name : ops) {
    if (found.count(name) == 0) return refuse(name, "there is no op of that name");
  }
  Rewrite rewrite(graph, Recompute::kFull, Rewrite::Turn::kEndOfForward);
  Recomputed result = rewrite.repeat_for_backward(std::move(values));
  for (const Op& op : graph.ops) {
    if (ops.count(op.name) == 0) continue;
    const bool is_read = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
      return output.valid() && rewrite.has_copy(output);
    });
    if (!is_read) {
      return refuse(op.name, "nothing there reads what it makes, nor does an op that is repeated");
    }
  }
  return result;
}

Recomputed recompute_unit(const Graph& graph, Recompute what) {
  if (what == Recompute::kNone || graph.ops.empty()) return {graph, 0, 0, 0};
  return Rewrite(graph, what, Rewrite::Turn::kEndOfUnit).run();
}

}  // namespace autopar
