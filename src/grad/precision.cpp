#include "grad/precision.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "autopar/ops.hpp"

namespace autopar {
namespace {

struct PrecisionName {
  Precision precision;
  const char* name;
  DType narrow;
};
constexpr std::array<PrecisionName, 5> kPrecisionNames = {
    {{Precision::kFp32, "fp32", DType::kFloat32},
     {Precision::kBf16, "bf16", DType::kBFloat16},
     {Precision::kFp16, "fp16", DType::kFloat16},
     {Precision::kMixedBf16, "mixed-bf16", DType::kBFloat16},
     {Precision::kMixedFp16, "mixed-fp16", DType::kFloat16}}};

bool in_list(const std::set<std::string>& list, const Op& op) {
  return op.domain.empty() && list.count(op.type) != 0;
}

bool is_wide_op(const Op& op) {
  static const std::set<std::string> list = {"Acos",
                                             "Asin",
                                             "Cosh",
                                             "CumProd",
                                             "CumSum",
                                             "Det",
                                             "Exp",
                                             "Log",
                                             "LogSoftmax",
                                             "LpNormalization",
                                             "LRN",
                                             "Pow",
                                             "Reciprocal",
                                             "ReduceL1",
                                             "ReduceL2",
                                             "ReduceLogSum",
                                             "ReduceLogSumExp",
                                             "ReduceMean",
                                             "ReduceProd",
                                             "ReduceSum",
                                             "ReduceSumSquare",
                                             "Sinh",
                                             "Softplus",
                                             "Sqrt",
                                             "Tan",
                                             "NegativeLogLikelihoodLoss",
                                             "SoftmaxCrossEntropyLoss"};
  return in_list(list, op);
}

// Inputs and outputs that keep float32 whatever the others are.
bool input_stays(const Op& op, std::size_t port) {
  return op.type == "BatchNormalization" && port > 0;
}
// `mixed`: only then is what a BatchNormalization has of its runs stored in float32.
bool output_stays(const Op& op, std::size_t port, bool mixed) {
  return port > 0 &&
         ((mixed && op.type == "BatchNormalization") || op.type == "LayerNormalization");
}

bool is_float_type(std::int64_t number) {
  return number == onnx_number(DType::kFloat32) || number == onnx_number(DType::kFloat16) ||
         number == onnx_number(DType::kBFloat16);
}

double largest_of(DType dtype) { return dtype == DType::kFloat16 ? 65504 : 3.38953139e38; }

Tensor converted(const Tensor& tensor, DType to) {
  const std::vector<double> numbers = *float_values(tensor);
  const double most = to == DType::kFloat32 ? 0 : largest_of(to);
  Tensor narrow{to, tensor.shape, {}};
  for (double number : numbers) {
    // A mask's lowest float32 stays finite.
    if (most > 0 && std::isfinite(number)) number = std::clamp(number, -most, most);
    narrow.bytes += scalar_tensor(to, number).bytes;
  }
  return narrow;
}

using OpTakes = std::function<bool(const Op& op, std::int64_t opset, DType dtype)>;

class Rewrite {
 public:
  Rewrite(GraphBuilder& to, Graph& graph, DType narrow, bool mixed,
          const std::vector<ValueId>& parameters, OpTakes takes)
      : to_(to),
        graph_(graph),
        narrow_(narrow),
        mixed_(mixed),
        parameters_(parameters.begin(), parameters.end()),
        takes_(std::move(takes)) {}

  Result<Copies> run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    if (!mixed_ && narrow_ != DType::kFloat32) {
      for (const Op& op : ops) note_narrow(op);
    }
    for (Op& op : ops) AUTOPAR_RETURN_IF_ERROR(visit(std::move(op)));
    return std::move(copies_);
  }

  // Contractions that calculate in float32 all the same.
  std::vector<std::string> warnings() const {
    std::vector<std::string> told;
    for (const auto& [type, count] : kept_wide_) {
      told.push_back(std::to_string(count) + " ops of type " + type +
                     " calculate in float32: ONNX does not have them for bfloat16 at opset " +
                     std::to_string(graph_.opset) + "; a model of a later opset may have");
    }
    return told;
  }

 private:
  bool is_float(ValueId id) const {
    const DType dtype = graph_.value(id).dtype;
    return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  }

  // What depends on no parameter and no floating-point data, such as positions and masks: computed
  // in float32, and read in the type of what it meets.
  bool is_weak(ValueId id) const {
    return graph_.value(id).kind == ValueKind::kConstant || weak_.count(id) != 0;
  }
  bool reads_weak_alone(const Op& op) const {
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      const ValueId input = op.inputs[port];
      if (!input.valid() || is_operand_constant(op, port) || !is_float(input)) continue;
      if (!is_weak(input)) return false;
    }
    return true;
  }

  // Parameters that some op reads in 16 bits are stored in 16 bits, whatever reads them before.
  void note_narrow(const Op& op) {
    if (type_of(op) != narrow_) return;
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      const ValueId input = op.inputs[port];
      if (!input.valid() || is_operand_constant(op, port) || !is_float(input)) continue;
      if (graph_.value(input).kind == ValueKind::kParameter) narrow_read_.insert(input);
    }
  }

  void store_narrow(ValueId parameter) {
    Value& value = graph_.value(parameter);
    if (value.dtype == narrow_) return;
    value.dtype = narrow_;
    if (const Tensor* tensor = value.tensor()) value.data = converted(*tensor, narrow_);
  }

  Status visit(Op op) {
    if (narrow_ != DType::kFloat32 && reads_weak_alone(op)) {
      for (ValueId output : op.outputs) {
        if (output.valid() && is_float(output)) weak_.insert(output);
      }
      graph_.add_op(std::move(op));
      return Ok{};
    }
    const DType type = type_of(op);
    if (is_contraction(op) && type == DType::kFloat32 && narrow_ != type) ++kept_wide_[op.type];
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      const ValueId input = op.inputs[port];
      if (!input.valid() || is_operand_constant(op, port) || !is_float(input)) continue;
      op.inputs[port] = as(input, mixed_ && input_stays(op, port) ? DType::kFloat32 : type, op);
    }
    if (op.type == "Cast" && is_float_type(op.int_attribute("to", 0)) && !mixed_) {
      op.attributes["to"] = onnx_number(narrow_);
    }
    if (op.type == "ConstantOfShape" && narrow_ == DType::kFloat32) {
      const auto value = op.attributes.find("value");
      if (value == op.attributes.end()) {
        op.attributes["value"] = Tensor{narrow_, {1}, scalar_tensor(narrow_, 0).bytes};
      } else if (const auto* tensor = std::get_if<Tensor>(&value->second);
                 tensor != nullptr && is_float_type(onnx_number(tensor->dtype))) {
        value->second = converted(*tensor, narrow_);
      }
    }
    for (std::size_t port = 0; port < op.outputs.size(); ++port) {
      if (!op.outputs[port].valid() || !is_float(op.outputs[port])) continue;
      const bool keeps = output_stays(op, port, mixed_);
      graph_.value(op.outputs[port]).dtype = keeps ? DType::kFloat32 : output_type(op, type);
    }
    graph_.add_op(std::move(op));
    return Ok{};
  }

  // Of an op that makes floats of other things, or says itself what it makes.
  DType output_type(const Op& op, DType type) const {
    if (op.type == "Cast") {
      return op.int_attribute("to", 0) == onnx_number(narrow_) ? narrow_ : DType::kFloat32;
    }
    return type;
  }

  DType type_of(const Op& op) const {
    if (narrow_ == DType::kFloat32) return narrow_;
    if (takes_ && !takes_(op, graph_.opset, DType::kBFloat16)) return DType::kFloat32;
    // ONNX says that they take 16 bits, and refuses it (what one is made of has float32 constants),
    // or ONNX Runtime cannot run it.
    if (op.type == "MeanVarianceNormalization" || op.type == "AffineGrid") return DType::kFloat32;
    if (!mixed_ || is_contraction(op)) return narrow_;
    if (is_wide_op(op)) return DType::kFloat32;
    // Parameters take the type of what they meet.
    bool any = false, wide = false;
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      const ValueId input = op.inputs[port];
      if (!input.valid() || is_operand_constant(op, port) || !is_float(input)) continue;
      const Value& value = graph_.value(input);
      if (is_weak(input) || parameters_.count(input) != 0) continue;
      if (value.kind == ValueKind::kParameter) continue;
      any = true;
      wide = wide || (value.dtype == DType::kFloat32 && !input_stays(op, port));
    }
    if (any) return wide ? DType::kFloat32 : narrow_;
    // Parameters alone, such as a table that is looked up.
    return narrow_;
  }

  // A mask's lowest float32 stays finite.
  ValueId within(ValueId id, DType type) {
    if (type == DType::kFloat32) return id;
    const double most = largest_of(type);
    const DType dtype = graph_.value(id).dtype;
    return to_.pointwise("Clip", {id, to_.scalar(dtype, -most), to_.scalar(dtype, most)});
  }

  ValueId as(ValueId id, DType type, const Op& op) {
    if (narrow_read_.count(id) != 0) store_narrow(id);
    const Value value = graph_.value(id);
    const auto key = std::pair(id, type);
    if (const auto known = made_.find(key); known != made_.end()) return known->second;
    if (value.kind == ValueKind::kActivation || value.kind == ValueKind::kInput ||
        (mixed_ && parameters_.count(id) == 0 && value.kind == ValueKind::kParameter)) {
      if (value.dtype == type) return id;
      to_.name_after(op.name + ".cast", GraphBuilder::Naming::kCounted);
      return made_[key] = to_.cast(weak_.count(id) != 0 ? within(id, type) : id, type);
    }
    if (value.dtype == type) return id;
    if (value.kind == ValueKind::kConstant) {
      const Tensor* tensor = value.tensor();
      if (tensor == nullptr) {
        to_.name_after(op.name + ".cast", GraphBuilder::Naming::kCounted);
        return made_[key] = to_.cast(id, type);
      }
      to_.name_after(value.name, GraphBuilder::Naming::kByType);
      return made_[key] = to_.constant(converted(*tensor, type));
    }
    if (!mixed_) {
      store_narrow(id);
      if (type == narrow_) return id;
      to_.name_after(op.name + ".cast", GraphBuilder::Naming::kCounted);
      return made_[key] = to_.cast(id, type);
    }
    to_.name_after((type == DType::kFloat16 ? "fp16." : "bf16.") + value.name,
                   GraphBuilder::Naming::kCounted);
    return copies_[id] = made_[key] = to_.input(type, value.shape, ValueKind::kParameter);
  }

  GraphBuilder& to_;
  Graph& graph_;
  DType narrow_;
  bool mixed_;  // some ops stay in float32, and parameters have copies
  std::set<ValueId> parameters_, weak_;
  std::set<ValueId> narrow_read_;  // parameters
  std::map<std::pair<ValueId, DType>, ValueId> made_;
  OpTakes takes_;
  std::map<std::string, int> kept_wide_;
  Copies copies_;
};

}  // namespace

const char* name_of(Precision precision) {
  for (const PrecisionName& row : kPrecisionNames) {
    if (row.precision == precision) return row.name;
  }
  return "fp32";
}

std::optional<Precision> parse_precision(const std::string& name) {
  for (const PrecisionName& row : kPrecisionNames) {
    if (name == row.name) return row.precision;
  }
  return std::nullopt;
}

bool is_mixed(Precision precision) {
  return precision == Precision::kMixedBf16 || precision == Precision::kMixedFp16;
}

DType narrow_of(Precision precision) {
  for (const PrecisionName& row : kPrecisionNames) {
    if (row.precision == precision) return row.narrow;
  }
  return DType::kFloat32;
}

Result<Copies> set_precision(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                             const std::vector<ValueId>& parameters,
                             std::vector<std::string>& warnings) {
  const Precision precision = options.precision;
  if (precision == Precision::kFp32) return Copies{};
  // Masters are float32, whatever the model is stored in.
  if (is_mixed(precision)) {
    AUTOPAR_TRY(none, Rewrite(to, graph, DType::kFloat32, false, parameters, {}).run());
    static_cast<void>(none);
  }
  Rewrite rewrite(to, graph, narrow_of(precision), is_mixed(precision), parameters,
                  options.op_takes);
  AUTOPAR_TRY(copies, rewrite.run());
  warnings = rewrite.warnings();
  return std::move(copies);
}

}  // namespace autopar
