// Arithmetic and memory traffic. FLOPs of transcendental functions are rough counts of the
// operations of common implementations; they only matter beside the memory traffic on slow devices.
#include <algorithm>
#include <set>

#include "ops/table.hpp"

namespace autopar {

double bytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(element_count(shape)) * static_cast<double>(size_of(dtype));
}

double elements_of(const std::vector<Shape>& shapes, std::size_t i) {
  return static_cast<double>(element_count(shape_at(shapes, i)));
}

Work streaming_work(const Op& op, const OpShapes& shapes) {
  const OpRow* row = find_row(op);
  Work work;
  for (std::size_t i = 0; i < shapes.inputs.size(); ++i) {
    if (!op.has_input(i) || is_operand(row, i)) continue;
    work.bytes += bytes_of(shapes.inputs[i], shapes.input_dtypes[i]);
  }
  for (std::size_t i = 0; i < shapes.outputs.size(); ++i) {
    if (op.has_output(i)) work.bytes += bytes_of(shapes.outputs[i], shapes.output_dtypes[i]);
  }
  return work;
}

Work view_work(const Op&, const OpShapes&) { return {}; }

Work gather_work(const Op& op, const OpShapes& shapes) {
  Work work;
  for (std::size_t i = 0; i < shapes.outputs.size(); ++i) {
    if (op.has_output(i)) work.bytes += 2 * bytes_of(shapes.outputs[i], shapes.output_dtypes[i]);
  }
  return work;
}

bool is_contraction(const Op& op) {
  static const std::set<std::string> types = {
      "MatMul",      "Gemm",          "Einsum",        "Conv",        "ConvTranspose",
      "ConvInteger", "MatMulInteger", "QLinearMatMul", "QLinearConv", "DeformConv",
      "Attention",   "LSTM",          "GRU",           "RNN"};
  return types.count(op.type) != 0;
}

bool is_random(const Op& op) {
  static const std::set<std::string> types = {
      "Bernoulli",        "Dropout",       "Multinomial",      "RandomNormal",
      "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
  return op.domain.empty() && types.count(op.type) != 0;
}

bool is_view(const Op& op) {
  const OpRow* row = find_row(op);
  return row != nullptr && row->work == view_work;
}

bool is_on_elements(const Op& op) {
  const OpRow* row = find_row(op);
  const auto rows = elementwise_rows();
  return row != nullptr && !rows.empty() && row >= rows.data() && row < rows.data() + rows.size();
}

Work work_of(const Op& op, const OpShapes& shapes) {
  if (is_collective(op)) return {};
  const OpRow* row = find_row(op);
  if (row != nullptr && row->work != nullptr) return row->work(op, shapes);
  Work work = streaming_work(op, shapes);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < shapes.inputs.size(); ++i) {
    if (op.has_input(i)) elements = std::max(elements, element_count(shapes.inputs[i]));
  }
  for (std::size_t i = 0; i < shapes.outputs.size(); ++i) {
    if (op.has_output(i)) elements = std::max(elements, element_count(shapes.outputs[i]));
  }
  work.flops = (row == nullptr ? 1 : row->flops_per_element) * static_cast<double>(elements);
  return work;
}

}  // namespace autopar
