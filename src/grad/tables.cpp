#include "grad/tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace autopar {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 24;  // of a table that is looked into
// A trained column obeys a recurrence by chance with a probability of about this per equation.
constexpr double kClose = 1e-4;
constexpr std::int64_t kFewestRows = 5;
constexpr double kForgotten = -1e4;  // the exponential of it is 0 in any type

using Numbers = std::vector<double>;

// Rows along the dimension before the last, or along the only one.
struct Rows {
  std::int64_t tables = 1, rows = 0, columns = 1;
};
Rows rows_of(const Shape& shape) {
  if (shape.size() == 1) return {1, shape[0], 1};
  Rows found{1, shape[shape.size() - 2], shape.back()};
  for (std::size_t d = 0; d + 2 < shape.size(); ++d) found.tables *= shape[d];
  return found;
}

// Whether x[i+1] + x[i-1] = k x[i] with one k for all i.
bool is_recurrent(const double* first, std::int64_t rows, std::int64_t stride) {
  double products = 0, squares = 0, largest = 0;
  const auto at = [&](std::int64_t i) { return first[i * stride]; };
  for (std::int64_t i = 1; i + 1 < rows; ++i) {
    products += at(i) * (at(i - 1) + at(i + 1));
    squares += at(i) * at(i);
  }
  const double k = squares > 0 ? products / squares : 0;
  for (std::int64_t i = 0; i < rows; ++i) largest = std::max(largest, std::fabs(at(i)));
  for (std::int64_t i = 1; i + 1 < rows; ++i) {
    const double off = std::fabs(at(i - 1) + at(i + 1) - k * at(i));
    if (!(off <= kClose * largest)) return false;
  }
  return true;
}

bool is_wave_or_ramp(const Numbers& values, const Rows& shape) {
  if (shape.rows < kFewestRows) return false;
  bool changes = false;
  for (std::int64_t t = 0; t < shape.tables; ++t) {
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      const double* first = values.data() + t * shape.rows * shape.columns + c;
      if (!is_recurrent(first, shape.rows, shape.columns)) return false;
      const double last = first[(shape.rows - 1) * shape.columns];
      const double middle = first[shape.rows / 2 * shape.columns];
      changes = changes || *first != middle || *first != last;
    }
  }
  return changes;
}

bool is_mask(const Numbers& values, const Rows& shape) {
  const bool additive =
      std::all_of(values.begin(), values.end(), [](double x) { return x == 0 || x <= kForgotten; });
  if (additive) return std::any_of(values.begin(), values.end(), [](double x) { return x != 0; });
  if (shape.rows < 2 || shape.columns < 2) return false;
  bool lower = true, upper = true;
  for (std::size_t i = 0; i < values.size() && (lower || upper); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / shape.columns % shape.rows, column = at % shape.columns;
    lower = lower && values[i] == (column <= row ? 1 : 0);
    upper = upper && values[i] == (column >= row ? 1 : 0);
  }
  return lower || upper;
}

bool only_written_into(const Graph& graph, const std::vector<Use>& uses) {
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    const std::string& type = graph.op(use.op).type;
    return use.port == 0 && type.rfind("Scatter", 0) == 0;
  });
}

// Both a Cos and a Sin read what comes of it by products and movement.
bool becomes_angle(const Graph& graph, const std::vector<std::vector<Use>>& uses, ValueId id) {
  static constexpr std::array<const char*, 10> kOnTheWay = {
      "Cast",   "Concat", "Einsum",  "Expand",    "Identity",
      "MatMul", "Mul",    "Reshape", "Transpose", "Unsqueeze"};
  std::vector<ValueId> left = {id};
  std::set<ValueId> seen = {id};
  bool cos = false, sin = false;
  while (!left.empty()) {
    const ValueId value = left.back();
    left.pop_back();
    for (const Use& use : uses[value.index()]) {
      const Op& op = graph.op(use.op);
      cos = cos || op.type == "Cos";
      sin = sin || op.type == "Sin";
      if (op.type == "Cos" || op.type == "Sin") continue;
      if (std::find(kOnTheWay.begin(), kOnTheWay.end(), op.type) == kOnTheWay.end()) return false;
      for (const ValueId output : op.outputs) {
        if (output.valid() && seen.insert(output).second) left.push_back(output);
      }
    }
  }
  return cos && sin;
}

// Whether it is as long as the batch of a data input, and holds the same for every sample.
bool repeats_sample(const Graph& graph, const Shape& shape, const Numbers& values) {
  const bool of_batch = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
    const Value& input = graph.value(id);
    return input.kind == ValueKind::kInput && input.shape.size() > 1 && input.shape[0] == shape[0];
  });
  if (!of_batch || shape.size() < 2 || shape[0] < 2) return false;
  const auto slice = static_cast<std::ptrdiff_t>(values.size()) / shape[0];
  return std::equal(values.begin() + slice, values.end(), values.begin());
}

bool is_exporters_name(const std::string& name) {
  constexpr const char* kPrefix = "val_";
  return name.rfind(kPrefix, 0) == 0 && name.size() > 4 &&
         std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string why_computed(const Graph& graph, const std::vector<std::vector<Use>>& uses,
                         ValueId id) {
  const Value& value = graph.value(id);
  if (becomes_angle(graph, uses, id)) return "frequencies of a Cos and a Sin";
  const std::int64_t count = element_count(value.shape);
  if (count == 1) return is_exporters_name(value.name) ? "a number that the exporter named" : "";
  if (value.tensor() == nullptr || count > kMostElements || value.shape.empty()) return "";
  const auto values = float_values(*value.tensor());
  if (!values || values->empty()) return "";
  const Rows rows = rows_of(value.shape);
  if (is_mask(*values, rows)) return "a mask";
  const bool one_number =
      std::all_of(values->begin(), values->end(), [&](double x) { return x == values->front(); });
  if (one_number) {
    return only_written_into(graph, uses[id.index()]) ? "a buffer that ops write into" : "";
  }
  if (is_wave_or_ramp(*values, rows)) return "a table of sines, powers or steps";
  return repeats_sample(graph, value.shape, *values) ? "the same for every sample" : "";
}

}  // namespace autopar
