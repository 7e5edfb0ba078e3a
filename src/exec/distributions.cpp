// What an input's data have to be like, from what the model does with it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "autopar/exec.hpp"
#include "exec/compare.hpp"

namespace autopar {

namespace {

constexpr Distribution kUnit{0, 1};         // data, rows of tables
constexpr Distribution kAroundOne{1, 0.1};  // scales, and what must not be negative
constexpr Distribution kAboveOne{2, 0.1};
constexpr Distribution kSmall{};
constexpr Distribution kMoment{0, 1e-3};  // no larger than gradients
// A mean of squares of such gradients: at 1 it would round off what a step adds to it, and an
// update divided by its root would be lost in the weight.
constexpr Distribution kSecondMoment{1e-6, 1e-7};
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
  static constexpr std::array<std::string_view, 7> kCommunication = {
      "AllGather", "Broadcast", "Permute", "AllToAll", "ShardSlice", "Send", "Recv"};
  if (is_collective(op)) return port == 0 && is_one_of(op.type, kCommunication);
  if (op.type == "Where") return port > 0;
  return op.type == "Concat" || (port == 0 && is_one_of(op.type, kTypes));
}

bool is_single(const Graph& graph, const Op& op, std::size_t port) {
  return op.has_input(port) && element_count(graph.value(op.inputs[port]).shape) == 1;
}

bool is_scaled(const Graph& graph, const Op& op, int port) {
  if (op.type == "Mul") return is_single(graph, op, 1 - static_cast<std::size_t>(port));
  return op.type == "Div" && port == 0 && is_single(graph, op, 1);
}

// Whether a negative input can make an output negative that would not be so otherwise: sums,
// products with single numbers, moments.
bool keeps_sign(const Graph& graph, const Op& op, int port) {
  static constexpr std::array<std::string_view, 3> kMany = {"Add", "Sum", "Min"};
  static constexpr std::array<std::string_view, 6> kReductions = {
      "ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax", "CumSum", "Gather"};
  return is_one_of(op.type, kMany) || (port == 0 && is_one_of(op.type, kReductions)) ||
         is_scaled(graph, op, port);
}

// Where functions are defined and bounded: not at zero and below, or not beyond one.
std::optional<Distribution> domain_of(const Graph& graph, const Op& op, int port) {
  static constexpr std::array<std::string_view, 3> kWithinOne = {"Acos", "Asin", "Atanh"};
  if (op.type == "Sqrt" || op.type == "Log" || op.type == "Reciprocal") return kAroundOne;
  if ((op.type == "Div" || op.type == "Mod") && port == 1) return kAroundOne;
  if (op.type == "BatchNormalization" && port == 4) return kAroundOne;
  if (op.type == "Acosh") return kAboveOne;
  if (is_one_of(op.type, kWithinOne)) return kSmall;
  if (op.type != "Pow") return std::nullopt;
  if (port == 1) return kAroundOne;
  // Only natural powers take any base.
  const Tensor* exponent = op.has_input(1) ? graph.value(op.inputs[1]).tensor() : nullptr;
  if (exponent == nullptr) return kAroundOne;
  const std::vector<double> powers = reals_of(*exponent);
  const bool natural = std::all_of(powers.begin(), powers.end(), [](double power) {
    return power >= 0 && power == std::floor(power);
  });
  return natural ? std::nullopt : std::optional(kAroundOne);
}

// A sample of the variance 2 / (inputs + outputs) of a layer keeps the size of what goes through
// it in either direction (Glorot and Bengio, "Understanding the difficulty of training deep
// feedforward neural networks", AISTATS 2010, eq. 12); twice that makes up for the half that a ReLU
// takes away (He et al., "Delving deep into rectifiers", ICCV 2015, eq. 10).
Distribution weight(const Op& op, const Shape& shape, double gain) {
  const bool is_kernel = op.type == "Conv" || op.type == "ConvTranspose";
  if (shape.size() < 2) return {};
  double field = 1;
  for (std::size_t d = 2; is_kernel && d < shape.size(); ++d) {
    field *= static_cast<double>(shape[d]);
  }
  const std::size_t first = is_kernel ? 0 : shape.size() - 2;
  const auto both = static_cast<double>(shape[first] + shape[first + 1]);
  return {0, std::sqrt(gain * 2 / std::max(1.0, field * both))};
}

// The op whose output this is, before it was moved; null: a value that is none's.
const Op* maker_of(const Graph& graph, ValueId value) {
  while (graph.value(value).producer.valid()) {
    const Op& op = graph.op(graph.value(value).producer);
    if (op.type != "MaxPool" && (op.inputs.empty() || !moves_elements(op, 0))) return &op;
    value = op.inputs[0];
  }
  return nullptr;
}

// What one factor of a product wants. A weight may stand on either side of what is computed.
Distribution factor(const Graph& graph, const Op& op, int port, const Shape& shape) {
  static constexpr std::array<std::string_view, 3> kHalving = {"Relu", "LeakyRelu", "Gelu"};
  const auto other = static_cast<std::size_t>(1 - port);
  const Op* maker = op.has_input(other) ? maker_of(graph, op.inputs[other]) : nullptr;
  if (port == 0 && (maker == nullptr || shape.size() < 2)) return kUnit;
  return weight(op, shape, maker != nullptr && is_one_of(maker->type, kHalving) ? 2 : 1);
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
  if (is_one_of(op.type, kProducts) && port <= 1) return factor(graph, op, port, shape);
  if (recurrent && port <= 2) return port == 0 ? kUnit : weight(op, shape, 1);
  if (op.type == "Gather" && port == 0) return kUnit;
  if (is_one_of(op.type, kNormalisations) && port <= 1) return port == 0 ? kUnit : kAroundOne;
  const auto wide = std::count_if(shape.begin(), shape.end(), [](auto size) { return size != 1; });
  const bool scales =
      op.type == "Mul" && wide == 1 && !is_single(graph, op, 1 - static_cast<std::size_t>(port));
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

// What an op or those behind it want of a value.
struct Wish {
  std::optional<Distribution> domain;  // the narrowest
  std::int64_t indices = kAnyIndex;    // the fewest
  bool indexes = false;
  void add(const Wish& other) {
    if (other.domain && (!domain || other.domain->mean > domain->mean)) domain = other.domain;
    indices = std::min(indices, other.indices);
    indexes = indexes || other.indexes;
  }
};

class InputReader {
 public:
  InputReader(const Graph& graph, const std::vector<std::vector<Use>>& uses)
      : graph_(graph), uses_(uses), wishes_(graph.values.size()) {
    for (std::size_t i = graph.ops.size(); i-- > 0;) {
      const Op& op = graph.ops[i];
      for (std::size_t port = 0; port < op.inputs.size(); ++port) {
        if (!op.has_input(port)) continue;
        wishes_[op.inputs[port].index()].add(wish(op, static_cast<int>(port)));
      }
    }
  }

  Distribution read(ValueId input) const {
    const Value& value = graph_.value(input);
    const Wish& behind = wishes_[input.index()];
    if (!is_floating(value.dtype)) {
      const std::int64_t count = behind.indexes ? std::max<std::int64_t>(1, behind.indices) : 2;
      // Numbers that something is divided by: not 0 either.
      if (behind.domain && value.dtype != DType::kBool && count > 1) {
        return {.mean = 1, .indices = behind.indexes ? count - 1 : count};
      }
      return {.indices = count};
    }
    if (behind.domain) return is_second_moment(input) ? kSecondMoment : *behind.domain;
    if (const auto first = first_wanted(input)) return *first;
    return is_scaled_input(input) ? kMoment : Distribution{};
  }

 private:
  Wish wish(const Op& op, int port) const {
    const ValueId input = op.inputs[static_cast<std::size_t>(port)];
    const bool moved = moves_elements(op, port);
    Wish result;
    if (!is_floating(graph_.value(input).dtype) && !moved) {
      result.indices = allowed_indices(graph_, op, port);
      result.indexes = result.indices != kAnyIndex;
    }
    result.domain = domain_of(graph_, op, port);
    if (!moved && !keeps_sign(graph_, op, port)) return result;
    for (const ValueId output : op.outputs) {
      if (!output.valid()) continue;
      const Wish& behind = wishes_[output.index()];
      result.add(moved && !is_floating(graph_.value(output).dtype) ? behind
                                                                   : Wish{.domain = behind.domain});
    }
    return result;
  }

  // Of the first op that cares, in the graph's order: a training step's backward part comes later.
  std::optional<Distribution> first_wanted(ValueId input) const {
    std::optional<std::pair<OpId, Distribution>> first;
    std::set<ValueId> seen = {input};
    std::vector<ValueId> left = {input};
    while (!left.empty()) {
      const ValueId from = left.back();
      left.pop_back();
      for (const Use& use : uses_[from.index()]) {
        const Op& op = graph_.op(use.op);
        if (moves_elements(op, use.port) || is_scaled(graph_, op, use.port)) {
          for (const ValueId output : op.outputs) {
            if (output.valid() && seen.insert(output).second) left.push_back(output);
          }
          continue;
        }
        const auto found = wanted(graph_, op, use.port, graph_.value(input).shape);
        if (found && (!first || use.op < first->first)) first = {use.op, *found};
      }
    }
    return first ? std::optional(first->second) : std::nullopt;
  }

  // An optimizer's moving average decays by a factor before the gradient is added.
  bool is_scaled_input(ValueId input) const {
    const auto& uses = uses_[input.index()];
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return graph_.op(use.op).type == "Mul" && is_scaled(graph_, graph_.op(use.op), use.port);
    });
  }

  // That of squares is nowhere read before it has decayed and something is added.
  bool is_second_moment(ValueId input) const {
    const auto& uses = uses_[input.index()];
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      const Op& op = graph_.op(use.op);
      if (op.type != "Mul" || !is_scaled(graph_, op, use.port)) return false;
      const auto& readers = uses_[op.outputs[0].index()];
      return std::all_of(readers.begin(), readers.end(),
                         [&](const Use& reader) { return graph_.op(reader.op).type == "Add"; });
    });
  }

  const Graph& graph_;
  const std::vector<std::vector<Use>>& uses_;
  std::vector<Wish> wishes_;  // by value
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

}  // namespace autopar
