#include "autopar/copies.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "autopar/builder.hpp"
#include "partition/program.hpp"

namespace autopar {
namespace {

// The values of one copy, by those of the pass; invalid: not made yet.
using Copied = std::vector<ValueId>;

class Interleaving {
 public:
  Interleaving(const Plan& pass, std::int64_t copies, const std::vector<MicroInput>& micro_inputs,
               const std::vector<StepOutput>& outputs)
      : pass_(pass), from_(pass.program), known_(known_at_load(from_)), outputs_(outputs) {
    for (const MicroInput& input : micro_inputs) cut_at_[input.name] = input.dimension;
    copies_.assign(static_cast<std::size_t>(copies), Copied(from_.values.size()));
    done_.resize(copies_.size());
    made_.mesh = pass.mesh;
    made_.inputs = pass.inputs;
    made_.outputs = pass.outputs;
    Graph& to = made_.program;
    to.name = from_.name;
    to.opset = from_.opset;
    for (const Value& value : from_.values) value_names_.take(value.name);
    for (const Op& op : from_.ops) op_names_.take(op.name);
  }

  Plan run(const std::vector<CopyTurn>& turns) {
    find_next_values();
    share_values();
    cut_inputs();
    if (are_complete(turns)) take(turns);
    for (const std::size_t end : section_ends()) {
      for (std::size_t c = 0; c < copies_.size(); ++c) go_on(c, end);
    }
    add_outputs();
    order_collectives(made_.program, OrderBy::kItsOutput);
    return std::move(made_);
  }

 private:
  Copied& last() { return copies_.back(); }

  void find_next_values() {
    leaves_.resize(from_.values.size());
    input_of_.resize(from_.values.size());
    made_by_.resize(from_.values.size());
    std::map<std::string, ValueId> inputs;
    for (const ValueId input : from_.inputs) inputs[from_.value(input).name] = input;
    for (const ValueId output : from_.outputs) {
      leaves_[output.index()] = 1;
      const Value& value = from_.value(output);
      if (!is_next(value.name) || !value.producer.valid()) continue;
      const auto input = inputs.find(input_of_next(value.name));
      if (input == inputs.end()) continue;
      input_of_[output.index()] = input->second;
      made_by_[input->second.index()] = value.producer;
    }
  }

  // The ops of a copy that are left before `end`; of the one before also those that make what it
  // goes on from.
  void go_on(std::size_t copy, std::size_t end) {
    for (; done_[copy] < end; ++done_[copy]) {
      const Op& op = from_.ops[done_[copy]];
      for (const ValueId input : op.inputs) {
        if (copy == 0 || !input.valid() || !made_by_[input.index()].valid()) continue;
        go_on(copy - 1, made_by_[input.index()].index() + 1);
      }
      add_op(op, copy);
    }
  }

  // Stored values and constants; data that is whole for every micro-batch.
  void share_values() {
    for (std::size_t v = 0; v < from_.values.size(); ++v) {
      if (from_.values[v].producer.valid()) continue;
      const ValueId id = made_.program.add_value(from_.values[v]);
      for (Copied& copy : copies_) copy[v] = id;
    }
    for (const ValueId input : from_.inputs) {
      made_.program.inputs.push_back(last()[input.index()]);
    }
  }

  // Each copy reads its elements of what the rank holds of several micro-batches.
  void cut_inputs() {
    GraphBuilder to(made_.program, value_names_, op_names_);
    const auto count = static_cast<std::int64_t>(copies_.size());
    for (std::size_t i = 0; i < from_.inputs.size(); ++i) {
      const auto cut = cut_at_.find(pass_.inputs[i].name);
      if (cut == cut_at_.end()) continue;
      const auto d = static_cast<std::size_t>(cut->second);
      const ValueId whole = last()[from_.inputs[i].index()];
      const Shape part = from_.value(from_.inputs[i]).shape;
      made_.inputs[i].shape[d] *= count;
      made_.program.value(whole).shape[d] *= count;
      for (std::int64_t c = 0; c < count; ++c) {
        to.name_after(named(pass_.inputs[i].name, c), GraphBuilder::Naming::kCounted);
        copies_[static_cast<std::size_t>(c)][from_.inputs[i].index()] =
            to.add("Slice",
                   {whole, to.ints({c}), to.ints({part[d] * count}), to.ints({cut->second}),
                    to.ints({count})},
                   made_.program.value(whole).dtype, part);
      }
    }
  }

  bool are_complete(const std::vector<CopyTurn>& turns) const {
    const auto count = std::count_if(from_.ops.begin(), from_.ops.end(), exchanges_data);
    std::vector<std::ptrdiff_t> named(copies_.size(), 0);
    for (const CopyTurn& turn : turns) named[turn.copy] += turn.op.empty() ? 1 : 0;
    return count > 0 && std::all_of(named.begin(), named.end(),
                                    [&](std::ptrdiff_t of_copy) { return of_copy == count; });
  }

  void take(const std::vector<CopyTurn>& turns) {
    std::map<std::string, std::size_t> place;
    std::vector<std::size_t> sent(copies_.size(), 0), ends;  // per copy, and behind each collective
    for (std::size_t o = 0; o < from_.ops.size(); ++o) {
      place[from_.ops[o].name] = o;
      if (exchanges_data(from_.ops[o])) ends.push_back(o + 1);
    }
    for (const CopyTurn& turn : turns) {
      const auto op = place.find(turn.op);
      if (turn.op.empty()) {
        go_on(turn.copy, ends[sent[turn.copy]++]);
      } else if (op != place.end()) {
        go_on(turn.copy, op->second + 1);
      }
    }
  }

  // Behind collectives, and behind the last op. The cost model foresees this order:
  // StepSimulation::section_ends() has the same rule for terms.
  std::vector<std::size_t> section_ends() const {
    std::vector<std::size_t> ends;
    for (std::size_t o = 0; o < from_.ops.size(); ++o) {
      const bool is_last = o + 1 == from_.ops.size();
      if (is_last || (exchanges_data(from_.ops[o]) && !exchanges_data(from_.ops[o + 1]))) {
        ends.push_back(o + 1);
      }
    }
    return ends;
  }

  static std::string named(const std::string& name, std::int64_t copy) {
    return name + ".copy" + std::to_string(copy);
  }

  // Slices of what is known when the program is loaded are there once.
  bool is_shared(const Op& op) const {
    return is_slice(op) && op.has_input(0) && known_[op.inputs[0].index()] != 0;
  }

  void add_op(const Op& from, std::size_t c) {
    const bool shared = is_shared(from);
    if (shared && c > 0) return;
    const auto copy = static_cast<std::int64_t>(c);
    Op op = from;
    if (c > 0) op.name = op_names_.unique(named(from.name, copy));
    // What only orders it is found anew.
    if (exchanges_data(op)) op.inputs.resize(1);
    for (ValueId& input : op.inputs) {
      if (input.valid()) input = copies_[c][input.index()];
    }
    for (ValueId& output : op.outputs) {
      if (!output.valid()) continue;
      const std::size_t v = output.index();
      Value value = from_.values[v];
      value.producer = {};
      const bool is_last_next = input_of_[v].valid() && c + 1 == copies_.size();
      const bool keeps_name = leaves_[v] != 0 ? is_last_next : c == 0;
      if (!keeps_name) value.name = value_names_.unique(named(value.name, copy));
      output = made_.program.add_value(std::move(value));
      for (std::size_t to = c; to < (shared ? copies_.size() : c + 1); ++to)
        copies_[to][v] = output;
      // The next copy goes on from there.
      const ValueId input = input_of_[v];
      if (input.valid() && c + 1 < copies_.size()) copies_[c + 1][input.index()] = output;
    }
    made_.program.add_op(std::move(op));
  }

  void add_outputs() {
    GraphBuilder to(made_.program, value_names_, op_names_);
    to.set_phase(Phase::kForward);
    for (const ValueId output : from_.outputs) {
      const std::size_t v = output.index();
      if (input_of_[v].valid() || !from_.values[v].producer.valid()) {
        made_.program.outputs.push_back(last()[v]);
        continue;
      }
      const std::string& name = from_.values[v].name;
      to.name_after(name + ".copies", GraphBuilder::Naming::kCounted);
      const ValueId one = combined(to, v, combining_of(name));
      made_.program.value(one).name = name;
      made_.program.outputs.push_back(one);
    }
  }

  const StepOutput& combining_of(const std::string& name) const {
    const auto found = std::find_if(outputs_.begin(), outputs_.end(),
                                    [&](const StepOutput& output) { return output.name == name; });
    AUTOPAR_CHECK(found != outputs_.end(), "an output of a pass that is not combined: " + name);
    return *found;
  }

  // An op of its own gives the value, so that it may have the output's name.
  ValueId combined(GraphBuilder& to, std::size_t v, const StepOutput& output) const {
    std::vector<ValueId> parts;
    for (const Copied& copy : copies_) parts.push_back(copy[v]);
    if (output.combining == Combining::kLast) return to.pointwise("Identity", {parts.back()});
    AUTOPAR_CHECK(output.combining != Combining::kConcat, "a pass of a training step has samples");
    ValueId sum = parts[0];
    for (std::size_t c = 1; c < parts.size(); ++c) sum = to.pointwise("Add", {sum, parts[c]});
    if (output.combining == Combining::kSum) return sum;
    return to.pointwise("Div", {sum, to.scalar(to.dtype(sum), static_cast<double>(parts.size()))});
  }

  const Plan& pass_;
  const Graph& from_;
  const std::vector<char> known_;
  const std::vector<StepOutput>& outputs_;
  std::map<std::string, std::int64_t> cut_at_;  // by input: the dimension
  std::vector<Copied> copies_;
  std::vector<std::size_t> done_;  // by copy: ops
  // Per value of the pass: whether it is an output; of such the input whose next value it is; of
  // inputs what makes the next value.
  std::vector<char> leaves_;
  std::vector<ValueId> input_of_;
  std::vector<OpId> made_by_;
  Plan made_;
  Names value_names_, op_names_;
};

}  // namespace

Result<Plan> interleave_copies(const Plan& pass, std::int64_t copies,
                               const std::vector<MicroInput>& micro_inputs,
                               const std::vector<StepOutput>& outputs,
                               const std::vector<CopyTurn>& turns) {
  if (copies == 1) return Plan(pass);
  Plan made = Interleaving(pass, copies, micro_inputs, outputs).run(turns);
  AUTOPAR_RETURN_IF_ERROR(verify(made));
  return made;
}

}  // namespace autopar
