// Damaged and hostile files: an Error or a graph, never a crash. And, where they are at hand, real
// models: all import with static shapes, in bounded time.
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "autopar/import.hpp"

namespace autopar::import_hostile_test {

namespace {

std::vector<std::string> shared_models() {
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::filesystem::path folder =
      (shared ? std::filesystem::path(shared)
              : std::filesystem::path(AUTOPAR_SOURCE) / ".." / "shared") /
      "data" / "models";
  std::vector<std::string> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".onnx") paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) WARN("skipped: no models in " << folder.string());
  return paths;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string temporary_path() {
  return std::filesystem::temp_directory_path() /
         ("autopar_import_hostile_test_" + std::to_string(getpid()));
}

Result<ImportedModel> import_bytes(const std::string& bytes) {
  const std::string path = temporary_path();
  std::ofstream(path, std::ios::binary) << bytes;
  auto imported = import_model(path);
  std::filesystem::remove(path);
  return imported;
}

// What any file must lead to: a graph that holds together, or an error that names the file and does
// not repeat all of it.
void check_outcome(const Result<ImportedModel>& imported) {
  if (imported) {
    CHECK(verify(imported->graph).ok());
    return;
  }
  const std::string& message = imported.error().message;
  INFO(message);
  CHECK(imported.error().code == ErrorCode::kInput);
  CHECK(message.find(temporary_path()) == 0);
  CHECK(message.size() > temporary_path().size() + 5);  // at least "is empty"
  CHECK(message.size() < 2000);
}

// A small model with shape arithmetic, a function, a branch, attributes and weights.
onnx::ModelProto small_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  auto& opset = *model.add_opset_import();
  opset.set_version(18);
  auto& graph = *model.mutable_graph();
  graph.set_name("g");
  auto& input = *graph.add_input();
  input.set_name("x");
  auto* type = input.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  for (const std::int64_t extent : {1, 2, 6, 6}) {
    type->mutable_shape()->add_dim()->set_dim_value(extent);
  }
  const auto tensor = [&](const char* name, int dtype, std::vector<std::int64_t> dims,
                          std::string data) {
    auto& proto = *graph.add_initializer();
    proto.set_name(name);
    proto.set_data_type(dtype);
    for (const std::int64_t extent : dims) proto.add_dims(extent);
    proto.set_raw_data(std::move(data));
  };
  const std::int64_t target[] = {4, 18};
  tensor("w", onnx::TensorProto::FLOAT, {2, 2, 3, 3}, std::string(144, '\1'));
  tensor("target", onnx::TensorProto::INT64, {2},
         std::string(reinterpret_cast<const char*>(target), 16));
  const auto node = [&](const char* op, std::vector<const char*> inputs, const char* output) {
    auto& proto = *graph.add_node();
    proto.set_op_type(op);
    for (const char* name : inputs) proto.add_input(name);
    proto.add_output(output);
    return &proto;
  };
  const auto ints = [](onnx::NodeProto* proto, const char* name, std::vector<std::int64_t> values) {
    auto& attribute = *proto->add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INTS);
    for (const std::int64_t value : values) attribute.add_ints(value);
  };
  onnx::NodeProto* conv = node("Conv", {"x", "w"}, "c");
  ints(conv, "strides", {1, 1});
  ints(conv, "pads", {1, 1, 1, 1});
  ints(node("Transpose", {"c"}, "t"), "perm", {0, 2, 3, 1});
  node("Shape", {"t"}, "s");
  node("Expand", {"t", "s"}, "e");
  node("Slice", {"e", "target", "target"}, "unused");
  node("Reshape", {"e", "target"}, "r");
  node("ReduceSum", {"r"}, "sum");
  node("TopK", {"r", "target"}, "unused2");
  graph.mutable_node()->RemoveLast();
  graph.add_output()->set_name("r");
  graph.add_output()->set_name("sum");
  return model;
}

void mutate(onnx::ModelProto& model, std::mt19937& random) {
  static const std::int64_t kOdd[] = {0,
                                      -1,
                                      1,
                                      2,
                                      -2,
                                      7,
                                      std::int64_t{1} << 31,
                                      std::int64_t{1} << 62,
                                      std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min()};
  static const char* const kTypes[] = {
      "Conv",          "MaxPool", "Gather", "Split", "Tile",     "Pad",    "Concat",      "Resize",
      "ConvTranspose", "Range",   "Slice",  "If",    "Constant", "Einsum", "DepthToSpace"};
  auto& graph = *model.mutable_graph();
  const auto pick = [&](int size) {
    return static_cast<int>(random() % static_cast<unsigned>(size));
  };
  const auto odd = [&] { return kOdd[pick(std::size(kOdd))]; };
  auto& node = *graph.mutable_node(pick(graph.node_size()));
  auto& tensor = *graph.mutable_initializer(pick(graph.initializer_size()));
  switch (pick(6)) {
    case 0:
      for (auto& attribute : *node.mutable_attribute()) attribute.set_ints(0, odd());
      break;
    case 1: {
      const std::int64_t value = odd();
      tensor.mutable_raw_data()->replace(8, 8, reinterpret_cast<const char*>(&value), 8);
      break;
    }
    case 2:
      tensor.set_dims(0, odd());
      break;
    case 3:
      node.set_op_type(kTypes[pick(std::size(kTypes))]);
      break;
    case 4:
      node.add_input(graph.node(pick(graph.node_size())).output(0));
      break;
    case 5:
      graph.mutable_input(0)
          ->mutable_type()
          ->mutable_tensor_type()
          ->mutable_shape()
          ->mutable_dim(pick(4))
          ->set_dim_value(odd());
      break;
  }
}

}  // namespace

TEST_CASE("files that are no models", "[import]") {
  CHECK_FALSE(import_model("/nonexistent/model.onnx").ok());
  CHECK_FALSE(import_model(std::filesystem::temp_directory_path().string()).ok());
  for (const std::string bytes : {"", " ", "{", "[]", "hello", "\x08\x08", "{}"}) {
    const auto imported = import_bytes(bytes);
    CHECK_FALSE(imported.ok());
  }
}

TEST_CASE("damaged bytes", "[import]") {
  const std::string bytes = small_model().SerializeAsString();
  REQUIRE(import_bytes(bytes).ok());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    const auto imported = import_bytes(bytes.substr(0, size));
    CHECK_FALSE(imported.ok());
    check_outcome(imported);
  }
  int accepted = 0, changed = 0;
  const std::string original = to_text(import_bytes(bytes)->graph);
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string damaged = bytes;
    for (unsigned flips = random() % 4 + 1; flips > 0; --flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const auto imported = import_bytes(damaged);
    check_outcome(imported);
    accepted += imported.ok();
    changed += imported && to_text(imported->graph) != original;
  }
  // Weights and names may be anything; the rest has to fit together.
  CHECK(accepted > 40);
  CHECK(accepted < 400);
  CHECK(changed > 3);
}

TEST_CASE("well-formed files with absurd numbers", "[import]") {
  int accepted = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    onnx::ModelProto model = small_model();
    for (unsigned count = random() % 3 + 1; count > 0; --count) mutate(model, random);
    CAPTURE(seed);
    const auto imported = import_bytes(model.SerializeAsString());
    accepted += imported.ok();
    check_outcome(imported);
  }
  CHECK(accepted > 0);
  CHECK(accepted < 500);
}

TEST_CASE("functions that multiply without end", "[import]") {
  onnx::ModelProto model = small_model();
  auto& opset = *model.add_opset_import();
  opset.set_domain("local");
  opset.set_version(1);
  constexpr int kDepth = 8;
  constexpr int kCalls = 10;  // of the next function, one after the other: 10^8 ops in all
  for (int level = 0; level < kDepth; ++level) {
    auto& function = *model.add_functions();
    function.set_domain("local");
    function.set_name("F" + std::to_string(level));
    *function.add_opset_import() = model.opset_import(0);
    *function.add_opset_import() = opset;
    function.add_input("v0");
    function.add_output("v" + std::to_string(kCalls));
    const bool last = level == kDepth - 1;
    for (int call = 0; call < kCalls; ++call) {
      auto& node = *function.add_node();
      if (!last) node.set_domain("local");
      node.set_op_type(last ? "Identity" : "F" + std::to_string(level + 1));
      node.add_input("v" + std::to_string(call));
      node.add_output("v" + std::to_string(call + 1));
    }
  }
  auto& call = *model.mutable_graph()->add_node();
  call.set_domain("local");
  call.set_op_type("F0");
  call.add_input("x");
  call.add_output("y");
  const auto imported = import_bytes(model.SerializeAsString());
  REQUIRE_FALSE(imported.ok());
  CHECK(imported.error().message.find("after its functions are inlined") != std::string::npos);
}

TEST_CASE("real models import", "[import]") {
  for (const std::string& path : shared_models()) {
    const std::string name = std::filesystem::path(path).stem().string();
    INFO(name);
    const auto start = std::chrono::steady_clock::now();
    const auto imported = import_model(path);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(seconds < 20);  // generous: also under sanitizers on a busy machine
    if (name == "ctl_if") {
      REQUIRE_FALSE(imported.ok());
      CHECK(imported.error().message.find("data-dependent control flow") != std::string::npos);
      continue;
    }
    INFO((imported ? "" : imported.error().message));
    REQUIRE(imported.ok());
    CHECK(verify(imported->graph).ok());
    CHECK_FALSE(imported->graph.ops.empty());
    if (std::filesystem::file_size(path) > 100'000) continue;
    const auto same = import_model(path);
    CHECK((same && to_text(same->graph) == to_text(imported->graph)));
  }
}

TEST_CASE("real models cut off", "[import]") {
  for (const std::string& path : shared_models()) {
    if (std::filesystem::file_size(path) > 100'000) continue;
    const std::string bytes = bytes_of(path);
    for (int part = 0; part < 40; ++part) {
      CAPTURE(path, part);
      const auto imported = import_bytes(bytes.substr(0, bytes.size() * part / 40));
      CHECK_FALSE(imported.ok());
      check_outcome(imported);
    }
  }
}

}  // namespace autopar::import_hostile_test
