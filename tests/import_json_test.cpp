// graph.json: what is read, and the places that messages name.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "autopar/import.hpp"

namespace autopar::import_json_test {

namespace {

Result<ImportedModel> import_json(const std::string& text, const ImportOptions& options = {}) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("autopar_import_json_test_" + std::to_string(getpid()));
  std::ofstream(path) << text;
  auto imported = import_model(path.string(), options);
  std::filesystem::remove(path);
  return imported;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const char* const kMlp = R"({"format": "autopar-graph", "version": 1, "name": "mlp", "comment": 0,
 "inputs": [{"name": "X", "dtype": "float32", "shape": [64, 128]}],
 "parameters": [{"name": "W", "dtype": "float32", "shape": [128, 256]}],
 "constants": [{"name": "S", "dtype": "int64", "shape": [3], "data": [8, 8, -1]}],
 "ops": [{"name": "fc1", "type": "Gemm", "inputs": ["X", "W"], "outputs": ["Y"],
          "attributes": {"alpha": 2, "transA": 0}},
         {"type": "Softmax", "inputs": ["Y"], "outputs": ["P"], "attributes": {"axis": -1}},
         {"name": "r", "type": "Reshape", "inputs": ["P", "S"], "outputs": ["Z"]}],
 "outputs": [ "Z" ]})";

}  // namespace

TEST_CASE("graph.json", "[import]") {
  const auto imported = import_json(kMlp);
  INFO((imported ? "" : imported.error().message));
  REQUIRE(imported.ok());
  CHECK(imported->ir_version == 0);
  CHECK(to_text(imported->graph) ==
        "graph mlp opset 26\n"
        "input X: float32[64,128]\n"
        "parameter W: float32[128,256]\n"
        "constant Z/shape: int64[3] = [8, 8, 256]\n"
        "Y: float32[64,256] = Gemm(X, W) alpha=2.0 transA=0 # fc1\n"
        "P: float32[64,256] = Softmax(Y) axis=1 # Softmax_P\n"
        "Z: float32[8,8,256] = Reshape(P, Z/shape) # r\n"
        "output Z\n");
}

TEST_CASE("graph.json: symbolic dimensions, tensors as attributes", "[import]") {
  const auto imported = import_json(R"({"format": "autopar-graph", "version": 1,
        "inputs": [{"name": "x", "dtype": "bfloat16", "shape": ["batch", 4]}],
        "ops": [{"type": "Shape", "inputs": ["x"], "outputs": ["s"]},
                {"type": "ConstantOfShape", "inputs": ["s"], "outputs": ["h"],
                 "attributes": {"value": {"dtype": "bfloat16", "shape": [1], "data": [0.5]}}},
                {"type": "Mul", "inputs": ["x", "h"], "outputs": ["y"]}],
        "outputs": ["y"]})",
                                    {.dims = {{"batch", 3}}});
  INFO((imported ? "" : imported.error().message));
  REQUIRE(imported.ok());
  REQUIRE(imported->graph.ops.size() == 1);
  const Value& half = imported->graph.value(imported->graph.ops[0].inputs[1]);
  REQUIRE(half.tensor());
  CHECK(half.shape == Shape{3, 4});
  CHECK(half.tensor()->bytes.substr(0, 2) == scalar_tensor(DType::kBFloat16, 0.5).bytes);
}

TEST_CASE("graph.json: messages name the place", "[import]") {
  const std::pair<std::string, std::string> kReplacements[] = {
      {R"("autopar-graph")", R"("autopar-strategy")"},
      {R"("version": 1)", R"("version": 2)"},
      {R"(["X", "W"])", R"(["X", 7])"},
      {R"("float32", "shape": [64, 128])", R"("float33", "shape": [64, 128])"},
      {R"("float32", "shape": [64, 128])", R"("float32", "shape": [64, -1])"},
      {R"("float32", "shape": [64, 128])", R"("float32", "shape": [64, 1.5])"},
      {R"("float32", "shape": [64, 128])", R"("float32", "shape": 64)"},
      {R"([8, 8, -1])", R"([8, 8])"},
      {R"("axis": -1)", R"("axis": 1.5)"},
      {R"("axis": -1)", R"("axis": null)"},
      {R"("axis": -1)", R"("axes": [1])"},
      {R"("outputs": [ "Z" ]})", R"("outputs": "Z"})"},
      {R"("outputs": [ "Z" ]})", R"("outputs": ["Q"]})"},
      {R"({"type": "Softmax")", R"({"type": 3)"},
      {R"({"type": "Softmax")", R"({"type": "Softmac")"},
      {R"("outputs": [ "Z" ]})", R"("outputs": ["Z"])"},
  };
  const std::string kMessages[] = {
      R"(format: expected "autopar-graph", found "autopar-strategy")",
      "version: expected 1, found 2",
      "ops[0].inputs[1]: expected a string, found number",
      "inputs[0].dtype: 'float33' is not a type",
      "graph input 'X': dimension 1 is negative (-1)",
      "inputs[0].shape[1]: expected a 64-bit integer, found number",
      "inputs[0].shape: expected a list, found number",
      "constants[0].data: expected 3 numbers for the shape [3], found 2",
      "op 'Softmax_P' (Softmax): Mismatched attribute type",
      "ops[1].attributes.axis: expected a number",
      "Unrecognized attribute: axes",
      "outputs: expected a list, found string",
      "graph output 'Q' is produced by nothing",
      "ops[1].type: expected a string, found number",
      "op 'Softmac_P' (Softmac): unknown op type",
      "is not JSON",
  };
  for (std::size_t i = 0; i < std::size(kMessages); ++i) {
    const auto imported =
        import_json(replaced(kMlp, kReplacements[i].first, kReplacements[i].second));
    INFO(kReplacements[i].second);
    REQUIRE_FALSE(imported.ok());
    INFO(imported.error().message);
    CHECK(imported.error().message.find(kMessages[i]) != std::string::npos);
    CHECK(imported.error().code == ErrorCode::kInput);
  }
}

}  // namespace autopar::import_json_test
