// For tests: plans written by hand in a folder, the request that runs them on ranks that are
// threads, and what its report must say.
#pragma once

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "autopar/exec.hpp"
#include "meshes.hpp"

namespace autopar::testing::plans_by_hand {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "autopar-exec-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  fs::path path;
};

struct Io {
  std::string name;
  DType dtype;
  Shape shape;
  std::string spec;
};

inline std::vector<BoundaryValue> boundary(const std::vector<Io>& values, const Mesh& mesh) {
  std::vector<BoundaryValue> result;
  for (const Io& v : values) {
    const auto spec = parse_spec(v.spec, mesh);
    REQUIRE(spec);
    result.push_back({v.name, v.dtype, v.shape, *spec});
  }
  return result;
}

inline std::string json(const std::vector<std::int64_t>& values) { return to_text(Shape(values)); }

// metadata_props["autopar.io"], which the independent executor reads.
inline std::string io_text(const std::vector<BoundaryValue>& values, const Mesh& mesh) {
  std::string text;
  for (const BoundaryValue& v : values) {
    std::string map;
    for (const auto& axes : tensor_map(v.spec, mesh)) {
      map += (map.empty() ? "" : ",") +
             (axes.empty() ? "-1" : json(std::vector<std::int64_t>(axes.begin(), axes.end())));
    }
    text += (text.empty() ? "\"" : ", \"") + v.name + "\": {\"shape\": " + json(v.shape) +
            ", \"device_matrix\": " + json(mesh.sizes()) + ", \"tensor_map\": [" + map + "]}";
  }
  return text;
}

inline constexpr const char* kHead =
    "<ir_version: 10, opset_import: [\"\" : 18, \"ai.autopar\" : 1]>\n";

inline void save(const std::string& path, const std::string& body, const std::string& io = "") {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, (kHead + body).c_str());
  INFO(status.ErrorMessage());
  REQUIRE(status.IsOK());
  if (!io.empty()) {
    auto* entry = model.add_metadata_props();
    entry->set_key("autopar.io");
    entry->set_value("{" + io + "}");
  }
  std::ofstream file(path, std::ios::binary);
  REQUIRE(model.SerializeToOstream(&file));
}

// A plan and its model in a folder, with the request that runs them.
struct Case {
  Case(const std::vector<std::int64_t>& sizes, const std::vector<Io>& inputs,
       const std::vector<Io>& outputs, const std::string& plan, const std::string& model = "") {
    request.programs.resize(1);
    program().mesh = mesh_of(sizes);
    program().inputs = boundary(inputs, program().mesh);
    program().outputs = boundary(outputs, program().mesh);
    program().path = folder.file("plan.onnx");
    request.threads = 2;
    std::vector<BoundaryValue> all = program().inputs;
    all.insert(all.end(), program().outputs.begin(), program().outputs.end());
    save(program().path, plan, io_text(all, program().mesh));
    if (model.empty()) return;
    request.model_path = folder.file("model.onnx");
    save(request.model_path, model);
  }
  RunProgram& program() { return request.programs[0]; }
  const RunProgram& program() const { return request.programs[0]; }
  Folder folder;
  RunRequest request;
};

inline const OutputComparison& only(const RunReport& report) {
  REQUIRE(report.outputs.size() == 1);
  return report.outputs[0];
}

inline const TimedKind* timed(const RunReport& report, const std::string& kind) {
  for (const TimedKind& t : report.times) {
    if (t.kind == kind) return &t;
  }
  return nullptr;
}

inline void check_passed(const Result<RunReport>& report) {
  if (!report) FAIL(report.error().message);
  for (const OutputComparison& output : report->outputs) {
    CAPTURE(output.name, output.problem);
    CHECK(output.matches);
  }
  CHECK(report->passed);
}

inline void check_failed(const Result<RunReport>& report, ErrorCode code,
                         const std::vector<std::string>& parts) {
  REQUIRE(!report);
  const std::string& text = report.error().message;
  INFO(text);
  CHECK(report.error().code == code);
  for (const std::string& part : parts) {
    CAPTURE(text, part);
    CHECK(text.find(part) != std::string::npos);
  }
}

// Column-split then row-split weights on axis b, the batch on axis a.
inline Case mlp(std::int64_t a, std::int64_t b) {
  std::string groups;
  for (std::int64_t r = 0; r < a * b; ++r) groups += (r == 0 ? "" : ",") + std::to_string(r);
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  return Case({a, b},
              {{"X", DType::kFloat32, {12, 8}, a == 1 ? "[{},{}]" : "[{a},{}]"},
               {"W", DType::kFloat32, {8, 24}, "[{},{b}]"},
               {"V", DType::kFloat32, {24, 6}, "[{b},{}]"}},
              {{"Z", DType::kFloat32, {12, 6}, "[{a},{}]"}},
              "g (float[" + n(12 / a) + ",8] X, float[8," + n(24 / b) + "] W, float[" + n(24 / b) +
                  ",6] V) => (float[" + n(12 / a) +
                  ",6] Z) {\n"
                  "  h = MatMul(X, W)\n  r = Relu(h)\n  p = MatMul(r, V)\n"
                  "  [sum] Z = ai.autopar.AllReduce <groups: ints = [" +
                  groups + "], group_size: int = " + n(b) +
                  ", seq: int = 0, reduce_op: string = \"sum\">(p)\n}",
              "g (float[12,8] X, float[8,24] W, float[24,6] V) => (float[12,6] Z) {\n"
              "  h = MatMul(X, W)\n  r = Relu(h)\n  Z = MatMul(r, V)\n}");
}

// One collective between X and Y; `attributes` besides groups, group_size and seq.
inline std::string one_collective(const std::string& op, const std::string& type, const Shape& in,
                                  const Shape& out, const std::string& groups,
                                  std::int64_t group_size, const std::string& attributes) {
  const auto dims = [](const Shape& shape) { return to_text(shape); };
  return "g (" + type + dims(in) + " X) => (" + type + dims(out) + " Y) {\n  [c] Y = ai.autopar." +
         op + " <groups: ints = [" + groups + "], group_size: int = " + std::to_string(group_size) +
         ", seq: int = 0" + (attributes.empty() ? "" : ", " + attributes) + ">(X)\n}";
}

inline std::string identity(const std::string& type, const Shape& shape) {
  return "g (" + type + to_text(shape) + " X) => (" + type + to_text(shape) +
         " Y) { Y = Identity(X) }";
}

}  // namespace autopar::testing::plans_by_hand
