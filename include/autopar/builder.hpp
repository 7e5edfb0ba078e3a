// Adds ops to a graph, with the shapes and types of what they give worked out: what gradients, the
// local forms of ops and passes over graphs are written with.
//
//   GraphBuilder to(graph, value_names, op_names);
//   to.name_after("fc1", GraphBuilder::Naming::kCounted);          // "fc1.grad", "fc1.grad.1", ...
//   ValueId square = to.pointwise("Mul", {x, x});                   // broadcasts
//   ValueId mean = to.reduce("ReduceMean", square, {1});            // keeps its dimensions
//
// Shapes are static and every op is one of ONNX's default domain at the graph's opset. Operands
// that do not fit together are bugs of the caller and abort.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// ONNX's number of a type (TensorProto.DataType), as in the attribute `to` of Cast.
std::int64_t onnx_number(DType dtype);

using Attributes = std::map<std::string, Attribute>;

class GraphBuilder {
 public:
  enum class Naming {
    kByType,   // "<stem>/<type>", then "<stem>/<type>/1", ...
    kCounted,  // "<stem>", then "<stem>.1", ...
  };

  // All three outlive the builder; the names are those of `graph`.
  GraphBuilder(Graph& graph, Names& value_names, Names& op_names)
      : graph_(graph), value_names_(value_names), op_names_(op_names) {}

  // How what is added from now on is called.
  void name_after(std::string stem, Naming naming) {
    stem_ = std::move(stem);
    naming_ = naming;
  }
  // Of what part of a training step is what is added from now on.
  void set_phase(Phase phase) { phase_ = phase; }

  // Where partial sums that come to an op are added up.
  void set_sums(OpId op, SumsAt sums) { graph_.ops[op.index()].sums = sums; }

  const Graph& graph() const { return graph_; }
  // Until something is added.
  const Value& value(ValueId id) const { return graph_.value(id); }
  // By value: what is added moves the values of the graph.
  Shape shape(ValueId id) const { return graph_.value(id).shape; }
  DType dtype(ValueId id) const { return graph_.value(id).dtype; }
  std::size_t rank(ValueId id) const { return shape(id).size(); }

  ValueId constant(Tensor tensor);
  // A graph input, named by the stem alone.
  ValueId input(DType dtype, Shape shape, ValueKind kind);
  ValueId ints(const std::vector<std::int64_t>& values);  // int64, rank 1
  ValueId scalar(DType dtype, double number);             // rank 0
  // `number` everywhere.
  ValueId filled(DType dtype, Shape shape, double number);

  // One op with one output.
  ValueId add(const std::string& type, const std::vector<ValueId>& inputs, DType dtype, Shape shape,
              Attributes attributes = {});
  // One op with several outputs: their types and shapes.
  struct Output {
    DType dtype;
    Shape shape;
  };
  std::vector<ValueId> add_all(const std::string& type, const std::vector<ValueId>& inputs,
                               const std::vector<Output>& outputs, Attributes attributes = {});

  // An elementwise op: the shape is broadcast from the inputs, the type that of the first one
  // (the second one of a Where).
  ValueId pointwise(const std::string& type, const std::vector<ValueId>& inputs,
                    Attributes attributes = {});
  ValueId test(const std::string& type, const std::vector<ValueId>& inputs);  // gives bool
  ValueId cast(ValueId from, DType to);  // no op where it is of that type
  // value * number; no op for 1.
  ValueId scaled(ValueId from, double number);

  // A reduction; `type` is the ONNX op. Without keepdims the dimensions go.
  ValueId reduce(const std::string& type, ValueId from, const std::vector<std::size_t>& axes,
                 bool keepdims = true);
  // Sums over what broadcasting to the shape of `from` has repeated. No op where they are equal.
  ValueId sum_to(ValueId from, Shape shape);
  ValueId broadcast_to(ValueId from, Shape shape);  // Expand; no op where equal

  ValueId reshape(ValueId from, Shape shape);         // no op where equal
  ValueId unsqueeze(ValueId from, std::size_t axis);  // a Reshape
  ValueId transpose(ValueId from, const std::vector<std::size_t>& perm);
  ValueId swap_last(ValueId from);  // the last two dimensions
  ValueId slice(ValueId from, std::size_t dimension, std::int64_t begin, std::int64_t end);
  ValueId concat(const std::vector<ValueId>& parts, std::size_t dimension);
  // Zeros before and after; an entry per dimension. Negative: cut off. No op where all are 0.
  ValueId pad(ValueId from, const std::vector<std::int64_t>& before,
              const std::vector<std::int64_t>& after);
  // MatMul with numpy's rules for ranks and broadcasting.
  ValueId matmul(ValueId left, ValueId right);
  // In float32 where the inputs are bfloat16, which ONNX does not have for it.
  ValueId einsum(const std::string& equation, const std::vector<ValueId>& inputs, Shape shape);
  // Output `port` of an op that is there; where it lacks that, it gets it.
  ValueId output_of(OpId op, std::size_t port, DType dtype, Shape shape);

 protected:
  ValueId add_value(Value value);
  std::string fresh(Names& names, const std::string& type);

  Graph& graph_;
  Names& value_names_;
  Names& op_names_;
  std::string stem_;
  Naming naming_ = Naming::kByType;
  Phase phase_ = Phase::kForward;
};

// The shape that numpy's rules broadcast these to.
Shape broadcast_shape(const std::vector<Shape>& shapes);

}  // namespace autopar
