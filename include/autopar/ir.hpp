// The tensor graph: ops, values, types, attributes. Knows no devices.
//
//   Graph graph;
//   ValueId x = graph.add_value({.name = "X", .dtype = DType::kFloat32, .shape = {64, 128},
//                                .kind = ValueKind::kInput});
//   graph.inputs.push_back(x);
//   ValueId y = graph.add_value({.name = "Y", .dtype = DType::kFloat32, .shape = {64, 128}});
//   graph.add_op({.name = "relu", .type = "Relu", .inputs = {x}, .outputs = {y}});
//   graph.outputs.push_back(y);
//
// Invariants (verify() checks them):
// - ops are in topological order; every value has one producer or none;
// - names of values are unique and not empty, so are names of ops;
// - every shape is static; a missing optional input or output is an invalid ValueId;
// - of a graph of several passes, ops of the update come last and read no activation of a pass.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kBool,
};
Bytes size_of(DType dtype);
// The lower-case ONNX name: "float32", "bfloat16", "int64", "bool".
const char* name_of(DType dtype);
std::optional<DType> parse_dtype(const std::string& name);
bool is_floating(DType dtype);

using Shape = std::vector<std::int64_t>;  // one entry per dimension, outermost first
// Saturates at kMaxElements, so that no product with a dtype's size overflows; verify() rejects
// values that large.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;
std::int64_t element_count(const Shape& shape);
std::string to_text(const Shape& shape);                 // "[64,128]"
std::string type_text(DType dtype, const Shape& shape);  // "float32[64,128]"
struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
inline std::string to_text(const TensorType& type) { return type_text(type.dtype, type.shape); }

// Dense little-endian data, row-major. `bytes.size() == element_count(shape) * size_of(dtype)`.
struct Tensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string bytes;
  bool operator==(const Tensor&) const = default;
};
Tensor int64_tensor(const Shape& shape, const std::vector<std::int64_t>& values);
Tensor scalar_tensor(DType dtype, double value);  // rank 0
// Elements of a float32, float64, float16 or bfloat16 tensor; of any other dtype: nothing.
std::optional<std::vector<double>> float_values(const Tensor& tensor);
// Elements of an integer or bool tensor; of any other dtype: nothing.
std::optional<std::vector<std::int64_t>> int_values(const Tensor& tensor);

// Data that lies in a file beside the model (ONNX external data).
struct ExternalData {
  std::string location;  // as the model says it, relative to the model's folder
  std::int64_t offset = 0;
  std::int64_t length = -1;  // -1: to the end of the file
  bool operator==(const ExternalData&) const = default;
};

enum class ValueKind {
  kInput,       // fed at every run
  kParameter,   // a weight or optimizer state: an initializer, or a graph input that holds one
  kConstant,    // known at import; never a graph input
  kActivation,  // produced by an op
};

struct Value {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape = {};
  ValueKind kind = ValueKind::kActivation;
  OpId producer = {};  // invalid for inputs, parameters, constants
  // Data of a constant or of a parameter that the model's file holds.
  std::variant<std::monostate, Tensor, ExternalData> data = {};
  // Of an input that is zero before the first of several passes and that each adds to, and of its
  // next value: both may lie as partial sums, since sums of those are partial sums too.
  bool accumulates = false;
  // Of what one chunk of a pipeline makes for another in each micro-batch: an input, an output.
  bool of_micro_batch = false;
  // Of a model that is not trained and runs in passes: data of which each pass reads its part, an
  // output that is put together of all. They are there for the whole batch.
  bool of_batch = false;

  Bytes bytes() const { return element_count(shape) * size_of(dtype); }
  const Tensor* tensor() const { return std::get_if<Tensor>(&data); }
  bool has_data() const { return data.index() != 0; }
};

// What a step makes of an input for the next step is an output of the input's name behind this.
inline constexpr const char* kNextPrefix = "new.";
inline constexpr const char* kNextPattern = "new.*";  // such outputs; `*`: the input
inline std::string next_name(const std::string& input) { return kNextPrefix + input; }
inline bool is_next(const std::string& output) { return output.rfind(kNextPrefix, 0) == 0; }
// Precondition: is_next(output).
inline std::string input_of_next(const std::string& output) {
  return output.substr(std::string_view(kNextPrefix).size());
}

// Integers that copies share: the groups of a collective list every rank, and thousands of
// collectives have the same ones. The elements never change.
class IntList {
 public:
  IntList() : values_(none()) {}
  IntList(std::vector<std::int64_t> values)  // NOLINT
      : values_(std::make_shared<const std::vector<std::int64_t>>(std::move(values))) {}
  const std::vector<std::int64_t>& values() const { return *values_; }
  operator const std::vector<std::int64_t>&() const { return *values_; }  // NOLINT
  bool operator==(const IntList& other) const {
    return values_ == other.values_ || *values_ == *other.values_;
  }

 private:
  static const std::shared_ptr<const std::vector<std::int64_t>>& none() {
    static const auto list = std::make_shared<const std::vector<std::int64_t>>();
    return list;
  }
  std::shared_ptr<const std::vector<std::int64_t>> values_;
};

using Attribute = std::variant<std::int64_t, double, std::string, IntList, std::vector<double>,
                               std::vector<std::string>, Tensor>;

// The part of a training step that an op is of. What is not a training step has forward ops only.
enum class Phase : std::uint8_t { kForward, kBackward, kUpdate };
const char* name_of(Phase phase);  // "forward", "backward", "update"
std::optional<Phase> parse_phase(const std::string& name);

// Where partial sums that come to an op are added up across devices.
enum class SumsAt : std::uint8_t {
  kAnywhere,
  kBefore,  // what it reads is no partial sum
  kAfter,   // what it reads is not reduced on the way to it
};
const char* name_of(SumsAt sums);  // "anywhere", "before", "after"
std::optional<SumsAt> parse_sums_at(const std::string& name);

// An op with the semantics of ONNX (`domain` empty) at the graph's opset, or of `ai.autopar`.
struct Op {
  std::string name;         // the user's name where the op is the user's own
  std::string type;         // "MatMul"
  std::string domain = {};  // "" is ONNX's default domain
  std::vector<ValueId> inputs = {};
  std::vector<ValueId> outputs = {};
  std::map<std::string, Attribute> attributes = {};
  // The user's op that this one was normalised from (equal to name/type where unchanged).
  std::string origin_name = {};
  std::string origin_type = {};
  Phase phase = Phase::kForward;
  SumsAt sums = SumsAt::kAnywhere;
  // At the end of a segment that is repeated for the backward pass, where nobody reads it again
  // (recompute.hpp): this op is not.
  bool ends_segment = false;

  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i].valid(); }
  bool has_output(std::size_t i) const { return i < outputs.size() && outputs[i].valid(); }
  // The attribute or the fallback where it is absent or of another type.
  std::int64_t int_attribute(const std::string& name, std::int64_t fallback) const;
  double float_attribute(const std::string& name, double fallback) const;
  std::string string_attribute(const std::string& name, const std::string& fallback) const;
  std::vector<std::int64_t> ints_attribute(const std::string& name,
                                           const std::vector<std::int64_t>& fallback = {}) const;
};

inline std::string described(const Op& op) {  // "op 'fc1' (MatMul)"
  return "op '" + op.name + "' (" + op.type + ")";
}

// The domain of collectives and of what cuts for them.
inline constexpr const char* kCollectiveDomain = "ai.autopar";
inline bool is_collective(const Op& op) { return op.domain == kCollectiveDomain; }

// One place that reads a value: input `port` of `op`.
struct Use {
  OpId op;
  int port = 0;
  auto operator<=>(const Use&) const = default;
};

// How an op runs: what it shares a kernel with, and what that saves.
struct OpKernel {
  enum class Kind : std::uint8_t { kOwn, kView, kElements, kAttention };
  Kind kind = Kind::kOwn;
  bool launches = true;  // the first op of its kernel
  // Ports (bit i: port i) through which nothing goes from or to memory.
  std::uint64_t inside_inputs = 0, inside_outputs = 0;
  // Ports of a product whose matrix lies with its rows where the op has columns.
  std::uint64_t transposed_inputs = 0;
  double flops_factor = 1;  // of what the kernel does to what the op says
  int runs = 1;             // in each pass, with the collectives before it
  bool has_rows = false;    // its kernel has sums over rows in it
  bool operator==(const OpKernel&) const = default;
};

// Of a graph on a runtime with a profile; empty: every op is a kernel of its own. They hold for the
// graph as it is: who changes its ops makes them anew.
struct Kernels {
  std::vector<OpKernel> of_op;
  std::vector<char> inside;  // per value: never stored, but for what a reshard makes of it
  // Per value: how many times its bytes the runtime holds beside it all the time, for gradients;
  // empty: never.
  std::vector<char> held_beside;
  // The same from its last read in a backward pass to the end of that; of an activation for as long
  // as its copies live.
  std::vector<char> held_in_pass;
  // Per value: the last op that makes again what is a function of it, and needs it for that; empty:
  // none.
  std::vector<OpId> needed_by;
  bool empty() const { return of_op.empty(); }
};

class Graph {
 public:
  std::string name;
  std::int64_t opset = 18;
  std::vector<Op> ops;
  std::vector<Value> values;
  std::vector<ValueId> inputs;   // in the model's order
  std::vector<ValueId> outputs;  // in the model's order
  // How often a step runs the forward and backward ops, each time on another micro-batch, before it
  // runs the update once. The graph has one of these passes. Where it has_passes(), the update
  // reads no activation of a pass: what it needs goes through inputs and their next values.
  std::int64_t passes = 1;
  // Whether the update is apart from the passes though there is one, and reads what that added up.
  bool accumulates = false;
  bool has_passes() const { return passes > 1 || accumulates; }
  // Micro-batches whose forward pass has begun and whose backward pass has not ended, at most: what
  // is kept from one to the other is there so often.
  std::int64_t in_flight = 1;
  // Micro-batches whose passes run interleaved, so that collectives of one go beside the compute of
  // another: a divisor of `passes`. Each holds what a pass makes.
  std::int64_t copies = 1;
  // How often a step runs an op.
  std::int64_t times(const Op& op) const { return op.phase == Phase::kUpdate ? 1 : passes; }
  Kernels kernels;

  // How an op of `ops` runs, and whether a value is never stored.
  const OpKernel& kernel(const Op& op) const {
    static const OpKernel own;
    return kernels.empty() ? own : kernels.of_op[static_cast<std::size_t>(&op - ops.data())];
  }
  bool is_inside(ValueId id) const { return !kernels.empty() && kernels.inside[id.index()] != 0; }
  int held_beside(ValueId id) const {
    return kernels.held_beside.empty() ? 0 : kernels.held_beside[id.index()];
  }
  int held_in_pass(ValueId id) const {
    return kernels.held_in_pass.empty() ? 0 : kernels.held_in_pass[id.index()];
  }
  OpId needed_by(ValueId id) const {
    return kernels.needed_by.empty() ? OpId() : kernels.needed_by[id.index()];
  }

  // Appends; for add_op also sets the producer of its outputs.
  ValueId add_value(Value value);
  OpId add_op(Op op);

  const Op& op(OpId id) const { return ops[id.index()]; }
  Op& op(OpId id) { return ops[id.index()]; }
  const Value& value(ValueId id) const { return values[id.index()]; }
  Value& value(ValueId id) { return values[id.index()]; }
};

// Hands out names that are not taken yet: `stem`, `stem/1`, `stem/2`, ... Deterministic.
class Names {
 public:
  std::string unique(const std::string& stem, const char* separator = "/");
  void take(const std::string& name) { next_.try_emplace(name, 1); }
  bool taken(const std::string& name) const { return next_.count(name) != 0; }

 private:
  std::unordered_map<std::string, int> next_;  // looked up, never walked
};

// For each value its uses by ops, in op order (graph outputs are not uses).
std::vector<std::vector<Use>> uses_of(const Graph& graph);
// The integer elements of a constant operand, nothing where the input is absent or not known.
std::optional<std::vector<std::int64_t>> constant_ints(const Graph& graph, const Op& op,
                                                       std::size_t port);
// The first op that is not of the forward pass; all are: their number.
std::size_t end_of_forward(const Graph& graph);
bool has_backward_pass(const Graph& graph);
// Drops the ops and values that have 0 here and numbers the others anew; what is kept may not read
// what is not, boundary values that are dropped leave the boundary. Returns the new id of each
// value; invalid: it is dropped.
std::vector<ValueId> keep(Graph& graph, const std::vector<char>& ops,
                          const std::vector<char>& values);
Status verify(const Graph& graph);
// One line per value that is not an activation and per op; for logs and golden tests.
std::string to_text(const Graph& graph);

}  // namespace autopar
