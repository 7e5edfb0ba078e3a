// Constant folding, op by op: inputs and result as text. Values were worked out by hand from ONNX's
// operator documentation.
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "io/import/arrays.hpp"
#include "io/import/evaluate.hpp"

namespace autopar::fold_test {

namespace {

// "i[2,3] 1 2 3 4 5 6": i = int64, f = float32, b = bool.
Tensor tensor(const std::string& text) {
  std::istringstream in(text.substr(1));
  char mark = 0;
  in >> mark;
  REQUIRE(mark == '[');
  Shape shape;
  while (in.peek() != ']') {
    std::int64_t extent = 0;
    in >> extent;
    shape.push_back(extent);
    if (in.peek() == ',') in.get();
  }
  in.get();
  Doubles values;
  for (double value = 0; in >> value;) values.push_back(value);
  REQUIRE(element_count(shape) == static_cast<std::int64_t>(values.size()));
  if (text[0] == 'f') return tensor_of(DType::kFloat32, shape, values);
  return tensor_of(text[0] == 'b' ? DType::kBool : DType::kInt64, shape,
                   Ints(values.begin(), values.end()));
}

std::string to_text(const Tensor& t) {
  std::ostringstream out;
  out << (t.dtype == DType::kFloat32 ? 'f'
          : t.dtype == DType::kBool  ? 'b'
                                     : 'i')
      << autopar::to_text(t.shape);
  for (const double value : doubles_of(t)) out << ' ' << value;
  return out.str();
}

struct Row {
  std::string type;
  std::map<std::string, Attribute> attributes;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;  // empty: not folded
};

void check(const Row& row) {
  Op op;
  op.type = row.type;
  op.attributes = row.attributes;
  std::vector<Tensor> inputs;
  for (const auto& text : row.inputs) {
    inputs.push_back(text == "-" ? Tensor{} : tensor(text));
  }
  std::vector<const Tensor*> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    pointers.push_back(row.inputs[i] == "-" ? nullptr : &inputs[i]);
  }
  std::vector<OutputType> types;
  for (const auto& text : row.outputs) {
    const Tensor expected = tensor(text);
    types.push_back({expected.dtype, expected.shape});
  }
  if (types.empty()) types.push_back({DType::kInt64, std::nullopt});
  const auto results = evaluate({op, pointers, types}, 1 << 20);
  std::string description = row.type;
  for (const auto& text : row.inputs) description += " (" + text + ")";
  INFO(description);
  REQUIRE(results.has_value() == !row.outputs.empty());
  for (std::size_t i = 0; i < row.outputs.size(); ++i) {
    CHECK(to_text((*results)[i]) == row.outputs[i]);
  }
}

using I = std::int64_t;
using Ints64 = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("arithmetic folds", "[import]") {
  for (const Row& row : std::vector<Row>{
           {"Add", {}, {"i[2,1] 1 2", "i[3] 10 20 30"}, {"i[2,3] 11 21 31 12 22 32"}},
           {"Div", {}, {"i[3] 7 -7 6", "i[] 2"}, {"i[3] 3 -3 3"}},
           {"Div", {}, {"i[1] 7", "i[1] 0"}, {}},
           {"Div", {}, {"f[1] 7", "f[] 2"}, {"f[1] 3.5"}},
           {"Mod", {}, {"i[3] 7 -7 6", "i[] 4"}, {"i[3] 3 1 2"}},
           {"Mod", {{"fmod", I{1}}}, {"i[2] 7 -7", "i[] 4"}, {"i[2] 3 -3"}},
           {"Pow", {}, {"i[2] 2 3", "i[] 3"}, {"i[2] 8 27"}},
           {"Max", {}, {"i[2] 1 5", "i[1] 3", "i[] 4"}, {"i[2] 4 5"}},
           {"Neg", {}, {"i[2] 1 -5"}, {"i[2] -1 5"}},
           {"Sqrt", {}, {"f[2] 4 9"}, {"f[2] 2 3"}},
           {"Round", {}, {"f[3] 0.5 1.5 -2.5"}, {"f[3] 0 2 -2"}},
           {"Clip", {}, {"f[3] -5 0 5", "-", "f[] 1"}, {"f[3] -5 0 1"}},
           {"Less", {}, {"i[3] 1 2 3", "i[] 2"}, {"b[3] 1 0 0"}},
           {"And", {}, {"b[2] 1 0", "b[2] 1 1"}, {"b[2] 1 0"}},
           {"Not", {}, {"b[2] 1 0"}, {"b[2] 0 1"}},
           {"Where", {}, {"b[2,1] 1 0", "i[2] 1 2", "i[1] 9"}, {"i[2,2] 1 2 9 9"}},
           {"Cast", {}, {"f[3] 1.9 -1.9 0"}, {"i[3] 1 -1 0"}},
           {"Cast", {}, {"f[2] 0.5 0"}, {"b[2] 1 0"}},
           {"Cast", {}, {"f[1] 1e30"}, {}},
           {"MatMul", {}, {"f[2,2] 1 2 3 4", "f[2,1] 1 10"}, {"f[2,1] 21 43"}},
           {"CumSum", {}, {"i[2,2] 1 2 3 4", "i[] 1"}, {"i[2,2] 1 3 3 7"}},
           {"CumSum",
            {{"exclusive", I{1}}, {"reverse", I{1}}},
            {"i[3] 1 2 3", "i[] 0"},
            {"i[3] 5 3 0"}},
           {"ReduceSum", {{"keepdims", I{0}}}, {"i[2,2] 1 2 3 4", "i[1] -1"}, {"i[2] 3 7"}},
           {"ReduceMean", {{"axes", Ints64{0}}}, {"f[2,2] 1 2 3 4"}, {"f[1,2] 2 3"}},
           {"ReduceMax", {{"keepdims", I{0}}}, {"i[3] 1 7 3"}, {"i[] 7"}},
       }) {
    check(row);
  }
}

TEST_CASE("movement folds", "[import]") {
  for (const Row& row : std::vector<Row>{
           {"Transpose", {}, {"i[2,3] 1 2 3 4 5 6"}, {"i[3,2] 1 4 2 5 3 6"}},
           {"Expand", {}, {"i[2,1] 1 2", "i[2] 2 2"}, {"i[2,2] 1 1 2 2"}},
           {"Tile", {}, {"i[1,2] 1 2", "i[2] 2 2"}, {"i[2,4] 1 2 1 2 1 2 1 2"}},
           {"Slice", {}, {"i[4] 1 2 3 4", "i[1] -3", "i[1] 99"}, {"i[3] 2 3 4"}},
           {"Slice", {}, {"i[4] 1 2 3 4", "i[1] 3", "i[1] -9", "i[1] 0", "i[1] -2"}, {"i[2] 4 2"}},
           {"Slice", {}, {"i[2] 1 2", "i[1] 2", "i[1] 1"}, {"i[0]"}},
           {"Concat", {{"axis", I{1}}}, {"i[2,1] 1 2", "i[2,2] 3 4 5 6"}, {"i[2,3] 1 3 4 2 5 6"}},
           {"Split", {{"axis", I{0}}}, {"i[3] 1 2 3", "i[2] 1 2"}, {"i[1] 1", "i[2] 2 3"}},
           {"Pad", {}, {"i[2] 1 2", "i[2] 1 2", "i[] 9"}, {"i[5] 9 1 2 9 9"}},
           {"Trilu", {{"upper", I{0}}}, {"i[2,2] 1 2 3 4"}, {"i[2,2] 1 0 3 4"}},
           {"Trilu", {}, {"i[2,2] 1 2 3 4", "i[] 1"}, {"i[2,2] 0 2 0 0"}},
           {"Range", {}, {"i[] 5", "i[] 0", "i[] -2"}, {"i[3] 5 3 1"}},
           {"Gather", {{"axis", I{1}}}, {"i[2,2] 1 2 3 4", "i[1] -1"}, {"i[2,1] 2 4"}},
           {"Gather", {}, {"i[2] 1 2", "i[1] 2"}, {}},
           {"GatherElements", {{"axis", I{1}}}, {"i[2,2] 1 2 3 4", "i[2,1] 1 0"}, {"i[2,1] 2 3"}},
           {"GatherND", {}, {"i[2,2] 1 2 3 4", "i[2,2] 0 1 1 0"}, {"i[2] 2 3"}},
           {"GatherND", {{"batch_dims", I{1}}}, {"i[2,2] 1 2 3 4", "i[2,1] 1 0"}, {"i[2] 2 3"}},
           {"ScatterND", {}, {"i[3] 1 2 3", "i[1,1] 1", "i[1] 9"}, {"i[3] 1 9 3"}},
           {"ScatterElements", {}, {"i[3] 1 2 3", "i[2] 2 0", "i[2] 8 9"}, {"i[3] 9 2 8"}},
           {"NonZero", {}, {"i[2,2] 0 1 1 0"}, {"i[2,2] 0 1 1 0"}},
           {"Einsum", {}, {"f[1] 1"}, {}},
       }) {
    check(row);
  }
}

}  // namespace autopar::fold_test
