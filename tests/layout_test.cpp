// Specs: local shapes, slices per rank, validity, text form.
#include "autopar/layout.hpp"

#include <catch2/catch.hpp>
#include <map>

namespace autopar::layout_test {

namespace {

// Axes a, b, c, ... with these sizes, the last one fastest.
Mesh mesh_of(const std::vector<std::int64_t>& sizes) {
  Mesh mesh;
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    mesh.axes.insert(mesh.axes.begin(),
                     {std::string(1, static_cast<char>('a' + i)), sizes[i], 0, stride});
    stride *= sizes[i];
  }
  return mesh;
}

Spec spec_of(const std::string& text, const Mesh& mesh) { return parse_spec(text, mesh).value(); }

}  // namespace

TEST_CASE("the example of the header", "[layout]") {
  const Mesh mesh = mesh_of({2, 4});
  const Spec spec = spec_of("[{a},{b}]", mesh);
  const Shape shape = {64, 256};
  REQUIRE(verify(spec, shape, mesh).ok());
  CHECK(local_shape(spec, shape, mesh) == Shape{32, 64});
  CHECK(slice_offsets(spec, shape, mesh, 5) == std::vector<std::int64_t>{32, 64});
  CHECK(split_counts(spec, mesh) == std::vector<std::int64_t>{2, 4});
  CHECK(tensor_map(spec, mesh) == std::vector<std::vector<int>>{{1}, {0}});
  CHECK(local_bytes(spec, shape, DType::kFloat16, mesh) == 32 * 64 * 2);
}

TEST_CASE("MatMul [[2,1],[1,4]] on 8 devices, as in MindSpore's design document", "[layout]") {
  const Mesh mesh = mesh_of({2, 4});
  const Shape shape = {8, 8};
  const Spec x = spec_of("[{a},{}]", mesh);
  const Spec w = spec_of("[{},{b}]", mesh);
  CHECK(tensor_map(x, mesh) == std::vector<std::vector<int>>{{1}, {}});
  CHECK(tensor_map(w, mesh) == std::vector<std::vector<int>>{{}, {0}});
  for (std::int64_t device = 0; device < 4; ++device) {
    CHECK(slice_offsets(x, shape, mesh, device) == std::vector<std::int64_t>{0, 0});
    CHECK(slice_offsets(x, shape, mesh, device + 4) == std::vector<std::int64_t>{4, 0});
  }
  CHECK(slice_offsets(w, shape, mesh, 0) == slice_offsets(w, shape, mesh, 4));
  CHECK(slice_offsets(w, shape, mesh, 3) == std::vector<std::int64_t>{0, 6});
}

TEST_CASE("the order of axes within a dimension matters", "[layout]") {
  const Mesh mesh = mesh_of({2, 3});
  const Shape shape = {6};
  // Rank r = 3 a + b.
  struct Row {
    const char* text;
    std::vector<std::int64_t> offsets;
  };
  for (const Row& row : std::vector<Row>{{"[{a,b}]", {0, 1, 2, 3, 4, 5}},
                                         {"[{b,a}]", {0, 2, 4, 1, 3, 5}},
                                         {"[{a}]", {0, 0, 0, 3, 3, 3}},
                                         {"[{b}]", {0, 2, 4, 0, 2, 4}},
                                         {"[{}]", {0, 0, 0, 0, 0, 0}}}) {
    INFO(row.text);
    const Spec spec = spec_of(row.text, mesh);
    REQUIRE(verify(spec, shape, mesh).ok());
    for (std::int64_t device = 0; device < 6; ++device) {
      CHECK(slice_offsets(spec, shape, mesh, device) ==
            std::vector<std::int64_t>{row.offsets[static_cast<std::size_t>(device)]});
    }
  }
}

TEST_CASE("slices tile the tensor", "[layout]") {
  const Mesh mesh = mesh_of({2, 3, 2});
  const Shape shape = {12, 6};
  for (const char* text : {"[{c,a},{b}]", "[{b},{a}]", "[{b,c,a},{}]", "[{},{b,c}] +{a}"}) {
    const Spec spec = spec_of(text, mesh);
    REQUIRE(verify(spec, shape, mesh).ok());
    std::map<std::vector<std::int64_t>, int> count;
    for (std::int64_t device = 0; device < 12; ++device) {
      ++count[slice_offsets(spec, shape, mesh, device)];
    }
    const auto counts = split_counts(spec, mesh);
    CHECK(static_cast<std::int64_t>(count.size()) == counts[0] * counts[1]);
    for (const auto& [offsets, devices] : count) {
      CHECK(devices == 12 / (counts[0] * counts[1]));
      CHECK(offsets[0] % local_shape(spec, shape, mesh)[0] == 0);
    }
  }
}

TEST_CASE("texts of specs read back", "[layout]") {
  const Mesh mesh = mesh_of({2, 2, 2});
  for (const char* text : {"[]", "[{}]", "[{a},{b}]", "[{a,b},{}]", "[{b,a},{},{c}]",
                           "[{a}] +{b,c}", "[{},{}] max{a}", "[{c}] min{a,b}", "[] prod{b}"}) {
    INFO(text);
    const Result<Spec> spec = parse_spec(text, mesh);
    REQUIRE(spec.ok());
    CHECK(to_text(*spec, mesh) == text);
  }
  CHECK(to_text(spec_of(" [ { a , b } , { } ]  + { c } ", mesh), mesh) == "[{a,b},{}] +{c}");
  CHECK(to_text(spec_of("[] +{c,a}", mesh), mesh) == "[] +{a,c}");
  CHECK(is_replicated(spec_of("[{},{}]", mesh)));
  CHECK_FALSE(is_replicated(spec_of("[{},{}] +{a}", mesh)));
  CHECK_FALSE(is_replicated(spec_of("[{},{a}]", mesh)));
  CHECK(replicated(2) == spec_of("[{},{}]", mesh));
}

TEST_CASE("texts that are no specs", "[layout]") {
  const Mesh mesh = mesh_of({2, 2});
  for (const char* text :
       {"", "[", "[{a}", "{a}", "[a]", "[{a},]", "[{a},{a}]", "[{a}] +{a}", "[{d}]", "[{a}] +{}",
        "[{a}] +", "[{a}] avg{b}", "[{a}] +{b} x", "[{a}{b}]", "[{a,}]", "[{a}]]"}) {
    INFO(text);
    const Result<Spec> spec = parse_spec(text, mesh);
    REQUIRE_FALSE(spec.ok());
    CHECK(spec.error().message.find("spec '" + std::string(text) + "'") != std::string::npos);
  }
}

TEST_CASE("specs that do not fit", "[layout]") {
  const Mesh mesh = mesh_of({2, 3});
  const auto refuses = [&](const Spec& spec, const Shape& shape, const std::string& part) {
    const Status status = verify(spec, shape, mesh);
    REQUIRE_FALSE(status.ok());
    INFO(status.error().message);
    CHECK(status.error().message.find(part) != std::string::npos);
  };
  refuses({{{0}}, {}, Reduction::kSum}, {3}, "not divisible by 2");
  refuses({{{0, 1}}, {}, Reduction::kSum}, {8}, "not divisible by 6");
  refuses({{{0}, {0}}, {}, Reduction::kSum}, {6, 6}, "'a' is used twice");
  refuses({{{0}}, {0}, Reduction::kSum}, {6}, "'a' is used twice");
  refuses({{{2}}, {}, Reduction::kSum}, {6}, "no mesh axis number 2");
  refuses({{{-1}}, {}, Reduction::kSum}, {6}, "no mesh axis number -1");
  refuses({{{0}}, {}, Reduction::kSum}, {6, 6}, "expected 2 dimensions");
  refuses({{{}}, {1, 0}, Reduction::kSum}, {6}, "mesh order");
  refuses({{{}}, {}, Reduction::kMax}, {6}, "needs partial axes");
  CHECK(verify({{{0, 1}}, {}, Reduction::kSum}, {0}, mesh).ok());
}

}  // namespace autopar::layout_test
