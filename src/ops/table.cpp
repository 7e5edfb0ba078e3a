#include "ops/table.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace autopar {
namespace {

using Table = std::unordered_map<std::string_view, const OpRow*>;

Table make_table() {
  const std::array families = {elementwise_rows(), contraction_rows(), convolution_rows(),
                               pooling_rows(),     reduction_rows(),   reshape_rows(),
                               movement_rows(),    softmax_rows(),     gather_rows(),
                               scatter_rows(),     scan_rows(),        normalisation_rows(),
                               attention_rows(),   loss_rows(),        generator_rows(),
                               recurrent_rows(),   quantisation_rows()};
  Table table;
  for (std::span<const OpRow> family : families) {
    for (const OpRow& row : family) {
      AUTOPAR_CHECK(table.emplace(row.type, &row).second,
                    std::string("two rows of the op table are for ") + row.type);
    }
  }
  return table;
}

}  // namespace

const OpRow* find_row(const Op& op) {
  static const Table table = make_table();
  if (!op.domain.empty() && op.domain != "ai.onnx") return nullptr;
  const auto found = table.find(op.type);
  return found == table.end() ? nullptr : found->second;
}

const Shape& shape_at(const std::vector<Shape>& shapes, std::size_t i) {
  static const Shape none;
  return i < shapes.size() ? shapes[i] : none;
}

const Shape& OpView::in(std::size_t i) const { return shape_at(shapes.inputs, i); }
const Shape& OpView::out(std::size_t i) const { return shape_at(shapes.outputs, i); }

std::optional<std::size_t> OpView::axis(const std::string& name, std::int64_t fallback,
                                        std::size_t rank) const {
  return normal_axis(op.int_attribute(name, fallback), rank);
}

std::optional<std::size_t> normal_axis(std::int64_t axis, std::size_t rank) {
  const std::int64_t dims = static_cast<std::int64_t>(rank);
  if (axis < -dims || axis >= dims) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + dims : axis);
}

std::vector<std::string> dim_names(std::size_t rank, const std::string& stem) {
  std::vector<std::string> names;
  for (std::size_t d = 0; d < rank; ++d) names.push_back(stem + std::to_string(d));
  return names;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::string whole_dims(std::size_t rank) { return join(std::vector<std::string>(rank, "_")); }

std::string whole_from(std::size_t first, const Shape& shape) {
  return shape.size() > first ? " " + whole_dims(shape.size() - first) : "";
}

}  // namespace autopar
