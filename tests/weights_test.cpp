// Weights in files: cut, put together and cut anew, against element by element; what does not fit
// is refused and leaves nothing behind.
#include "autopar/weights.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "autopar/files.hpp"
#include "folder.hpp"
#include "strategies.hpp"
#include "weights/safetensors.hpp"
#include "weights/tensors.hpp"

namespace autopar::weights_test {

using namespace testing;

namespace fs = std::filesystem;

namespace {

Tensor random_tensor(DType dtype, const Shape& shape, Random& random) {
  Tensor tensor{dtype, shape,
                std::string(static_cast<std::size_t>(element_count(shape) * size_of(dtype)), '\0')};
  for (char& byte : tensor.bytes) {
    byte = static_cast<char>(dtype == DType::kBool ? random() % 2 : random() % 256);
  }
  return tensor;
}

// A block of a tensor, element by element.
std::string block_of(const Tensor& whole, const Box& box) {
  const auto element = static_cast<std::size_t>(size_of(whole.dtype));
  std::string bytes;
  for (std::int64_t i = 0; i < element_count(box.extent); ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = whole.shape.size(); d-- > 0;) {
      at += (box.offset[d] + rest % box.extent[d]) * stride;
      rest /= box.extent[d];
      stride *= whole.shape[d];
    }
    bytes += whole.bytes.substr(static_cast<std::size_t>(at) * element, element);
  }
  return bytes;
}

Mesh mesh_of(const std::vector<std::int64_t>& tiers, const std::vector<std::int64_t>& sizes) {
  return make_mesh(cluster_of(tiers), sizes).value();
}

std::vector<Box> distinct_boxes(const BoundaryValue& value, const Mesh& mesh) {
  std::map<Box, bool> boxes;
  for (std::int64_t r = 0; r < mesh.size(); ++r) boxes[box_of(value, mesh, r)] = true;
  std::vector<Box> result;
  for (const auto& entry : boxes) result.push_back(entry.first);
  return result;
}

struct TypedShape {
  DType dtype;
  Shape shape;
};
const std::vector<TypedShape> kTensors = {
    {DType::kFloat32, {24, 36}}, {DType::kFloat16, {12, 4, 18}},
    {DType::kBFloat16, {24}},    {DType::kInt64, {2, 36, 2, 6}},
    {DType::kBool, {36, 12}},    {DType::kFloat64, {}},
    {DType::kInt8, {1, 72}},     {DType::kUInt16, {0}},
    {DType::kFloat32, {720}},    {DType::kInt64, {1}}};

}  // namespace

TEST_CASE("cuts of cuts are the elements that they should be") {
  const Folder folder;
  Random random(7);
  const Mesh from = mesh_of({3, 2, 2}, {2, 2, 3}), to = mesh_of({4, 3}, {3, 2, 2});
  for (int round = 0; round < 120; ++round) {
    const TypedShape& row = kTensors[static_cast<std::size_t>(round) % kTensors.size()];
    const Tensor whole = random_tensor(row.dtype, row.shape, random);
    const BoundaryValue a{"w", row.dtype, row.shape, random_spec(row.shape, from, random)};
    const BoundaryValue b{"w", row.dtype, row.shape, random_spec(row.shape, to, random)};
    StoredTensor stored{"w", row.dtype, row.shape};
    std::string file = "some bytes before";
    for (const Box& box : distinct_boxes(a, from)) {
      stored.pieces.push_back(
          {box, {{.path = folder / "file", .offset = static_cast<Bytes>(file.size())}}});
      file += block_of(whole, box);
    }
    folder.write("file", file);
    const std::vector<Box> boxes = distinct_boxes(b, to);
    std::vector<std::string> found(boxes.size());
    // From one element per block to all at once.
    const Bytes buffer = Bytes{8} << random() % 12;
    const Status done = cut(
        stored, boxes,
        [&](std::size_t box, Bytes at, std::string_view bytes) -> Status {
          REQUIRE(at == static_cast<Bytes>(found[box].size()));
          found[box] += bytes;
          return Ok{};
        },
        buffer);
    INFO(round << ": " << to_text(a.spec, from) << " -> " << to_text(b.spec, to));
    REQUIRE(done.ok());
    for (std::size_t i = 0; i < boxes.size(); ++i) CHECK(found[i] == block_of(whole, boxes[i]));
  }
}

TEST_CASE("pieces that do not cover a tensor are refused") {
  const std::string bytes(32, 'x');
  const StoredTensor half{
      "w", DType::kFloat32, {4, 4}, {{{{0, 0}, {2, 4}}, {{.memory = bytes.data()}}}}};
  const auto tensor = read_tensor(half);
  REQUIRE(!tensor.ok());
  CHECK(tensor.error().message.find("'w' [4,4]: its slices do not cover it") != std::string::npos);
}

TEST_CASE("safetensors heads") {
  const Folder folder;
  const SafetensorsLayout layout =
      layout_safetensors(
          {{"b", DType::kFloat16, {3}}, {"a", DType::kInt64, {2, 1}}, {"c\"", DType::kBool, {}}},
          {{"key", "value"}})
          .value();
  CHECK(layout.head.size() % 8 == 0);
  CHECK(layout.head.substr(8, 30) == R"({"__metadata__":{"key":"value")");
  REQUIRE(layout.entries.size() == 3);  // the largest elements first
  CHECK(layout.entries[0].name == "a");
  CHECK(layout.entries[1].offset == static_cast<Bytes>(layout.head.size()) + 16);
  CHECK(layout.size == static_cast<Bytes>(layout.head.size()) + 16 + 6 + 1);
  const std::string good = layout.head + std::string(23, 'd');
  const SafetensorsFile file = read_safetensors(folder.write("good", good)).value();
  CHECK(file.metadata.at("key") == "value");
  REQUIRE(file.entries.size() == 3);
  CHECK(file.entries[2].name == "c\"");
  CHECK(file.entries[2].offset == layout.entries[2].offset);

  const auto with = [&](const std::string& header) {
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size());
    return read_safetensors(folder.write("bad", text + header + "1234"));
  };
  CHECK(with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})").ok());
  const std::pair<const char*, const char*> bad[] = {
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "takes 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "behind the end"},
      {R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", "\"F4\" is not supported"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "expected a shape"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "no dtype"},
      {R"({"a":1})", "no dtype"},
      {R"([1])", "not a JSON object"},
      {R"({"a":{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,4]}})", "takes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "takes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[2305843009213693948,2305843009213693952]}})",
       "behind the end"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[9223372036854775804,9223372036854775808]}})",
       "expected a shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "its data_offsets give -4"}};
  for (const auto& [header, message] : bad) {
    const auto refused = with(header);
    INFO(header);
    REQUIRE(!refused.ok());
    CHECK(refused.error().message.find(message) != std::string::npos);
  }
  for (std::size_t size : {0, 7, 8, 40})
    CHECK(!read_safetensors(folder.write("cut", good.substr(0, size))).ok());
}

namespace {

// Every tensor through an op of its own; one is read twice.
Graph weights_graph(std::map<std::string, Tensor>& tensors, bool with_empty, Random& random) {
  GraphWriter b;
  b.graph.name = "weights";
  b.input("x", {4});
  std::vector<ValueId> outputs;
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    const auto& [dtype, shape] = kTensors[i];
    if (element_count(shape) == 0 && !with_empty) continue;
    const std::string name = "w" + std::to_string(i);
    tensors[name] = random_tensor(dtype, shape, random);
    const ValueId weight = b.graph.add_value({.name = name,
                                              .dtype = dtype,
                                              .shape = shape,
                                              .kind = ValueKind::kParameter,
                                              .producer = {},
                                              .data = tensors[name]});
    for (std::size_t reader = 0; reader <= i % 2; ++reader) {
      const ValueId out = b.op("Identity", {weight}, shape);
      b.graph.value(out).dtype = dtype;
      outputs.push_back(out);
    }
  }
  b.graph.outputs = outputs;
  return b.graph;
}

Plan random_plan(const Graph& graph, const std::vector<std::int64_t>& tiers,
                 const std::vector<std::int64_t>& sizes, Random& random) {
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of(tiers);
  const Mesh mesh = make_mesh(cluster, sizes).value();
  return partition(graph, rules, random_strategy(graph, rules, mesh, random), cluster).value();
}

PlanMetadata metadata_of() { return {AUTOPAR_VERSION, "m-sha", "s-sha", {"nvlink", "ib", "pod"}}; }

void write_referenced(const Plan& plan, const std::string& folder) {
  PlanMetadata metadata = metadata_of();
  metadata.weights = "referenced";
  metadata.weights_io = weights_of(plan);
  const auto written = write_plan(plan, metadata, folder + "/plan.onnx");
  INFO((written.ok() ? "" : written.error().message));
  REQUIRE(written.ok());
}

void write_ranks(const Plan& plan, const std::string& folder) {
  const auto written = write_sharded_plan(plan, metadata_of(), folder, ".");
  INFO((written.ok() ? "" : written.error().message));
  REQUIRE(written.ok());
}

// The lines of a program; a plan that is read has its initializers first.
std::vector<std::string> lines_of(const std::string& plan) {
  std::istringstream text(to_text(read_plan(plan).value().plan.program));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// What below a folder is not as it is in another one.
std::string differences(const std::string& a, const std::string& b) {
  std::string names;
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      if (!entry.is_regular_file()) continue;
      const std::string other = fs::path(to) / fs::relative(entry.path(), from);
      const bool is_plan = entry.path().filename() == "plan.onnx";
      const bool same = fs::exists(other) &&
                        (is_plan ? lines_of(entry.path()) == lines_of(other)
                                 : read_file(entry.path()).value() == read_file(other).value());
      if (!same) names += entry.path().string() + " ";
    }
  }
  return names;
}

std::size_t files_below(const std::string& folder) {
  const fs::recursive_directory_iterator files(folder);
  return static_cast<std::size_t>(std::count_if(
      fs::begin(files), fs::end(files), [](const auto& entry) { return entry.is_regular_file(); }));
}

}  // namespace

TEST_CASE("every rank's files hold its slices and its program reads them") {
  Random random(3);
  for (int round = 0; round < 6; ++round) {
    const Folder folder;
    std::map<std::string, Tensor> tensors;
    // On one axis no reshard passes through a Reshape, in which 0 has a meaning of its own.
    const bool one_axis = round % 3 == 0;
    const Graph graph = weights_graph(tensors, one_axis, random);
    const Plan plan = one_axis ? random_plan(graph, {12}, {12}, random)
                               : random_plan(graph, {3, 2, 2}, {2, 2, 3}, random);
    write_ranks(plan, folder / "plan");
    const PlanFile file = read_plan(folder / "plan/plan.onnx").value();
    CHECK(file.metadata.weights == "sharded");
    CHECK(file.metadata.weights_io.size() == tensors.size());
    // Only what several read whole is sliced at run time.
    const auto uses = uses_of(file.plan.program);
    for (const Op& op : file.plan.program.ops) {
      if (op.type != "ShardSlice") continue;
      const bool is_weight = file.plan.program.value(op.inputs[0]).kind == ValueKind::kParameter;
      CHECK((!is_weight || uses[op.inputs[0].index()].size() > 1));
    }
    const std::string path = folder / "plan/rank00002/plan.onnx";
    CHECK(read_file(path).value() == read_file(folder / "plan/rank00000/plan.onnx").value());
    const PlanFile of_rank = read_plan(path).value();
    std::size_t cut_weights = 0;
    for (std::int64_t rank = 0; rank < 12; ++rank) {
      const MappedWeights mapped = map_weights(of_rank, path, rank).value();
      for (const BoundaryValue& weight : file.metadata.weights_io) {
        const std::string expected =
            block_of(tensors[weight.name], box_of(weight, file.plan.mesh, rank));
        if (const auto found = mapped.initializers.find(weight.name);
            found != mapped.initializers.end()) {
          const MappedTensor& tensor = found->second;
          CHECK(std::string(static_cast<const char*>(tensor.data),
                            static_cast<std::size_t>(tensor.bytes)) == expected);
          cut_weights += !is_replicated(weight.spec);
        } else {
          CHECK(expected.size() <= static_cast<std::size_t>(kInlineWeightBytes));
        }
      }
    }
    CHECK(cut_weights > 0);
  }
}

TEST_CASE("what is resharded is what would have been written at once, and merges to the whole") {
  Random random(5);
  for (int round = 0; round < 6; ++round) {
    const Folder folder;
    std::map<std::string, Tensor> tensors;
    const Graph graph = weights_graph(tensors, false, random);
    const Plan a = random_plan(graph, {3, 2, 2}, {2, 2, 3}, random);
    const Plan b = random_plan(graph, {6, 3}, {3, 3, 2}, random);
    write_ranks(a, folder / "a");
    write_ranks(b, folder / "b");
    write_referenced(b, folder / "b_whole");
    for (const char* to : {"/b", "/b_whole"}) {
      const auto moved = reshard_weights(folder / "a", folder / to, folder / "out");
      INFO((moved.ok() ? "" : moved.error().message));
      REQUIRE(moved.ok());
      CHECK(moved->warnings.empty());
      CHECK(moved->weights == tensors.size());
      CHECK(differences(folder / "out", folder / "b") == "");
      fs::remove_all(folder / "out");
    }
    REQUIRE(merge_weights(folder / "a", folder / "whole.safetensors").ok());
    const SafetensorsFile whole = read_safetensors(folder / "whole.safetensors").value();
    const std::string bytes = read_file(folder / "whole.safetensors").value();
    REQUIRE(whole.entries.size() == tensors.size());
    for (const SafetensorsEntry& entry : whole.entries) {
      const Tensor& tensor = tensors[entry.name];
      CHECK(entry.shape == tensor.shape);
      CHECK(bytes.substr(static_cast<std::size_t>(entry.offset), tensor.bytes.size()) ==
            tensor.bytes);
    }
    // From whole weights, and from a plan that has them.
    for (const char* from : {"/whole.safetensors", "/b_whole"}) {
      REQUIRE(reshard_weights(folder / from, folder / "b_whole", folder / "out").ok());
      CHECK(differences(folder / "out", folder / "b") == "");
      fs::remove_all(folder / "out");
    }
  }
}

TEST_CASE("ranks that differ, files that are missing, weights that do not fit") {
  const Folder folder;
  Random random(11);
  GraphWriter b;
  const ValueId x = b.input("x", {8, 64});
  const ValueId w = b.weight("w", {64, 64});
  b.graph.outputs = {b.op("MatMul", {x, w}, {8, 64}, {}, "fc")};
  const GraphRules rules = rules_of(b.graph).value();
  const Cluster cluster = cluster_of({4});
  const Mesh mesh = make_mesh(cluster, {2, 2}).value();
  // Ranks 0 and 2 hold the same half of w.
  Plan plan;
  do {
    plan =
        partition(b.graph, rules, random_strategy(b.graph, rules, mesh, random), cluster).value();
  } while (to_text(weights_of(plan)[0].spec, mesh) != "[{},{nvlink_1}]");
  write_ranks(plan, folder / "a");
  const std::string path = folder / "a/rank00002/weights.safetensors";
  const std::string good = read_file(path).value();
  REQUIRE(merge_weights(folder / "a", folder / "whole.safetensors").ok());

  std::string changed = good;
  changed[changed.size() - 5] ^= 1;
  folder.write("a/rank00002/weights.safetensors", changed);
  const auto differ = merge_weights(folder / "a", folder / "merged.safetensors");
  REQUIRE(!differ.ok());
  CHECK(differ.error().code == ErrorCode::kComparison);
  CHECK(differ.error().message.find("'w': ranks 0 and 2 hold the same slice") != std::string::npos);
  CHECK(!fs::exists(folder / "merged.safetensors"));

  folder.write("a/rank00002/weights.safetensors", good.substr(0, good.size() - 1));
  CHECK(!merge_weights(folder / "a", folder / "merged.safetensors").ok());
  fs::remove(path);
  const auto missing = merge_weights(folder / "a", folder / "merged.safetensors");
  REQUIRE(!missing.ok());
  CHECK(missing.error().message.find("rank00002/weights.safetensors: cannot be read") !=
        std::string::npos);
  folder.write("a/rank00002/weights.safetensors", good);

  // Another shape, another name.
  const std::size_t before = files_below(folder / "a");
  const SafetensorsLayout other =
      layout_safetensors({{"w", DType::kFloat32, {64, 32}}}, {}).value();
  folder.write("other.safetensors", other.head + std::string(64 * 32 * 4, '\0'));
  const auto shape = reshard_weights(folder / "other.safetensors", folder / "a", folder / "out");
  REQUIRE(!shape.ok());
  CHECK(shape.error().message.find("'w' is float32[64,32], the plan expects float32[64,64]") !=
        std::string::npos);
  const SafetensorsLayout named =
      layout_safetensors({{"v", DType::kFloat32, {64, 64}}}, {}).value();
  folder.write("named.safetensors", named.head + std::string(64 * 64 * 4, '\0'));
  const auto name = reshard_weights(folder / "named.safetensors", folder / "a", folder / "out");
  REQUIRE(!name.ok());
  CHECK(name.error().message.find("lacks weights of") != std::string::npos);
  CHECK(name.error().message.find("'w'") != std::string::npos);
  CHECK(!fs::exists(folder / "out"));
  CHECK(files_below(folder / "a") == before);
}

TEST_CASE("weights that cannot be read leave no folder behind") {
  const Folder folder;
  Random random(2);
  GraphWriter b;
  const ValueId x = b.input("x", {8, 64});
  const ValueId w = b.weight("w", {64, 64});
  b.graph.value(w).data = ExternalData{"data.bin", 0, 64 * 64 * 4};
  b.graph.outputs = {b.op("MatMul", {x, w}, {8, 64}, {}, "fc")};
  const Plan plan = random_plan(b.graph, {4}, {4}, random);
  for (std::size_t size : {std::size_t{0}, std::size_t{64 * 64 * 4 - 1}}) {
    if (size > 0) folder.write("data.bin", std::string(size, 'x'));
    const auto written = write_sharded_plan(plan, metadata_of(), folder / "out", folder / "");
    REQUIRE(!written.ok());
    CHECK(written.error().message.find("data.bin: holds weight 'w'") != std::string::npos);
    CHECK(!fs::exists(folder / "out"));
  }
  folder.write("data.bin", std::string(64 * 64 * 4, 'x'));
  folder.write("out", "a file where the folder should be");
  CHECK(!write_sharded_plan(plan, metadata_of(), folder / "out", folder / "").ok());
}

}  // namespace autopar::weights_test
