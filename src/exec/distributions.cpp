// What an input's data have to be like, from what the model does with it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "autopar/exec.hpp"

namespace autopar {

namespace {

constexpr Distribution kUnit{0, 1};         // data, rows of tables
constexpr Distribution kAroundOne{1, 0.1};  // scales, and what must not be negative
constexpr Distribution kMoment{0, 1e-3};    // no larger than gradients
constexpr std::int64_t kAnyIndex = std::numeric_limits<std::int64_t>::max();

template <std::size_t N>
bool is_one_of(std::string_view type, const std::array<std::string_view, N>& types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// Their output holds elements of the input, all or some.
bool moves_elements(const Op& op, int port) {
  static constexpr std::array<std::string_view, 14> kTypes = {
      "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten",  "Cast",
      "Expand",   "Tile",    "Slice",     "Split",   "Dropout",   "CastLike", "Pad"};
  static constexpr std::array<std::string_view, 6> kCommunication = {
      "AllGather", "Broadcast", "AllToAll", "ShardSlice", "Send", "Recv"};
  if (op.domain == "ai.autopar") return port == 0 && is_one_of(op.type, kCommunication);
  if (op.type == "Where") return port > 0;
  return op.type == "Concat" || (port == 0 && is_one_of(op.type, kTypes));
}

bool is_single(const Graph& graph, const Op& op, std::size_t port) {
  return op.has_input(port) && element_count(graph.value(op.inputs[port]).shape) == 1;
}

// Whether a negative input can make an output negative that would not be so otherwise: sums,
// products with single numbers, moments.
bool keeps_sign(const Graph& graph, const Op& op, int port) {
  if (op.type == "Add" || op.type == "Sum") return true;
  if (op.type == "Mul") return is_single(graph, op, 1 - static_cast<std::size_t>(port));
  return op.type == "Div" && port == 0 && is_single(graph, op, 1);
}

// Functions that are not defined, or not bounded, at zero and below.
bool must_be_positive(const Op& op, int port) {
  if (op.type == "Sqrt" || op.type == "Log" || op.type == "Reciprocal") return true;
  if (op.type == "Div" || op.type == "Pow" || op.type == "Mod") return port == 1;
  return op.type == "BatchNormalization" && port == 4;
}

// A sample of the variance 2 / (inputs + outputs) of a layer keeps the size of what goes through
// it in either direction (Glorot and Bengio, "Understanding the difficulty of training deep
// feedforward neural networks", AISTATS 2010, eq. 12).
Distribution weight(const Op& op, const Shape& shape) {
  const bool is_kernel = op.type == "Conv" || op.type == "ConvTranspose";
  if (shape.size() < 2) return {};
  double field = 1;
  for (std::size_t d = 2; is_kernel && d < shape.size(); ++d) {
    field *= static_cast<double>(shape[d]);
  }
  const std::size_t first = is_kernel ? 0 : shape.size() - 2;
  const auto both = static_cast<double>(shape[first] + shape[first + 1]);
  return {0, std::sqrt(2 / std::max(1.0, field * both))};
}

// What one op wants of real numbers; nothing: it does not care.
std::optional<Distribution> wanted(const Graph& graph, const Op& op, int port, const Shape& shape) {
  static constexpr std::array<std::string_view, 5> kProducts = {"MatMul", "Gemm", "Conv",
                                                                "ConvTranspose", "Einsum"};
  static constexpr std::array<std::string_view, 3> kRecurrent = {"LSTM", "GRU", "RNN"};
  static constexpr std::array<std::string_view, 5> kNormalisations = {
      "LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization",
      "BatchNormalization"};
  const bool recurrent = is_one_of(op.type, kRecurrent);
  if (is_one_of(op.type, kProducts) || recurrent) {
    if (port == 0) return kUnit;
    if (port == 1 || (recurrent && port == 2)) return weight(op, shape);
    return std::nullopt;
  }
  if (op.type == "Gather" && port == 0) return kUnit;
  if (is_one_of(op.type, kNormalisations) && port <= 1) return port == 0 ? kUnit : kAroundOne;
  const bool scales = op.type == "Mul" && shape.size() <= 1 && element_count(shape) > 1 &&
                      !is_single(graph, op, 1 - static_cast<std::size_t>(port));
  return scales ? std::optional(kAroundOne) : std::nullopt;
}

// How many values an op allows an index to have; kAnyIndex: it does not care.
std::int64_t allowed_indices(const Graph& graph, const Op& op, int port) {
  const auto dimension = [&](std::size_t input, std::int64_t axis) {
    const Shape& shape = graph.value(op.inputs[input]).shape;
    if (axis < 0) axis += static_cast<std::int64_t>(shape.size());
    return axis < 0 || axis >= static_cast<std::int64_t>(shape.size())
               ? std::int64_t{2}
               : shape[static_cast<std::size_t>(axis)];
  };
  static constexpr std::array<std::string_view, 4> kAlongAxis = {"Gather", "GatherElements",
                                                                 "ScatterElements", "Scatter"};
  static constexpr std::array<std::string_view, 6> kComparisons = {
      "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Not"};
  if (is_one_of(op.type, kAlongAxis)) {
    return port == 1 ? dimension(0, op.int_attribute("axis", 0)) : kAnyIndex;
  }
  if (op.type == "GatherND" || op.type == "ScatterND") {
    if (port != 1) return kAnyIndex;
    const Shape& indices = graph.value(op.inputs[1]).shape;
    std::int64_t least = kAnyIndex;
    const std::int64_t batch = op.int_attribute("batch_dims", 0);
    for (std::int64_t d = 0; !indices.empty() && d < indices.back(); ++d) {
      least = std::min(least, dimension(0, batch + d));
    }
    return least;
  }
  if (op.type == "SoftmaxCrossEntropyLoss" || op.type == "NegativeLogLikelihoodLoss") {
    return port == 1 ? dimension(0, 1) : 2;
  }
  if (op.type == "OneHot" && port == 0) {
    const auto depth = constant_ints(graph, op, 1);
    return depth && depth->size() == 1 && depth->front() > 0 ? depth->front() : 2;
  }
  return is_one_of(op.type, kComparisons) ? kAnyIndex : 2;
}

class InputReader {
 public:
  InputReader(const Graph& graph, const std::vector<std::vector<Use>>& uses)
      : graph_(graph), uses_(uses) {}

  Distribution read(ValueId input) const {
    const Value& value = graph_.value(input);
    if (!is_floating(value.dtype)) return {.indices = indices_of(input)};
    if (reaches_positive(input)) return kAroundOne;
    if (const auto first = first_wanted(input)) return *first;
    return is_moment(input) ? kMoment : Distribution{};
  }

 private:
  // Calls `goes_on` with every use of the value, and of the outputs of the ops of which it says
  // that the data go on through them. Chains of ops can be longer than a stack is deep.
  template <class GoesOn>
  void follow(ValueId from, const GoesOn& goes_on) const {
    std::set<ValueId> seen{from};
    std::vector<ValueId> waiting{from};
    while (!waiting.empty()) {
      const ValueId value = waiting.back();
      waiting.pop_back();
      for (const Use& use : uses_[value.index()]) {
        if (!goes_on(value, use)) continue;
        for (const ValueId output : graph_.op(use.op).outputs) {
          if (output.valid() && seen.insert(output).second) waiting.push_back(output);
        }
      }
    }
  }

  bool reaches_positive(ValueId from) const {
    bool reached = false;
    follow(from, [&](ValueId, const Use& use) {
      const Op& op = graph_.op(use.op);
      reached = reached || must_be_positive(op, use.port);
      return !reached && (moves_elements(op, use.port) || keeps_sign(graph_, op, use.port));
    });
    return reached;
  }

  // Of the first op that cares, in the graph's order: a training step's backward part comes later.
  std::optional<Distribution> first_wanted(ValueId from) const {
    const Shape& shape = graph_.value(from).shape;
    std::optional<OpId> first;
    std::optional<Distribution> distribution;
    follow(from, [&](ValueId, const Use& use) {
      const Op& op = graph_.op(use.op);
      if (moves_elements(op, use.port)) return true;
      const auto found = wanted(graph_, op, use.port, shape);
      if (found && (!first || use.op < *first)) {
        first = use.op;
        distribution = found;
      }
      return false;
    });
    return distribution;
  }

  // An optimizer's moving average decays by a factor before the gradient is added.
  bool is_moment(ValueId input) const {
    const auto& uses = uses_[input.index()];
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      const Op& op = graph_.op(use.op);
      return op.type == "Mul" && is_single(graph_, op, 1 - static_cast<std::size_t>(use.port));
    });
  }

  std::int64_t indices_of(ValueId input) const {
    std::int64_t least = kAnyIndex;
    follow(input, [&](ValueId value, const Use& use) {
      const Op& op = graph_.op(use.op);
      if (is_floating(graph_.value(value).dtype)) return false;  // after a Cast
      if (moves_elements(op, use.port)) return true;
      least = std::min(least, allowed_indices(graph_, op, use.port));
      return false;
    });
    return least == kAnyIndex ? 2 : std::max<std::int64_t>(1, least);
  }

  const Graph& graph_;
  const std::vector<std::vector<Use>>& uses_;
};

}  // namespace

std::map<std::string, Distribution> distributions_of(const Graph& graph) {
  const auto uses = uses_of(graph);
  const InputReader reader(graph, uses);
  std::map<std::string, Distribution> distributions;
  for (const ValueId input : graph.inputs) {
    distributions[graph.value(input).name] = reader.read(input);
  }
  return distributions;
}

bool has_kinks(const Graph& model) {
  static const std::set<std::string_view> kinked = {
      "Relu",    "LeakyRelu", "PRelu", "ThresholdedRelu", "HardSwish",  "HardSigmoid",
      "Clip",    "MaxPool",   "Abs",   "GlobalMaxPool",   "Sign",       "TopK",
      "ArgMax",  "ArgMin",    "Round", "QuantizeLinear",  "Floor",      "Ceil",
      "Greater", "Less",      "Mod",   "GreaterOrEqual",  "LessOrEqual"};
  return std::any_of(model.ops.begin(), model.ops.end(), [&](const Op& op) {
    const bool real = op.has_input(0) && is_floating(model.value(op.inputs[0]).dtype);
    return real && kinked.count(op.type) != 0;
  });
}

}  // namespace autopar
