#include "io/export/dialects/steps.hpp"

#include <numeric>
#include <utility>

#include "io/import/proto_tensor.hpp"

namespace autopar {

Steps::Steps(Graph& program, Names& value_names, Names& op_names, const Op& collective)
    : program_(program),
      value_names_(value_names),
      op_names_(op_names),
      collective_(collective),
      at_(collective.inputs[0]) {}

void Steps::exchange(const std::string& type, const std::string& domain,
                     std::map<std::string, Attribute> attributes, Shape output) {
  add("", type, {}, std::move(attributes), std::move(output));
  program_.ops.back().domain = domain;
}

void Steps::transpose(const std::vector<std::int64_t>& perm) {
  bool moves = false;
  Shape output;
  for (std::size_t d = 0; d < perm.size(); ++d) {
    moves |= perm[d] != static_cast<std::int64_t>(d);
    output.push_back(shape()[static_cast<std::size_t>(perm[d])]);
  }
  if (moves) add("/transpose", "Transpose", {}, {{"perm", perm}}, std::move(output));
}

void Steps::reshape(const Shape& to) {
  if (to == shape()) return;
  // A target of 0 means the input's own extent there, unless it is said otherwise.
  add("/reshape", "Reshape", {ints("/shape", to)}, {{"allowzero", std::int64_t{1}}}, to);
  if (program_.opset < 14) program_.ops.back().attributes.clear();
}

void Steps::cast(DType to) {
  if (to == dtype()) return;
  add("/cast", "Cast", {}, {{"to", std::int64_t{onnx_dtype_of(to)}}}, shape());
  program_.value(at_).dtype = to;
}

void Steps::move_dimension(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> perm(shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  transpose(perm);
}

void Steps::part(std::int64_t axis, std::int64_t parts, std::int64_t position) {
  Shape output = shape();
  std::int64_t& extent = output[static_cast<std::size_t>(axis)];
  extent /= parts;
  const std::int64_t begin = position * extent;
  add("/part", "Slice",
      {ints("/begin", {begin}), ints("/end", {begin + extent}), ints("/axis", {axis})}, {},
      std::move(output));
}

void Steps::reduce_first(const std::string& type) {
  const Shape output(shape().begin() + 1, shape().end());
  std::map<std::string, Attribute> attributes = {{"keepdims", std::int64_t{0}}};
  std::vector<ValueId> operands;
  if (type == "ReduceSum" || program_.opset >= 18) {
    operands.push_back(ints("/axes", {0}));
  } else {
    attributes["axes"] = std::vector<std::int64_t>{0};
  }
  add("/reduce", type, std::move(operands), std::move(attributes), output);
}

void Steps::finish() {
  const ValueId output = collective_.outputs[0];
  if (at_ == collective_.inputs[0]) add("", "Identity", {}, {}, shape());
  Op& last = program_.ops.back();
  program_.value(at_).producer = OpId();
  last.outputs = {output};
  program_.value(output).producer = OpId(static_cast<std::int64_t>(program_.ops.size()) - 1);
  at_ = output;
}

void Steps::add(const std::string& suffix, const std::string& type, std::vector<ValueId> operands,
                std::map<std::string, Attribute> attributes, Shape output) {
  operands.insert(operands.begin(), at_);
  const std::string stem = collective_.name + suffix;
  const ValueId made = program_.add_value({.name = value_names_.unique(stem + "/output"),
                                           .dtype = dtype(),
                                           .shape = std::move(output)});
  program_.add_op({.name = suffix.empty() ? stem : op_names_.unique(stem),
                   .type = type,
                   .inputs = std::move(operands),
                   .outputs = {made},
                   .attributes = std::move(attributes),
                   .origin_name = collective_.origin_name,
                   .origin_type = collective_.origin_type});
  at_ = made;
}

ValueId Steps::ints(const std::string& suffix, const std::vector<std::int64_t>& values) {
  const Shape extent = {static_cast<std::int64_t>(values.size())};
  return program_.add_value({.name = value_names_.unique(collective_.name + suffix),
                             .dtype = DType::kInt64,
                             .shape = extent,
                             .kind = ValueKind::kConstant,
                             .data = int64_tensor(extent, values)});
}

}  // namespace autopar
