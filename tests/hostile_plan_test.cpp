// Models and plans whose numbers and names are made to do harm: an Error that names the file.
#include <onnx/onnx_pb.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/weights.hpp"
#include "folder.hpp"
#include "strategies.hpp"

namespace autopar::hostile_plan_test {

using namespace testing;

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

onnx::ModelProto parsed(const std::string& path) {
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(read_file(path).value()));
  return model;
}

void write(const onnx::ModelProto& model, const std::string& path) {
  REQUIRE(write_file_atomically(path, model.SerializeAsString()).ok());
}

// y = x w, with the weight in `location` at `offset`.
Graph graph_with_data(const std::string& location, std::int64_t offset) {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4});
  const ValueId w = b.weight("w", {4, 4});
  b.graph.value(w).data = ExternalData{location, offset, 64};
  b.graph.outputs = {b.op("MatMul", {x, w}, {4, 4})};
  return b.graph;
}

Plan plan_of(const Graph& graph) {
  const Cluster cluster = cluster_of({2});
  const Mesh mesh = make_mesh(cluster, {2}).value();
  const GraphRules rules = rules_of(graph).value();
  const std::vector<std::vector<std::string>> split(graph.ops.size(), {"k"});
  return partition(graph, rules, named_strategy(graph, rules, mesh, split), cluster).value();
}

const PlanMetadata kMetadata = {AUTOPAR_VERSION, "m-sha", "s-sha", {"nvlink"}};

void set_property(onnx::ModelProto& model, const std::string& key, const std::string& value) {
  for (auto& entry : *model.mutable_metadata_props()) {
    if (entry.key() == key) entry.set_value(value);
  }
}

template <class T>
void check_refused(const Result<T>& result, const std::string& file, const std::string& why) {
  REQUIRE(!result.ok());
  INFO(result.error().message);
  CHECK(result.error().code == ErrorCode::kInput);
  CHECK(result.error().message.find(file) != std::string::npos);
  CHECK(result.error().message.find(why) != std::string::npos);
}

}  // namespace

TEST_CASE("meshes of more axes than there can be are refused", "[hostile]") {
  const Folder folder;
  const Plan plan = plan_of(two_matmuls());
  REQUIRE(write_plan(plan, kMetadata, folder / "plan.onnx").ok());
  std::string axes = R"({"name": "nvlink", "size": 2, "tier": "nvlink"})";
  std::string names = "nvlink";
  for (int i = 0; i < 40; ++i) {
    const std::string name = "a" + std::to_string(i);
    axes += ", {\"name\": \"" + name + "\", \"size\": 1}";
    names += "," + name;
    onnx::ModelProto model = parsed(folder / "plan.onnx");
    set_property(model, "autopar.mesh", "[" + axes + "]");
    std::string io = "{";
    for (const auto* boundary : {&plan.inputs, &plan.outputs}) {
      for (const BoundaryValue& value : *boundary) {
        std::string shape = "[", dims = "[";
        for (std::size_t d = 0; d < value.shape.size(); ++d) {
          shape += (d > 0 ? "," : "") + std::to_string(value.shape[d]);
          dims += d > 0 ? ",{}" : "{" + names + "}";
        }
        io += (io.size() > 1 ? ", \"" : "\"") + value.name + "\": {\"shape\": " + shape +
              "], \"spec\": \"" + dims + "]\"}";
      }
    }
    set_property(model, "autopar.io", io + "}");
    write(model, folder / "bad.onnx");
    CAPTURE(i);
    if (i + 2 > kMaxMeshAxes) {
      check_refused(read_plan(folder / "bad.onnx"), "bad.onnx", "1 to 20 axes");
    } else {
      CHECK(!read_plan(folder / "bad.onnx").ok());  // the layouts are not those of the program
    }
  }
}

TEST_CASE("collectives with absurd numbers are refused", "[hostile]") {
  const Folder folder;
  REQUIRE(write_plan(plan_of(two_matmuls()), kMetadata, folder / "plan.onnx").ok());
  const onnx::ModelProto good = parsed(folder / "plan.onnx");
  int tried = 0;
  for (const std::string type : {"AllGather", "AllToAll", "ReduceScatter", "ShardSlice"}) {
    for (int n = 0; n < good.graph().node_size(); ++n) {
      if (good.graph().node(n).domain() != "ai.autopar") continue;
      for (const std::int64_t number :
           {std::int64_t{1} << 32, std::int64_t{1} << 62, kMost, -kMost, std::int64_t{-1}}) {
        for (const std::string name : {"axis", "split_axis", "concat_axis", "group_size"}) {
          onnx::ModelProto bad = good;
          auto& node = *bad.mutable_graph()->mutable_node(n);
          node.set_op_type(type);
          for (const std::string axis : {"axis", "split_axis", "concat_axis"}) {
            auto& attribute = *node.add_attribute();
            attribute.set_name(axis);
            attribute.set_type(onnx::AttributeProto::INT);
            attribute.set_i(0);
          }
          for (auto& attribute : *node.mutable_attribute()) {
            if (attribute.name() == name) attribute.set_i(number);
          }
          write(bad, folder / "bad.onnx");
          const auto read = read_plan(folder / "bad.onnx");
          const bool is_read = name == "group_size" || (type == "AllToAll") != (name == "axis");
          CAPTURE(type, name, number);
          ++tried;
          if (is_read) CHECK(!read.ok());
        }
      }
      break;
    }
  }
  CHECK(tried > 50);
}

TEST_CASE("external data behind the end of all files is refused by every reader", "[hostile]") {
  const Folder folder;
  REQUIRE(write_file_atomically(folder / "w.bin", std::string(64, 'w')).ok());
  REQUIRE(write_graph_onnx(graph_with_data("w.bin", 0), folder / "model.onnx").ok());
  REQUIRE(write_plan(plan_of(graph_with_data("w.bin", 0)), kMetadata, folder / "plan.onnx").ok());
  for (const char* name : {"model.onnx", "plan.onnx"}) {
    for (const std::int64_t offset : {kMost, kMost - 63, kMost - 64, std::int64_t{1} << 62}) {
      onnx::ModelProto model = parsed(folder / name);
      for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
        for (auto& entry : *tensor.mutable_external_data()) {
          if (entry.key() == "offset") entry.set_value(std::to_string(offset));
        }
      }
      const std::string bad = folder / ("bad_" + std::string(name));
      write(model, bad);
      CAPTURE(name, offset);
      const bool overflows = offset > kMost - 64;
      if (name == std::string("plan.onnx")) {
        const auto plan = read_plan(bad);
        if (overflows) {
          check_refused(plan, bad, "external data at byte");
        } else {
          REQUIRE(plan.ok());
          check_refused(map_weights(*plan, bad, 0), "w.bin", "ends at byte 64");
        }
      } else {
        const auto imported = import_model(bad);
        const auto initializers = initializers_of(bad);
        CHECK(imported.ok() == !overflows);
        CHECK(initializers.ok() == !overflows);
        if (overflows) check_refused(imported, bad, "external data at byte");
        if (overflows) check_refused(initializers, bad, "external data at byte");
      }
    }
  }
}

TEST_CASE("links lead to data in the model's folder only", "[hostile]") {
  const Folder folder;
  fs::create_directories(folder / "model/data");
  fs::create_directories(folder / "elsewhere");
  REQUIRE(write_file_atomically(folder / "elsewhere/secret", std::string(64, 's')).ok());
  REQUIRE(write_file_atomically(folder / "model/real.bin", std::string(64, 'w')).ok());
  const std::string path = folder / "model/model.onnx";
  const auto with_data = [&](const std::string& location) {
    REQUIRE(write_graph_onnx(graph_with_data(location, 0), path).ok());
  };
  fs::create_symlink("../elsewhere/secret", folder / "model/w.bin");
  fs::create_symlink("../real.bin", folder / "model/data/w.bin");
  fs::create_symlink("../elsewhere", folder / "model/folder");

  for (const char* location : {"w.bin", "./w.bin", "folder/secret"}) {
    CAPTURE(location);
    with_data(location);
    check_refused(import_model(path), "model.onnx", "external data location");
    check_refused(initializers_of(path), "model.onnx", "external data location");
  }
  with_data("w.bin");
  check_refused(import_model(path), "model.onnx", "is a link to");
  for (const char* location : {"data/w.bin", "real.bin", "absent.bin"}) {
    CAPTURE(location);
    with_data(location);
    CHECK(import_model(path).ok());
  }

  // A plan, too: its weights are mapped into memory.
  REQUIRE(
      write_plan(plan_of(graph_with_data("w.bin", 0)), kMetadata, folder / "model/plan.onnx").ok());
  check_refused(read_plan(folder / "model/plan.onnx"), "plan.onnx", "is a link to");

  // As hubs of models keep them: links to one folder, in which the model itself lies as well.
  fs::create_directories(folder / "hub/blobs");
  fs::create_directories(folder / "hub/snapshot");
  with_data("w.bin");
  fs::copy(path, folder / "hub/blobs/aa");
  fs::copy(folder / "model/real.bin", folder / "hub/blobs/bb");
  fs::create_symlink("../blobs/aa", folder / "hub/snapshot/model.onnx");
  fs::create_symlink("../blobs/bb", folder / "hub/snapshot/w.bin");
  CHECK(import_model(folder / "hub/snapshot/model.onnx").ok());
}

}  // namespace autopar::hostile_plan_test
