// Where a number that rounding has moved a little comes out far away.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>

#include "autopar/exec.hpp"
#include "exec/compare.hpp"
#include "exec/criterion.hpp"
#include "exec/request.hpp"

namespace autopar {

namespace {

using Types = std::set<std::string_view>;

// Leap in every output where a real input is at the edge.
bool is_jump_type(const Op& op) {
  static const Types kTypes = {
      "Sign",        "Round",        "Floor",          "Ceil",
      "Greater",     "Less",         "GreaterOrEqual", "LessOrEqual",
      "Equal",       "Mod",          "ArgMax",         "ArgMin",
      "NonZero",     "Hardmax",      "QuantizeLinear", "DynamicQuantizeLinear",
      "Shrink",      "Multinomial",  "Bernoulli",      "ThresholdedRelu",
      "Unique",      "MaxRoiPool",   "RoiAlign",       "NonMaxSuppression",
      "If",          "Loop",         "Scan",           "SequenceMap",
      "QLinearConv", "QLinearMatMul"};
  return kTypes.count(op.type) != 0 || op.type.ends_with("Grad") ||
         (op.type == "GridSample" && op.string_attribute("mode", "") == "nearest");
}

// Whether an operand is known to be infinite: no number is carried across that by rounding.
bool compares_with_infinity(const Graph& graph, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) {
    const Tensor* known = input.valid() ? graph.value(input).tensor() : nullptr;
    if (known == nullptr || !is_floating(known->dtype)) return false;
    const std::vector<double> elements = reals_of(*known);
    return std::all_of(elements.begin(), elements.end(), [](double e) { return std::isinf(e); });
  });
}

// Whether this output leaps. The values of a TopK or MaxPool are continuous, their indices leap.
bool leaps(const Graph& graph, const Op& op, std::size_t output) {
  if (op.type == "TopK" || op.type == "MaxPool") return output == 1;
  if (op.type == "Cast" || op.type == "CastLike") {
    return !is_floating(graph.value(op.outputs[output]).dtype);
  }
  return is_jump_type(op) && !compares_with_infinity(graph, op);
}

// Gives the same bits for the same elements however they are split: it moves them, compares them,
// or does what IEEE 754 rounds correctly, element by element.
bool is_exact(const Op& op) {
  static const Types kTypes = {"Identity",
                               "Reshape",
                               "Transpose",
                               "Squeeze",
                               "Unsqueeze",
                               "Flatten",
                               "Cast",
                               "CastLike",
                               "Expand",
                               "Tile",
                               "Slice",
                               "Split",
                               "Pad",
                               "Concat",
                               "Where",
                               "Gather",
                               "GatherElements",
                               "GatherND",
                               "DepthToSpace",
                               "SpaceToDepth",
                               "Trilu",
                               "ReverseSequence",
                               "Compress",
                               "OneHot",
                               "Add",
                               "Sub",
                               "Mul",
                               "Div",
                               "Neg",
                               "Abs",

                               "Min",
                               "Max",
                               "Relu",
                               "LeakyRelu",
                               "PRelu",
                               "Clip",
                               "Sign",
                               "Round",
                               "Floor",
                               "Ceil",
                               "Mod",
                               "Greater",
                               "Less",
                               "GreaterOrEqual",
                               "LessOrEqual",
                               "Equal",
                               "IsNaN",
                               "IsInf",
                               "ArgMax",
                               "ArgMin",
                               "TopK",
                               "NonZero",
                               "ReduceMax",
                               "ReduceMin",
                               "MaxPool",
                               "GlobalMaxPool",
                               "Hardmax",
                               "ThresholdedRelu",
                               "Unique"};
  static const Types kCommunication = {"AllGather", "Broadcast", "AllToAll", "ShardSlice",
                                       "Permute",   "Send",      "Recv"};
  if (is_collective(op)) {
    const std::string reduced = op.string_attribute("reduce_op", "");
    return kCommunication.count(op.type) != 0 || reduced == "max" || reduced == "min";
  }
  return kTypes.count(op.type) != 0;
}

// What is known of a value.
struct Rounded {
  bool computed = false;              // may differ from rank to rank by rounding
  OpId jump;                          // the nearest upstream; invalid: none
  const Graph* jump_graph = nullptr;  // the program that it is in
  // The type with the fewest digits upstream; float64: none.
  DType coarsest = DType::kFloat64;
  bool operator==(const Rounded&) const = default;
  void add(const Rounded& other) {
    computed = computed || other.computed;
    const bool nearer = jump_graph == other.jump_graph && jump < other.jump;
    if (other.jump.valid() && (!jump.valid() || nearer)) {
      jump = other.jump;
      jump_graph = other.jump_graph;
    }
    if (relative_unit(other.coarsest) > relative_unit(coarsest)) coarsest = other.coarsest;
  }
};

Rounded of_type(DType dtype) {
  Rounded rounded;
  rounded.coarsest = dtype;
  return rounded;
}

class Rounding {
 public:
  explicit Rounding(const Graph& graph) : graph_(graph), values_(graph.values.size()) {}

  void walk() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.type == "Shape" || op.type == "Size") continue;  // the same whatever the elements are
      Rounded behind;
      bool reads_computed = false;  // real numbers
      bool reads_real = false;
      for (std::size_t port = 0; port < op.inputs.size(); ++port) {
        if (!op.has_input(port)) continue;
        const Rounded& input = values_[op.inputs[port].index()];
        const bool real = is_floating(graph_.value(op.inputs[port]).dtype);
        behind.add(input);
        reads_real = reads_real || real;
        reads_computed = reads_computed || (real && input.computed);
      }
      for (std::size_t output = 0; output < op.outputs.size(); ++output) {
        if (!op.has_output(output)) continue;
        Rounded& value = values_[op.outputs[output].index()];
        value = behind;
        value.computed = value.computed || (reads_real && !is_exact(op));
        const DType dtype = graph_.value(op.outputs[output]).dtype;
        if (is_floating(dtype)) value.add(of_type(dtype));
        if (reads_computed && leaps(graph_, op, output)) {
          value.jump = OpId(static_cast<std::int64_t>(o));
          value.jump_graph = &graph_;
        }
      }
    }
  }

  // What is known of outputs by name.
  void tell(std::map<std::string, Rounded>& known) const {
    for (const ValueId output : graph_.outputs) {
      known[graph_.value(output).name].add(values_[output.index()]);
    }
  }

  // Inputs are what outputs of these names were; whether anything is known of them that was not.
  bool learn(const std::map<std::string, Rounded>& known,
             const std::function<std::string(const std::string&)>& name_of) {
    bool more = false;
    for (const ValueId input : graph_.inputs) {
      const auto at = known.find(name_of(graph_.value(input).name));
      if (at == known.end()) continue;
      Rounded& rounded = values_[input.index()];
      const Rounded before = rounded;
      rounded.add(at->second);
      more = more || !(rounded == before);
    }
    return more;
  }

  std::map<std::string, DType> coarsest() const {
    std::map<std::string, DType> types;
    for (const ValueId output : graph_.outputs) {
      const Value& value = graph_.value(output);
      const DType coarsest = values_[output.index()].coarsest;
      if (!is_floating(value.dtype) || relative_unit(coarsest) <= relative_unit(value.dtype)) {
        continue;
      }
      types[value.name] = coarsest;
    }
    return types;
  }

  std::map<std::string, std::string> outputs() const {
    std::map<std::string, std::string> jumps;
    for (const ValueId output : graph_.outputs) {
      const Rounded& rounded = values_[output.index()];
      if (!rounded.jump.valid() || !is_floating(graph_.value(output).dtype)) continue;
      const Op& op = rounded.jump_graph->op(rounded.jump);
      jumps[graph_.value(output).name] = op.type + " '" + op.name + "'";
    }
    return jumps;
  }

 private:
  const Graph& graph_;
  std::vector<Rounded> values_;
};

// Programs that pass values by name, in one step and from one step to the next.
class StepRounding {
 public:
  StepRounding(const std::vector<GraphOfStep>& programs, int steps, const std::string& updates)
      : programs_(programs) {
    for (const GraphOfStep& program : programs) roundings_.emplace_back(*program.graph);
    for (int step = 0; step < steps; ++step) {
      do {
        for (Rounding& rounding : roundings_) rounding.walk();
      } while (pass_within_step());
      const auto next = [&](const std::string& name) { return update_of(name, updates); };
      if (step + 1 < steps && !learn(known(false), next)) break;
    }
  }
  const std::vector<Rounding>& programs() const { return roundings_; }

 private:
  std::map<std::string, Rounded> known(bool only_passes) const {
    std::map<std::string, Rounded> known;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      if (programs_[p].is_pass || !only_passes) roundings_[p].tell(known);
    }
    return known;
  }

  bool learn(const std::map<std::string, Rounded>& known,
             const std::function<std::string(const std::string&)>& name_of) {
    bool more = false;
    for (Rounding& rounding : roundings_) more = rounding.learn(known, name_of) || more;
    return more;
  }

  bool pass_within_step() {
    const bool made = learn(known(false), [](const std::string& name) { return name; });
    const bool next = learn(known(true), next_name);
    return made || next;
  }

  const std::vector<GraphOfStep>& programs_;
  std::vector<Rounding> roundings_;
};

}  // namespace

std::map<std::string, std::string> jumps_of(const std::vector<GraphOfStep>& programs, int steps,
                                            const std::string& updates) {
  const StepRounding step(programs, steps, updates);
  std::map<std::string, std::string> jumps;
  for (const Rounding& program : step.programs()) jumps.merge(program.outputs());
  return jumps;
}

std::map<std::string, std::string> jumps_of(const Graph& model, int steps,
                                            const std::string& updates) {
  return jumps_of({{&model}}, steps, updates);
}

std::map<std::string, DType> coarser_types_of(const std::vector<GraphOfStep>& programs, int steps,
                                              const std::string& updates) {
  const StepRounding step(programs, steps, updates);
  std::map<std::string, DType> types;
  for (const Rounding& program : step.programs()) types.merge(program.coarsest());
  return types;
}

std::map<std::string, DType> coarser_types_of(const Graph& model, int steps,
                                              const std::string& updates) {
  return coarser_types_of({{&model}}, steps, updates);
}

}  // namespace autopar
