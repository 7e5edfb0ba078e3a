// Builds the small local graph that an op becomes on a rank.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autopar/ops.hpp"

namespace autopar {

// ONNX's number of a type (TensorProto.DataType), as in the attribute `to` of Cast.
std::int64_t onnx_number(DType dtype);

using Attributes = std::map<std::string, Attribute>;

class Emitter {
 public:
  explicit Emitter(const LocalContext& context) : context_(context) {}

  const Value& value(ValueId id) const { return context_.program.value(id); }
  ValueId input(std::size_t port) const { return context_.inputs[port]; }
  bool has_input(std::size_t port) const { return context_.op.has_input(port); }
  bool has_output(std::size_t port) const { return context_.op.has_output(port); }

  ValueId constant(Tensor tensor);
  ValueId ints(const std::vector<std::int64_t>& values);  // rank 1
  ValueId scalar(DType dtype, double number);             // rank 0

  // One op with one output that stays inside.
  ValueId add(const std::string& type, const std::vector<ValueId>& inputs, DType dtype, Shape shape,
              Attributes attributes = {});
  // An elementwise op: the shape is broadcast from the inputs, the type that of the first one
  // (the second one of a Where).
  ValueId pointwise(const std::string& type, const std::vector<ValueId>& inputs);
  ValueId test(const std::string& type, const std::vector<ValueId>& inputs);  // gives bool
  ValueId cast(ValueId from, DType to);
  // A reduction that keeps its dimensions; `type` is the ONNX op.
  ValueId reduce(const std::string& type, ValueId from, const std::vector<std::size_t>& axes);
  ValueId reshape(ValueId from, const Shape& shape);

  ValueId slice(ValueId from, std::size_t dimension, std::int64_t begin, std::int64_t end);
  ValueId concat(const std::vector<ValueId>& parts, std::size_t dimension);

  // No op where there are no axes.
  ValueId all_gather(ValueId from, const std::vector<int>& axes, std::size_t dimension);
  ValueId all_reduce(ValueId from, const std::vector<int>& axes, const std::string& reduce_op);
  // The rank's part of a constant along one dimension. No op where there are no axes.
  ValueId own_part(ValueId whole, const std::vector<int>& axes, int dimension);
  // The first global index of a dimension that is split into parts of `extent`: rank 1, size 1.
  ValueId offset(const std::vector<int>& axes, std::int64_t extent, DType dtype);

  // Makes `made` output `port` of the op; `type` etc. as in add(). The op takes the op's own name.
  ValueId finish(std::size_t port, const std::string& type, const std::vector<ValueId>& inputs,
                 Attributes attributes = {});
  // `op` with all outputs of the op; its own outputs are ignored.
  std::vector<ValueId> finish_all(Op op);
  // The op itself with output 0 as it leaves, and output 1, whose local values are not final.
  std::pair<ValueId, ValueId> finish_first_of_two(const Attributes& attributes);
  // The local type and shape of an output of the op.
  DType output_dtype(std::size_t port) const;
  Shape output_shape(std::size_t port) const;

  // Mesh axes assigned to the factors of a kind, in mesh order.
  std::vector<int> axes_of(FactorKind kind) const;
  // Mesh axes that split dimension `d` of an input.
  std::vector<int> axes_of_input(std::size_t port, std::size_t d) const {
    return context_.specs.inputs[port].dims[d];
  }
  std::int64_t parts(const std::vector<int>& axes) const { return axes_size(context_.mesh, axes); }

 private:
  ValueId add_value(Value value);
  ValueId add_output(std::size_t port);
  std::string stem(const std::string& type) const;

  const LocalContext& context_;
};

// 16-bit floating numbers as 32-bit ones: sums over many ranks need the room.
ValueId widened(Emitter& emitter, ValueId from);
// Makes output `port` of the op from a value of its shape, in the output's own type.
ValueId finish_cast(Emitter& emitter, std::size_t port, ValueId from);
// Outputs of an op whose only output is the first one.
std::vector<ValueId> only_output(const LocalContext& context, ValueId first);

}  // namespace autopar
