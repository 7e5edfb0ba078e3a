#include "autopar/builder.hpp"

#include <algorithm>
#include <numeric>

namespace autopar {

std::int64_t onnx_number(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 1;
    case DType::kUInt8:
      return 2;
    case DType::kInt8:
      return 3;
    case DType::kUInt16:
      return 4;
    case DType::kInt16:
      return 5;
    case DType::kInt32:
      return 6;
    case DType::kInt64:
      return 7;
    case DType::kBool:
      return 9;
    case DType::kFloat16:
      return 10;
    case DType::kFloat64:
      return 11;
    case DType::kUInt32:
      return 12;
    case DType::kUInt64:
      return 13;
    case DType::kBFloat16:
      return 16;
  }
  return 0;
}

Shape broadcast_shape(const std::vector<Shape>& shapes) {
  Shape shape;
  for (const Shape& other : shapes) {
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& extent = shape[shape.size() - 1 - i];
      const std::int64_t mine = other[other.size() - 1 - i];
      if (extent == 1) extent = mine;
      AUTOPAR_CHECK(mine == 1 || mine == extent, "operands that do not broadcast");
    }
  }
  return shape;
}

std::string GraphBuilder::fresh(Names& names, const std::string& type) {
  if (naming_ == Naming::kCounted) return names.unique(stem_, ".");
  return names.unique(stem_ + "/" + type);
}

ValueId GraphBuilder::add_value(Value value) { return graph_.add_value(std::move(value)); }

ValueId GraphBuilder::constant(Tensor tensor) {
  Value value;
  value.name = value_names_.unique(stem_ + "/constant");
  value.dtype = tensor.dtype;
  value.shape = tensor.shape;
  value.kind = ValueKind::kConstant;
  value.data = std::move(tensor);
  return add_value(std::move(value));
}

ValueId GraphBuilder::input(DType dtype, Shape shape, ValueKind kind) {
  Value value;
  value.name = value_names_.unique(stem_);
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.kind = kind;
  graph_.inputs.push_back(add_value(std::move(value)));
  return graph_.inputs.back();
}

ValueId GraphBuilder::ints(const std::vector<std::int64_t>& values) {
  return constant(int64_tensor({static_cast<std::int64_t>(values.size())}, values));
}

ValueId GraphBuilder::scalar(DType dtype, double number) {
  return constant(scalar_tensor(dtype, number));
}

ValueId GraphBuilder::filled(DType dtype, Shape shape, double number) {
  const ValueId one = scalar(dtype, number);
  return shape.empty() ? one : broadcast_to(one, shape);
}

ValueId GraphBuilder::add(const std::string& type, const std::vector<ValueId>& inputs, DType dtype,
                          Shape shape, Attributes attributes) {
  return add_all(type, inputs, {{dtype, std::move(shape)}}, std::move(attributes))[0];
}

std::vector<ValueId> GraphBuilder::add_all(const std::string& type,
                                           const std::vector<ValueId>& inputs,
                                           const std::vector<Output>& outputs,
                                           Attributes attributes) {
  Op op;
  op.name = fresh(op_names_, type);
  op.type = type;
  op.phase = phase_;
  op.inputs = inputs;
  op.attributes = std::move(attributes);
  for (const Output& output : outputs) {
    Value value;
    value.name = fresh(value_names_, type);
    value.dtype = output.dtype;
    value.shape = output.shape;
    op.outputs.push_back(add_value(std::move(value)));
  }
  std::vector<ValueId> made = op.outputs;
  graph_.add_op(std::move(op));
  return made;
}

ValueId GraphBuilder::output_of(OpId id, std::size_t port, DType dtype, Shape shape) {
  if (graph_.op(id).has_output(port)) return graph_.op(id).outputs[port];
  Value value;
  value.name = value_names_.unique(graph_.op(id).name + "/output_" + std::to_string(port));
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.producer = id;
  const ValueId output = add_value(std::move(value));
  Op& op = graph_.op(id);
  if (op.outputs.size() <= port) op.outputs.resize(port + 1);
  op.outputs[port] = output;
  return output;
}

ValueId GraphBuilder::pointwise(const std::string& type, const std::vector<ValueId>& inputs,
                                Attributes attributes) {
  std::vector<Shape> shapes;
  for (ValueId id : inputs) shapes.push_back(shape(id));
  return add(type, inputs, dtype(inputs[type == "Where" ? 1 : 0]), broadcast_shape(shapes),
             std::move(attributes));
}

ValueId GraphBuilder::test(const std::string& type, const std::vector<ValueId>& inputs) {
  std::vector<Shape> shapes;
  for (ValueId id : inputs) shapes.push_back(shape(id));
  return add(type, inputs, DType::kBool, broadcast_shape(shapes));
}

ValueId GraphBuilder::cast(ValueId from, DType to) {
  if (dtype(from) == to) return from;
  return add("Cast", {from}, to, shape(from), {{"to", onnx_number(to)}});
}

ValueId GraphBuilder::scaled(ValueId from, double number) {
  if (number == 1) return from;
  return pointwise("Mul", {from, scalar(dtype(from), number)});
}

ValueId GraphBuilder::reduce(const std::string& type, ValueId from,
                             const std::vector<std::size_t>& axes, bool keepdims) {
  Shape reduced;
  const Shape whole = shape(from);
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    const bool gone = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (gone) dims.push_back(static_cast<std::int64_t>(d));
    if (!gone || keepdims) reduced.push_back(gone ? 1 : whole[d]);
  }
  if (dims.empty() && (type == "ReduceSum" || type == "ReduceMean" || type == "ReduceMax")) {
    return from;
  }
  const Attribute keep = std::int64_t{keepdims ? 1 : 0};
  // ReduceSum takes its axes as an input since opset 13, the others since opset 18.
  if (type != "ReduceSum" && graph_.opset < 18) {
    return add(type, {from}, dtype(from), reduced, {{"axes", dims}, {"keepdims", keep}});
  }
  return add(type, {from, ints(dims)}, dtype(from), reduced, {{"keepdims", keep}});
}

ValueId GraphBuilder::sum_to(ValueId from, Shape target) {
  const Shape whole = shape(from);
  if (whole == target) return from;
  AUTOPAR_CHECK(whole.size() >= target.size(), "a sum to more dimensions");
  const std::size_t more = whole.size() - target.size();
  std::vector<std::size_t> axes;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (d < more ? whole[d] != 1 : target[d - more] == 1 && whole[d] != 1) axes.push_back(d);
  }
  return reshape(reduce("ReduceSum", from, axes), target);
}

ValueId GraphBuilder::broadcast_to(ValueId from, Shape target) {
  if (shape(from) == target) return from;
  return add("Expand", {from, ints(target)}, dtype(from), target);
}

ValueId GraphBuilder::reshape(ValueId from, Shape target) {
  if (shape(from) == target) return from;
  return add("Reshape", {from, ints(target)}, dtype(from), target);
}

ValueId GraphBuilder::unsqueeze(ValueId from, std::size_t axis) {
  Shape target = shape(from);
  target.insert(target.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return reshape(from, target);
}

ValueId GraphBuilder::transpose(ValueId from, const std::vector<std::size_t>& perm) {
  const Shape whole = shape(from);
  Shape target;
  std::vector<std::int64_t> order;
  for (std::size_t d : perm) {
    target.push_back(whole[d]);
    order.push_back(static_cast<std::int64_t>(d));
  }
  if (std::is_sorted(perm.begin(), perm.end())) return from;
  return add("Transpose", {from}, dtype(from), target, {{"perm", order}});
}

ValueId GraphBuilder::swap_last(ValueId from) {
  std::vector<std::size_t> perm(rank(from));
  std::iota(perm.begin(), perm.end(), std::size_t{0});
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(from, perm);
}

ValueId GraphBuilder::slice(ValueId from, std::size_t dimension, std::int64_t begin,
                            std::int64_t end) {
  Shape part = shape(from);
  if (begin == 0 && end == part[dimension]) return from;
  part[dimension] = end - begin;
  const ValueId dims = ints({static_cast<std::int64_t>(dimension)});
  return add("Slice", {from, ints({begin}), ints({end}), dims}, dtype(from), part);
}

ValueId GraphBuilder::concat(const std::vector<ValueId>& parts, std::size_t dimension) {
  if (parts.size() == 1) return parts[0];
  Shape whole = shape(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) whole[dimension] += shape(parts[i])[dimension];
  const auto axis = static_cast<std::int64_t>(dimension);
  return add("Concat", parts, dtype(parts[0]), whole, {{"axis", axis}});
}

ValueId GraphBuilder::pad(ValueId from, const std::vector<std::int64_t>& before,
                          const std::vector<std::int64_t>& after) {
  Shape padded = shape(from);
  std::vector<std::int64_t> pads = before;
  pads.insert(pads.end(), after.begin(), after.end());
  if (std::all_of(pads.begin(), pads.end(), [](std::int64_t n) { return n == 0; })) return from;
  for (std::size_t d = 0; d < padded.size(); ++d) padded[d] += before[d] + after[d];
  return add("Pad", {from, ints(pads)}, dtype(from), padded);
}

ValueId GraphBuilder::matmul(ValueId left, ValueId right) {
  const Shape a = shape(left), b = shape(right);
  AUTOPAR_CHECK(!a.empty() && !b.empty(), "a MatMul of a scalar");
  const Shape a_batch(a.begin(), a.end() - (a.size() > 1 ? 2 : 1));
  const Shape b_batch(b.begin(), b.end() - (b.size() > 1 ? 2 : 1));
  AUTOPAR_CHECK(a.back() == (b.size() > 1 ? b[b.size() - 2] : b[0]), "a MatMul that does not fit");
  Shape product = broadcast_shape({a_batch, b_batch});
  if (a.size() > 1) product.push_back(a[a.size() - 2]);
  if (b.size() > 1) product.push_back(b.back());
  return add("MatMul", {left, right}, dtype(left), product);
}

ValueId GraphBuilder::einsum(const std::string& equation, const std::vector<ValueId>& inputs,
                             Shape target) {
  const DType type = dtype(inputs[0]);
  const DType has = type == DType::kBFloat16 ? DType::kFloat32 : type;
  std::vector<ValueId> read;
  for (const ValueId input : inputs) read.push_back(cast(input, has));
  return cast(add("Einsum", read, has, std::move(target), {{"equation", equation}}), type);
}

}  // namespace autopar
