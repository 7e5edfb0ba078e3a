#include "cost/causal.hpp"

#include <algorithm>

namespace autopar {

const Elements::Data& Elements::data(ValueId id) {
  const auto found = data_.find(id);
  if (found != data_.end()) return found->second;
  Data values;
  if (const Tensor* tensor = graph_.value(id).tensor()) {
    values = float_values(*tensor);
    if (!values) {
      if (const auto integers = int_values(*tensor)) {
        values.emplace(integers->begin(), integers->end());
      }
    }
  }
  return data_.emplace(id, std::move(values)).first->second;
}

std::optional<double> Elements::at(ValueId id, std::int64_t row, std::int64_t column) {
  if (!id.valid()) return std::nullopt;
  const Value& value = graph_.value(id);
  const std::size_t rank = value.shape.size();
  // Broadcast.
  const std::int64_t columns = rank > 0 ? value.shape[rank - 1] : 1;
  const std::int64_t rows = rank > 1 ? value.shape[rank - 2] : 1;
  if (columns == 1) column = 0;
  if (rows == 1) row = 0;
  if (row >= rows || column >= columns) return std::nullopt;
  if (value.kind == ValueKind::kConstant) {
    const Data& all = data(id);
    const auto place = static_cast<std::size_t>(row * columns + column);
    if (!all || place >= all->size()) return std::nullopt;
    return (*all)[place];
  }
  if (!value.producer.valid()) return std::nullopt;
  return of_op(graph_.op(value.producer), row, column);
}

std::optional<double> Elements::of_op(const Op& op, std::int64_t row, std::int64_t column) {
  if (!op.domain.empty() || op.inputs.empty()) return std::nullopt;
  const auto in = [&](std::size_t i) {
    return i < op.inputs.size() ? at(op.inputs[i], row, column) : std::nullopt;
  };
  const std::string& type = op.type;
  if (type == "Cast" || type == "Identity" || type == "Expand" || type == "Unsqueeze" ||
      type == "Reshape") {
    const Shape& from = graph_.value(op.inputs[0]).shape;
    const Shape& to = graph_.value(op.outputs[0]).shape;
    // Only leading dimensions may change.
    if (type != "Cast" && type != "Identity" && type != "Expand") {
      const std::size_t same = std::min<std::size_t>({2, from.size(), to.size()});
      if (!std::equal(from.rbegin(), from.rbegin() + static_cast<std::ptrdiff_t>(same),
                      to.rbegin())) {
        return std::nullopt;
      }
    }
    return in(0);
  }
  const auto a = in(0);
  if (!a) return std::nullopt;
  if (type == "Not") return *a == 0 ? 1 : 0;
  if (type == "Neg") return -*a;
  if (type == "Trilu") {
    double k = 0;
    if (op.has_input(1)) {
      const auto given = constant_ints(graph_, op, 1);
      if (!given || given->size() != 1) return std::nullopt;
      k = static_cast<double>(given->front());
    }
    const bool upper = op.int_attribute("upper", 1) != 0;
    const auto far = static_cast<double>(column - row);
    return (upper ? far >= k : far <= k) ? *a : 0;
  }
  const auto b = in(1);
  if (type == "Where") return *a != 0 ? b : in(2);
  if (!b) return std::nullopt;
  if (type == "GreaterOrEqual") return *a >= *b ? 1 : 0;
  if (type == "Greater") return *a > *b ? 1 : 0;
  if (type == "LessOrEqual") return *a <= *b ? 1 : 0;
  if (type == "Less") return *a < *b ? 1 : 0;
  if (type == "And") return *a != 0 && *b != 0 ? 1 : 0;
  if (type == "Or") return *a != 0 || *b != 0 ? 1 : 0;
  if (type == "Add") return *a + *b;
  if (type == "Sub") return *a - *b;
  if (type == "Mul") return *a == 0 || *b == 0 ? 0 : *a * *b;
  return std::nullopt;
}

bool is_causal_mask(const Graph& graph, const Op& op, ValueId scores, Elements& elements) {
  constexpr double kMasked = -1e3;  // below that a score counts for nothing
  const Shape& shape = graph.value(scores).shape;
  if (shape.size() < 2) return false;
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows != columns || rows < 2) return false;
  const auto left = [&](std::int64_t row, std::int64_t column) -> std::optional<bool> {
    if (op.type == "Where" && op.inputs.size() == 3) {
      const bool first = op.inputs[1] == scores;
      const auto chosen = elements.at(op.inputs[0], row, column);
      const auto other = elements.at(op.inputs[first ? 2 : 1], row, column);
      if (!chosen || !other || *other > kMasked) return std::nullopt;
      return (*chosen != 0) == first;
    }
    if (op.type == "Add" && op.inputs.size() == 2) {
      const auto added = elements.at(op.inputs[op.inputs[0] == scores ? 1 : 0], row, column);
      if (!added) return std::nullopt;
      return *added > kMasked;
    }
    return std::nullopt;
  };
  const std::int64_t middle = rows / 2;
  return left(0, 0) == true && left(0, columns - 1) == false && left(rows - 1, 0) == true &&
         left(middle, middle) == true && left(middle - 1, middle) == false &&
         left(rows - 1, columns - 1) == true;
}

}  // namespace autopar
