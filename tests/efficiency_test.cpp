// What kernels of some shapes and kinds leave of the peaks of a device, by a profile.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "one_device.hpp"

namespace autopar::efficiency_test {

using namespace testing;

namespace {

Profile plain() {
  Profile profile;
  profile.name = "plain";
  return profile;
}

// How often the time that the same takes where nothing is said.
double slower(const Graph& graph, const Profile& profile, Profile without = plain()) {
  without.fuses_attention = profile.fuses_attention;
  without.fuses_normalisation = profile.fuses_normalisation;
  return cost_on_one(graph, "", profile).compute() / cost_on_one(graph, "", without).compute();
}

Graph product(std::int64_t m, std::int64_t k, std::int64_t n) {
  GraphWriter b;
  const ValueId x = b.input("x", {m, k}), w = b.parameter("w", {k, n});
  b.graph.outputs = {b.op("MatMul", {x, w}, {m, n}, {}, "product")};
  return b.graph;
}

// `heads` of `length` rows, 64 wide.
Graph attention(std::int64_t heads, std::int64_t length) {
  GraphWriter b;
  const Shape rows = {heads, length, 64}, scores = {heads, length, length};
  const ValueId q = b.input("q", rows), k = b.input("k", {heads, 64, length});
  const ValueId made = b.op("MatMul", {q, k}, scores, {}, "scores");
  const ValueId shares = b.op("Softmax", {made}, scores, {{"axis", std::int64_t{-1}}}, "softmax");
  b.graph.outputs = {b.op("MatMul", {shares, b.input("v", rows)}, rows, {}, "mix")};
  return b.graph;
}

// The same as one op, whose heads are a dimension or, where they are not, an attribute says them.
Graph attention_op(std::int64_t heads, std::int64_t length, bool has_dimension) {
  GraphWriter b;
  const Shape rows = has_dimension ? Shape{1, heads, length, 64} : Shape{1, length, heads * 64};
  std::map<std::string, Attribute> said;
  if (!has_dimension) said = {{"q_num_heads", heads}, {"kv_num_heads", heads}};
  const ValueId q = b.input("q", rows), k = b.input("k", rows), v = b.input("v", rows);
  b.graph.outputs = {b.op("Attention", {q, k, v}, rows, said, "attention")};
  b.graph.opset = 23;
  return b.graph;
}

}  // namespace

TEST_CASE("a tile is shared where multiprocessors are idle", "[efficiency]") {
  Profile profile = plain();
  profile.matrix.tile_m = profile.matrix.tile_n = 128;
  profile.matrix.multiprocessors = 16;
  const auto reached = [&](const Graph& graph) { return 1 / slower(graph, profile); };
  CHECK(reached(product(512, 4096, 512)) == Approx(1));          // a wave of 16 tiles
  CHECK(reached(product(256, 4096, 256)) == Approx(0.25));       // 4 tiles
  CHECK(reached(product(512, 4096, 640)) == Approx(20 / 32.0));  // 20 of them: two waves
  profile.matrix.least_k = 1024;
  CHECK(reached(product(512, 4096, 512)) == Approx(1));
  CHECK(reached(product(256, 4096, 256)) == Approx(1));          // four have a quarter of k each
  CHECK(reached(product(256, 4095, 256)) == Approx(0.5));        // two: quarters were too short
  CHECK(reached(product(512, 4096, 640)) == Approx(1));          // 80 parts in five waves
  CHECK(reached(product(512, 2048, 640)) == Approx(40 / 48.0));  // 40 halves in three
  CHECK(reached(product(256, 1000, 256)) == Approx(0.25));
}

TEST_CASE("attention reaches less with short sequences and few heads", "[efficiency]") {
  Profile profile = plain();
  profile.fuses_attention = true;
  profile.attention.half_length = 1024;
  constexpr double kSoftmax = 0.04;  // whose arithmetic stays as it is
  CHECK(slower(attention(8, 1024), profile) == Approx(2).epsilon(kSoftmax));
  CHECK(slower(attention(8, 3072), profile) == Approx(4 / 3.0).epsilon(kSoftmax));
  CHECK(slower(attention_op(8, 3072, true), profile) == Approx(4 / 3.0));
  CHECK(slower(attention_op(8, 3072, false), profile) == Approx(4 / 3.0));
  profile.attention.half_heads = 8;
  CHECK(slower(attention(8, 3072), profile) == Approx(8 / 3.0).epsilon(kSoftmax));
  CHECK(slower(attention(24, 3072), profile) == Approx(16 / 9.0).epsilon(kSoftmax));
  CHECK(slower(attention_op(24, 3072, true), profile) == Approx(16 / 9.0));
  CHECK(slower(attention_op(24, 3072, false), profile) == Approx(16 / 9.0));
  // Of what is no attention it says nothing.
  CHECK(slower(product(512, 512, 512), profile) == Approx(1));
}

TEST_CASE("normalisations and gathers may reach another part of the bandwidth", "[efficiency]") {
  const auto of = [](double all, double normalisation, double gather) {
    Profile profile = plain();
    profile.memory.fraction = all;
    profile.memory.normalisation = normalisation;
    profile.memory.gather = gather;
    return profile;
  };
  GraphWriter table;
  const ValueId rows = table.parameter("rows", {64, 4096}), at = table.input("at", {32});
  table.graph.values[at.index()].dtype = DType::kInt64;
  table.graph.outputs = {table.op("Gather", {rows, at}, {32, 4096}, {}, "gather")};
  CHECK(slower(table.graph, of(0.5, 0, 0)) == Approx(2));
  CHECK(slower(table.graph, of(0.5, 0.1, 0)) == Approx(2));
  CHECK(slower(table.graph, of(0.5, 0, 0.25)) == Approx(4));

  GraphWriter rms;  // its ops are one kernel, or each its own
  const ValueId x = rms.input("x", {512, 4096});
  const std::map<std::string, Attribute> last = {{"axes", std::vector<std::int64_t>{-1}},
                                                 {"keepdims", std::int64_t{1}}};
  rms.graph.opset = 13;
  const ValueId square = rms.op("Mul", {x, x}, {512, 4096}, {}, "square");
  const ValueId sum = rms.op("ReduceMean", {square}, {512, 1}, last, "mean");
  const ValueId root = rms.op("Sqrt", {sum}, {512, 1}, {}, "root");
  rms.graph.outputs = {rms.op("Div", {x, root}, {512, 4096}, {}, "divided")};
  Profile fused = of(1, 0.25, 0);
  fused.fuses_normalisation = true;
  CHECK(slower(rms.graph, fused) == Approx(4).epsilon(0.02));
  // Of ops by themselves only what has sums over rows in it: 1 of 6 times the bytes of `x`.
  CHECK(slower(rms.graph, of(1, 0.25, 0)) == Approx((5 + 4) / 6.0).epsilon(1e-3));
  // An update has no normalisations.
  for (Op& op : rms.graph.ops) op.phase = Phase::kUpdate;
  fused.fuses_optimizer = true;
  Profile without = plain();
  without.fuses_optimizer = true;
  CHECK(slower(rms.graph, fused, without) == Approx(1));
}

TEST_CASE("what a profile says of kinds of kernels is checked", "[efficiency]") {
  Profile profile = plain();
  CHECK(verify(profile));
  profile.memory.gather = 1.5;
  CHECK(verify(profile).error().message.find("memory.gather") != std::string::npos);
  profile = plain();
  profile.memory.normalisation = -0.5;
  CHECK(verify(profile).error().message.find("memory.normalisation") != std::string::npos);
  profile = plain();
  profile.attention.half_heads = -1;
  CHECK(verify(profile).error().message.find("attention.half_heads") != std::string::npos);
}

}  // namespace autopar::efficiency_test
