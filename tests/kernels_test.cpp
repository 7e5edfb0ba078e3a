// Which ops are one kernel, what that saves, and how long a step takes on a runtime with a profile.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <cmath>
#include <map>
#include <string>

#include "autopar/kernels.hpp"
#include "cost/causal.hpp"
#include "graphs.hpp"
#include "one_device.hpp"

namespace autopar::kernels_test {

using namespace testing;

namespace {

using Kind = OpKernel::Kind;

Profile fusing() {
  Profile profile;
  profile.name = "fusing";
  profile.fuses_elementwise = profile.fuses_normalisation = profile.fuses_attention = true;
  profile.has_strides = true;
  return profile;
}

// Two heads of 8 rows and columns, 4 wide, between two products with weights.
struct Attention {
  GraphWriter b;
  ValueId scores, shares, mixed;
  Attention(bool causal, bool head_of_classifier = false) {
    const ValueId x = b.input("x", {2, 8, 4});
    const ValueId key = head_of_classifier ? b.parameter("w", {4, 8}) : b.input("k", {2, 4, 8});
    const ValueId value = b.input("v", {2, 8, 4});
    scores = b.op("MatMul", {x, key}, {2, 8, 8}, {}, "scores");
    const ValueId scaled = b.op("Mul", {scores, b.constant("c", {})}, {2, 8, 8}, {}, "scale");
    const ValueId masked = b.op("Add", {scaled, mask(causal)}, {2, 8, 8}, {}, "mask");
    shares = b.op("Softmax", {masked}, {2, 8, 8}, {{"axis", std::int64_t{-1}}}, "softmax");
    mixed = b.op("MatMul", {shares, value}, {2, 8, 4}, {}, "mix");
    b.graph.outputs = {mixed};
  }

 private:
  ValueId mask(bool causal) {
    const ValueId id = b.constant("mask", {8, 8});
    Tensor tensor{DType::kFloat32, {8, 8}, {}};
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        const float number = causal && column > row ? -1e9F : 0.0F;
        char bytes[sizeof number];
        std::memcpy(bytes, &number, sizeof number);
        tensor.bytes.append(bytes, sizeof number);
      }
    }
    b.graph.values[id.index()].data = std::move(tensor);
    return id;
  }
};

}  // namespace

TEST_CASE("without a profile every op is a kernel of its own", "[kernels]") {
  const Attention attention(true);
  CHECK(group_kernels(attention.b.graph, Profile()).empty());
  CHECK(attention.b.graph.kernel(attention.b.graph.ops[0]) == OpKernel());
}

TEST_CASE("a runtime that runs op by op launches views, too", "[kernels]") {
  const Attention attention(true);
  Profile profile;
  profile.name = "one by one";
  profile.runs_op_by_op = true;
  profile.launch_s = 1;
  CHECK(verify(profile).ok());
  const Kernels kernels = group_kernels(attention.b.graph, profile);
  std::vector<OpKernel> own(attention.b.graph.ops.size());
  own[3].has_rows = true;  // the softmax
  CHECK(kernels.of_op == own);
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4});
  const ValueId y = b.op("Reshape", {x, b.constant("shape", {1})}, {16}, {}, "flat");
  b.graph.outputs = {y};
  Cluster cluster = small_cluster({2});
  for (const bool one_by_one : {true, false}) {
    cluster.profile = profile;
    cluster.profile.runs_op_by_op = one_by_one;
    b.graph.kernels = group_kernels(b.graph, cluster.profile);
    RooflineModel model(cluster, *make_mesh(cluster, {2}));
    const Op& op = b.graph.op(b.graph.value(y).producer);
    const Rule rule = replicated_rule(shapes_of(b.graph, op));
    const auto specs = specs_of(rule, {{-1}}, model.mesh());
    CHECK(model.op_price(b.graph, op, rule, {{-1}}, *specs)->compute == (one_by_one ? 1 : 0));
    // A collective is an op, too.
    const Collective sum{CollectiveKind::kAllReduce, {0}, -1, -1, Reduction::kSum};
    CHECK((collective_seconds(sum, 1, model.mesh(), cluster) >= 1) == one_by_one);
  }
  profile.fuses_attention = true;
  CHECK(verify(profile).error().message.find("op_by_op") != std::string::npos);
}

TEST_CASE("attention is one kernel whose scores are not stored", "[kernels]") {
  for (const bool causal : {false, true}) {
    const Attention attention(causal);
    Graph graph = attention.b.graph;
    graph.kernels = group_kernels(graph, fusing());
    REQUIRE(graph.kernels.of_op.size() == 5);
    for (const Op& op : graph.ops) {
      CHECK(graph.kernel(op).kind == Kind::kAttention);
      CHECK(graph.kernel(op).launches == (op.name == "scores"));
    }
    CHECK(graph.is_inside(attention.scores));
    CHECK(graph.is_inside(attention.shares));
    CHECK(!graph.is_inside(attention.mixed));
    CHECK(graph.kernel(graph.ops[0]).flops_factor == (causal ? 0.5 : 1));
    CHECK(graph.kernel(graph.ops[4]).flops_factor == (causal ? 0.5 : 1));
  }
  // Bound by memory: x, k, v, the mask twice over no head, and the result are all that moves.
  Cluster cluster = small_cluster({1});
  const Graph graph = Attention(false).b.graph;
  const double whole = cost_on_one(graph, "", fusing()).compute();
  const double bytes = 4 * (64 + 64 + 64 + 64 + 64 + 1);
  const double flops = 2.0 * 2 * 8 * 8 * 4 * 2;
  CHECK(whole >= std::max(bytes / 1e9, flops / 1e10));
  CHECK(whole < 0.5 * cost_on_one(graph, "", Profile()).compute());
}

TEST_CASE("scores that leave the graph are stored", "[kernels]") {
  Attention attention(false);
  const ValueId copy = attention.b.op("Identity", {attention.shares}, {2, 8, 8}, {}, "weights");
  attention.b.graph.outputs.push_back(copy);
  const Kernels kernels = group_kernels(attention.b.graph, fusing());
  CHECK(!kernels.inside[attention.shares.index()]);
  CHECK(!kernels.inside[copy.index()]);
  CHECK(kernels.inside[attention.scores.index()]);
}

TEST_CASE("a normalisation keeps what it reads and its sums for the backward pass", "[kernels]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 4});
  const ValueId square = b.op("Mul", {x, x}, {8, 4}, {}, "square");
  const ValueId mean = b.op("ReduceMean", {square, b.ints("axes", {-1})}, {8, 1}, {}, "mean");
  const ValueId inverse = b.op("Reciprocal", {mean}, {8, 1}, {}, "inverse");
  const ValueId unit = b.op("Mul", {x, inverse}, {8, 4}, {}, "unit");
  const ValueId scaled = b.op("Mul", {unit, b.parameter("scale", {4})}, {8, 4}, {}, "scaled");
  const ValueId y = b.op("MatMul", {scaled, b.parameter("w", {4, 4})}, {8, 4}, {}, "product");
  const ValueId of_scale = b.op("Mul", {y, unit}, {8, 4}, {}, "scale.grad");
  b.graph.ops.back().phase = Phase::kBackward;
  const ValueId of_x = b.op("Mul", {of_scale, inverse}, {8, 4}, {}, "x.grad");
  b.graph.ops.back().phase = Phase::kBackward;
  b.graph.outputs = {of_x};
  const Kernels kernels = group_kernels(b.graph, fusing());
  CHECK(kernels.inside[unit.index()]);
  CHECK(!kernels.inside[inverse.index()]);
  CHECK(!kernels.inside[scaled.index()]);  // a product reads it
}

// As torch's safe softmax writes it: the same zeros for all layers, in place of rows without
// scores.
TEST_CASE("layers that read one filling are several kernels", "[kernels]") {
  GraphWriter b;
  const ValueId x = b.input("x", {2, 8, 4});
  const ValueId zeros = b.op("Expand", {b.constant("zero", {}), b.ints("s", {2, 8, 8})}, {2, 8, 8});
  ValueId y = x;
  for (const std::string layer : {"0", "1"}) {
    const ValueId k = b.input("k" + layer, {2, 4, 8});
    const ValueId scores = b.op("MatMul", {y, k}, {2, 8, 8}, {}, "scores" + layer);
    const ValueId shares = b.op("Softmax", {scores}, {2, 8, 8}, {}, "softmax" + layer);
    const ValueId none = b.op("Equal", {scores, b.constant("c" + layer, {})}, {2, 8, 8});
    b.graph.values[none.index()].dtype = DType::kBool;
    const ValueId safe = b.op("Where", {none, zeros, shares}, {2, 8, 8}, {}, "where" + layer);
    b.graph.values[safe.index()].dtype = DType::kFloat32;
    y = b.op("MatMul", {safe, x}, {2, 8, 4}, {}, "mix" + layer);
  }
  b.graph.outputs = {y};
  const Kernels kernels = group_kernels(b.graph, fusing());
  for (std::size_t o = 0; o < b.graph.ops.size(); ++o) {
    const Op& op = b.graph.ops[o];
    if (op.type == "Expand") continue;
    INFO(op.name);
    CHECK(kernels.of_op[o].kind == Kind::kAttention);
    CHECK(kernels.of_op[o].launches == (op.name == "scores0" || op.name == "scores1"));
  }
  CHECK(!kernels.inside[zeros.index()]);
}

// As torch exports a whole training step: nothing says which ops are of the backward pass.
TEST_CASE("attention of a step from a file is found in both passes", "[kernels]") {
  Attention attention(true);
  GraphWriter& b = attention.b;
  const auto turn = [&](ValueId id, const char* name) {
    const Shape s = b.shape(id);
    return b.op("Transpose", {id}, {s[0], s[2], s[1]},
                {{"perm", std::vector<std::int64_t>{0, 2, 1}}}, name);
  };
  const ValueId q = b.graph.inputs[0], k = b.graph.inputs[1], v = b.graph.inputs[2];
  const ValueId d_mixed = b.op("Relu", {attention.mixed}, {2, 8, 4}, {}, "loss");
  const ValueId dv =
      b.op("MatMul", {turn(attention.shares, "shares_t"), d_mixed}, {2, 8, 4}, {}, "dv");
  const ValueId d_shares = b.op("MatMul", {d_mixed, turn(v, "v_t")}, {2, 8, 8}, {}, "d_shares");
  const ValueId both = b.op("Mul", {d_shares, attention.shares}, {2, 8, 8}, {}, "both");
  const ValueId sums = b.op("ReduceSum", {both, b.ints("last", {-1})}, {2, 8, 1}, {}, "sums");
  const ValueId part = b.op("Mul", {attention.shares, sums}, {2, 8, 8}, {}, "part");
  const ValueId d_scores = b.op("Sub", {both, part}, {2, 8, 8}, {}, "d_scores");
  const ValueId dq = b.op("MatMul", {d_scores, turn(k, "k_t")}, {2, 8, 4}, {}, "dq");
  const ValueId dk = b.op("MatMul", {turn(q, "q_t"), d_scores}, {2, 4, 8}, {}, "dk");
  b.graph.outputs = {dv, dq, dk};
  Profile profile = fusing();
  profile.attention.forward = 0.6;
  profile.attention.backward = 0.5;
  b.graph.kernels = group_kernels(b.graph, profile);
  std::map<std::string, OpKernel> kernel;
  for (const Op& op : b.graph.ops) kernel[op.name] = b.graph.kernel(op);
  for (const char* name : {"scores", "softmax", "mix", "dv", "d_shares", "both", "sums", "part",
                           "d_scores", "dq", "dk"}) {
    INFO(name);
    CHECK(kernel[name].kind == Kind::kAttention);
    const bool first = name == std::string("scores") || name == std::string("dv");
    CHECK(kernel[name].launches == first);
  }
  for (const ValueId id : {attention.scores, attention.shares, d_shares, both, d_scores}) {
    CHECK(b.graph.is_inside(id));
  }
  CHECK(!b.graph.is_inside(attention.mixed));
  // Half of the scores are masked; scores are made a second time; the backward pass is less
  // efficient.
  CHECK(kernel["mix"].flops_factor == Approx(0.5));
  CHECK(kernel["dq"].flops_factor == Approx(0.5 * 0.6 / 0.5));
  CHECK(kernel["d_shares"].flops_factor == Approx(2 * 0.5 * 0.6 / 0.5));
}

TEST_CASE("the head of a classifier is no attention", "[kernels]") {
  const Attention attention(false, true);
  const Kernels kernels = group_kernels(attention.b.graph, fusing());
  for (const OpKernel& kernel : kernels.of_op) CHECK(kernel.kind != Kind::kAttention);
}

TEST_CASE("masks are read in a few places", "[kernels]") {
  for (const bool causal : {false, true}) {
    const Graph graph = Attention(causal).b.graph;
    Elements elements(graph);
    CHECK(is_causal_mask(graph, graph.ops[2], graph.ops[2].inputs[0], elements) == causal);
  }
  // Rows that are at least the columns, as exporters compute it.
  GraphWriter b;
  const ValueId scores = b.input("scores", {2, 8, 8});
  const auto range = [&](const char* name, const Shape& shape) {
    const ValueId id = b.constant(name, shape);
    b.graph.values[id.index()].dtype = DType::kInt64;
    b.graph.values[id.index()].data = int64_tensor(shape, {0, 1, 2, 3, 4, 5, 6, 7});
    return id;
  };
  const ValueId rows = range("rows", {8, 1}), columns = range("columns", {1, 8});
  const ValueId keep = b.op("GreaterOrEqual", {rows, columns}, {8, 8}, {}, "keep");
  b.graph.values[keep.index()].dtype = DType::kBool;
  const ValueId low = b.constant("low", {});
  b.graph.values[low.index()].data = scalar_tensor(DType::kFloat32, -1e30);
  const ValueId masked = b.op("Where", {keep, scores, low}, {2, 8, 8}, {}, "where");
  const ValueId wrong = b.op("Where", {keep, low, scores}, {2, 8, 8}, {}, "wrong");
  b.graph.outputs = {masked, wrong};
  Elements elements(b.graph);
  CHECK(elements.at(keep, 3, 4) == 0.0);
  CHECK(elements.at(keep, 4, 3) == 1.0);
  CHECK(!elements.at(scores, 0, 0).has_value());
  CHECK(is_causal_mask(b.graph, b.graph.ops[1], scores, elements));
  CHECK(!is_causal_mask(b.graph, b.graph.ops[2], scores, elements));
}

TEST_CASE("chains are one kernel, products end them", "[kernels]") {
  GraphWriter b;
  const ValueId x = b.input("x", {16, 8});
  const ValueId up = b.op("MatMul", {x, b.parameter("w", {8, 8})}, {16, 8}, {}, "up");
  const ValueId gate = b.op("Exp", {up}, {16, 8}, {}, "exp");
  const ValueId both = b.op("Add", {gate, up}, {16, 8}, {}, "add");
  const ValueId down = b.op("MatMul", {both, b.parameter("v", {8, 8})}, {16, 8}, {}, "down");
  // Reads what is before and after a product: a kernel with `add` would wait for itself.
  const ValueId sum = b.op("Add", {down, both}, {16, 8}, {}, "residual");
  b.graph.outputs = {sum};
  Graph graph = b.graph;
  graph.kernels = group_kernels(graph, fusing());
  const auto kernel = [&](int o) { return graph.kernels.of_op[static_cast<std::size_t>(o)]; };
  CHECK(graph.is_inside(gate));
  CHECK(!graph.is_inside(both));
  CHECK(kernel(1).launches);
  CHECK(!kernel(2).launches);
  CHECK(kernel(3).kind == Kind::kOwn);
  CHECK(kernel(4).launches);
  // `add` reads `exp` nowhere and `up` a second time; `residual` reads both of its own.
  CHECK(kernel(2).inside_inputs == 0b11);
  CHECK(kernel(4).inside_inputs == 0);
}

TEST_CASE("x * Sigmoid(x) keeps x alone", "[kernels]") {
  GraphWriter b;
  const ValueId x = b.input("x", {16, 8});
  const ValueId y = b.op("Sigmoid", {x}, {16, 8}, {}, "sigmoid");
  const ValueId silu = b.op("Mul", {x, y}, {16, 8}, {}, "silu");
  const ValueId again = b.op("Mul", {y, silu}, {16, 8}, {}, "grad");
  b.graph.ops[2].phase = Phase::kBackward;
  b.graph.outputs = {again};
  Profile eager;
  eager.name = "eager";
  b.graph.kernels = group_kernels(b.graph, eager);
  CHECK(b.graph.is_inside(y));
  CHECK(!b.graph.is_inside(silu));
  CHECK(b.graph.kernel(b.graph.ops[2]).inside_inputs == 0b01);
}

TEST_CASE("the derivative of a function is one kernel", "[kernels]") {
  // Tanh(x + x^3) and its derivative by the chain rule, also where the function is repeated.
  for (const bool repeats : {false, true}) {
    GraphWriter b;
    const ValueId w = b.parameter("w", {8, 8});
    const ValueId x = b.op("MatMul", {b.input("in", {16, 8}), w}, {16, 8}, {}, "up");
    const ValueId three = b.constant("three", {});
    const ValueId cube = b.op("Pow", {x, three}, {16, 8}, {}, "cube");
    const ValueId sum = b.op("Add", {x, cube}, {16, 8}, {}, "sum");
    const ValueId tanh = b.op("Tanh", {sum}, {16, 8}, {}, "tanh");
    const ValueId down = b.op("MatMul", {tanh, w}, {16, 8}, {}, "down");
    const std::size_t back = b.graph.ops.size();
    const ValueId of_tanh = b.op("MatMul", {down, w}, {16, 8}, {}, "back");
    const std::size_t first = b.graph.ops.size();
    const ValueId square = b.op("Mul", {tanh, tanh}, {16, 8}, {}, "square");
    const ValueId rest = b.op("Sub", {b.constant("one", {}), square}, {16, 8}, {}, "rest");
    const ValueId of_sum = b.op("Mul", {of_tanh, rest}, {16, 8}, {}, "of_sum");
    const ValueId less = b.op("Sub", {three, b.constant("one2", {})}, {}, {}, "less");
    const ValueId power = b.op("Pow", {x, less}, {16, 8}, {}, "power");
    const ValueId of_cube = b.op("Mul", {of_sum, power}, {16, 8}, {}, "of_cube");
    const ValueId of_x = b.op("Add", {of_sum, of_cube}, {16, 8}, {}, "of_x");
    for (std::size_t o = repeats ? 0 : back; o < b.graph.ops.size(); ++o) {
      b.graph.ops[o].phase = Phase::kBackward;
    }
    b.graph.outputs = {b.op("MatMul", {of_x, w}, {16, 8}, {}, "last")};
    b.graph.ops.back().phase = Phase::kBackward;
    Profile eager;
    eager.name = "eager";
    Graph graph = b.graph;
    graph.kernels = group_kernels(graph, eager);
    for (const ValueId id : {cube, square, of_sum, of_cube}) CHECK(graph.is_inside(id));
    for (const ValueId id : {x, of_tanh, of_x}) CHECK(!graph.is_inside(id));
    // A function that is repeated is a kernel before: what the derivative reads of it is stored.
    for (const ValueId id : {rest, power}) CHECK(graph.is_inside(id) == !repeats);
    int launches = 0;
    for (std::size_t o = first; o + 1 < graph.ops.size(); ++o) {
      launches += graph.ops[o].name != "less" && graph.kernel(graph.ops[o]).launches ? 1 : 0;
    }
    CHECK(launches == (repeats ? 2 : 1));  // `power`, which reads x alone
  }
}

TEST_CASE("fused chains make again what the backward pass reads of them", "[kernels]") {
  // A gated layer: the gradient of `up` reads the function of `gate`, which is there anyway.
  GraphWriter b;
  const ValueId gate = b.input("gate", {16, 8}), up = b.input("up", {16, 8});
  const ValueId silu =
      b.op("Mul", {gate, b.op("Sigmoid", {gate}, {16, 8}, {}, "sigmoid")}, {16, 8}, {}, "silu");
  const ValueId both = b.op("Mul", {silu, up}, {16, 8}, {}, "both");
  const ValueId down = b.op("MatMul", {both, b.parameter("w", {8, 8})}, {16, 8}, {}, "down");
  const ValueId of_up = b.op("Mul", {down, silu}, {16, 8}, {}, "up.grad");
  const ValueId of_gate = b.op("Mul", {down, up}, {16, 8}, {}, "silu.grad");
  const ValueId late = b.op("Mul", {of_gate, gate}, {16, 8}, {}, "gate.grad");
  for (std::size_t o = 4; o < b.graph.ops.size(); ++o) b.graph.ops[o].phase = Phase::kBackward;
  b.graph.outputs = {of_up, late};
  Profile eager;
  eager.name = "eager";
  CHECK(!group_kernels(b.graph, eager).inside[silu.index()]);
  const Kernels fused = group_kernels(b.graph, fusing());
  CHECK(fused.inside[silu.index()]);
  CHECK(!fused.inside[both.index()]);  // a product reads it
}

TEST_CASE("a function in another type keeps its argument in its own", "[kernels]") {
  // Tanh in float32 of a float16 value that is a sum with a bias, once and repeated.
  for (const bool repeats : {false, true}) {
    GraphWriter b;
    const ValueId x = b.input("x", {16, 8});
    const ValueId up = b.op("MatMul", {x, b.parameter("w", {8, 8})}, {16, 8}, {}, "up");
    const ValueId sum = b.op("Add", {up, b.parameter("bias", {8})}, {16, 8}, {}, "sum");
    const ValueId wide = b.op("Cast", {sum}, {16, 8}, {{"to", std::int64_t{1}}}, "cast");
    const ValueId tanh = b.op("Tanh", {wide}, {16, 8}, {}, "tanh");
    const ValueId narrow = b.op("Cast", {tanh}, {16, 8}, {{"to", std::int64_t{10}}}, "narrow");
    const ValueId down = b.op("MatMul", {narrow, b.parameter("v", {8, 8})}, {16, 8}, {}, "down");
    const ValueId of_down = b.op("MatMul", {down, b.parameter("v2", {8, 8})}, {16, 8}, {}, "back");
    const ValueId square = b.op("Mul", {tanh, tanh}, {16, 8}, {}, "square");
    const ValueId late = b.op("Mul", {of_down, square}, {16, 8}, {}, "late");
    for (std::size_t o = repeats ? 0 : 6; o < b.graph.ops.size(); ++o) {
      b.graph.ops[o].phase = Phase::kBackward;
    }
    for (const ValueId id : {up, sum, narrow}) b.graph.values[id.index()].dtype = DType::kFloat16;
    b.graph.outputs = {down, late};
    Graph graph = b.graph;
    graph.kernels = group_kernels(graph, fusing());
    for (const ValueId id : {wide, tanh, square}) CHECK(graph.is_inside(id));
    CHECK(!graph.is_inside(sum));
    CHECK(!graph.is_inside(narrow));
    CHECK(graph.needed_by(sum) == graph.values[(repeats ? late : square).index()].producer);
    CHECK(!graph.needed_by(up).valid());
  }
}

TEST_CASE("sums of scattered rows are in 16 bits in memory", "[kernels]") {
  // The gradient of an embedding: rows of 16 bits are added up in float32.
  for (const DType stored : {DType::kBFloat16, DType::kFloat32}) {
    GraphWriter b;
    const ValueId zeros = b.input("zeros", {32, 4}), places = b.input("places", {16, 1});
    const ValueId rows = b.input("rows", {16, 4});
    const ValueId wide = b.op("Cast", {rows}, {16, 4}, {{"to", std::int64_t{1}}}, "wide");
    const ValueId sum = b.op("ScatterND", {zeros, places, wide}, {32, 4},
                             {{"reduction", std::string("add")}}, "sum");
    const ValueId made = b.op("Cast", {sum}, {32, 4}, {{"to", std::int64_t{16}}}, "made");
    b.graph.values[places.index()].dtype = DType::kInt64;
    b.graph.values[rows.index()].dtype = b.graph.values[made.index()].dtype = stored;
    b.graph.outputs = {made};
    Graph graph = b.graph;
    Profile profile;
    profile.name = "eager";
    graph.kernels = group_kernels(graph, profile);
    const bool is_narrow = stored == DType::kBFloat16;
    CHECK(graph.is_inside(sum) == is_narrow);
    CHECK(graph.is_inside(wide) == is_narrow);
    CHECK(!graph.is_inside(made));
    // The rows are there until they are added up.
    CHECK(graph.needed_by(rows) == (is_narrow ? graph.value(sum).producer : OpId()));
  }
}

TEST_CASE("a function that reads its argument through a view keeps no more", "[kernels]") {
  // x + x^3 in float32 of a bfloat16 value; what is cast is read in both phases, forward as one
  // view of it (share_in_phases).
  GraphWriter b;
  const ValueId x = b.input("x", {16, 8});
  const ValueId up = b.op("MatMul", {x, b.parameter("w", {8, 8})}, {16, 8}, {}, "up");
  const ValueId wide = b.op("Cast", {up}, {16, 8}, {{"to", std::int64_t{1}}}, "cast");
  const ValueId view = b.op("Identity", {wide}, {16, 8}, {}, "forward");
  const ValueId cube = b.op("Pow", {view, b.constant("three", {})}, {16, 8}, {}, "cube");
  const ValueId inner = b.op("Add", {view, cube}, {16, 8}, {}, "inner");
  const ValueId down = b.op("MatMul", {inner, b.parameter("v", {8, 8})}, {16, 8}, {}, "down");
  const ValueId square = b.op("Pow", {wide, b.constant("two", {})}, {16, 8}, {}, "square");
  const ValueId late = b.op("Mul", {down, square}, {16, 8}, {}, "late");
  b.graph.ops[6].phase = b.graph.ops[7].phase = Phase::kBackward;
  b.graph.values[up.index()].dtype = DType::kBFloat16;
  b.graph.outputs = {late};
  Profile eager;
  eager.name = "eager";
  eager.has_strides = true;
  b.graph.kernels = group_kernels(b.graph, eager);
  for (const ValueId id : {wide, view, cube}) CHECK(b.graph.is_inside(id));
  CHECK(!b.graph.is_inside(up));
  CHECK(b.graph.needed_by(up) == b.graph.values[square.index()].producer);
}

TEST_CASE("a normalisation in another type keeps what it normalises in its own", "[kernels]") {
  // x / |x| in float32 of a bfloat16 sum that the backward pass does not read.
  for (const bool by_product : {false, true}) {
    GraphWriter b;
    const ValueId x = b.input("x", {16, 8}), w = b.parameter("w", {8, 8});
    const ValueId branch = b.op("MatMul", {x, w}, {16, 8}, {}, "branch");
    const ValueId sum = b.op("Add", {x, branch}, {16, 8}, {}, "sum");
    const ValueId wide = b.op("Cast", {sum}, {16, 8}, {{"to", std::int64_t{1}}}, "cast");
    const ValueId square = b.op("Mul", {wide, wide}, {16, 8}, {}, "square");
    const ValueId mean = b.op("ReduceMean", {square, b.ints("axes", {-1})}, {16, 1}, {}, "mean");
    const ValueId unit = b.op("Div", {wide, mean}, {16, 8}, {}, "unit");
    const ValueId down = b.op("MatMul", {by_product ? wide : unit, w}, {16, 8}, {}, "down");
    const ValueId back = b.op("MatMul", {down, w}, {16, 8}, {}, "back");
    const ValueId of_unit = b.op("Mul", {back, mean}, {16, 8}, {}, "unit.grad");
    const ValueId late = b.op("Mul", {of_unit, wide}, {16, 8}, {}, "late");
    for (std::size_t o = 7; o < b.graph.ops.size(); ++o) b.graph.ops[o].phase = Phase::kBackward;
    for (const ValueId id : {x, w, branch, sum})
      b.graph.values[id.index()].dtype = DType::kBFloat16;
    b.graph.outputs = by_product ? std::vector<ValueId>{unit, late} : std::vector<ValueId>{late};
    b.graph.kernels = group_kernels(b.graph, fusing());
    CHECK(b.graph.is_inside(wide) != by_product);  // a product reads it as it is
    CHECK(b.graph.is_inside(sum) == by_product);
    CHECK(b.graph.needed_by(sum) == (by_product ? OpId() : b.graph.values[late.index()].producer));
  }
}

TEST_CASE("an update that waits for all gradients is one kernel", "[kernels]") {
  GraphWriter b;
  const ValueId m = b.input("m", {16, 8}), g = b.input("g", {16, 8});
  const ValueId smaller = b.op("Mul", {m, b.constant("c", {})}, {16, 8}, {}, "smaller");
  const ValueId next = b.op("Add", {smaller, g}, {16, 8}, {}, "next");
  const ValueId all = b.op("ReduceMax", {g}, {}, {{"keepdims", std::int64_t{0}}}, "all");
  const ValueId finite = b.op("Less", {all, b.constant("limit", {})}, {}, {}, "finite");
  b.graph.values[finite.index()].dtype = DType::kBool;
  const ValueId kept = b.op("Where", {finite, next, m}, {16, 8}, {}, "kept");
  for (Op& op : b.graph.ops) op.phase = Phase::kUpdate;
  b.graph.outputs = {kept};
  Profile profile = fusing();
  profile.fuses_optimizer = true;
  const Kernels kernels = group_kernels(b.graph, profile);
  CHECK(kernels.inside[smaller.index()]);
  CHECK(kernels.inside[next.index()]);
  CHECK(kernels.of_op[4].inside_inputs == 0b111);  // `m` has been read, the others are nowhere
}

// What the problem of the search says of any choices, and what evaluate() says of their strategy.
TEST_CASE("kernels cost the same in the problem and in its plans", "[kernels]") {
  int finite = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Graph graph = seed % 4 == 0 ? Attention(seed % 8 == 0).b.graph : random_graph(seed, 8);
    Cluster cluster = small_cluster({2, 2});
    cluster.profile = fusing();
    cluster.profile.launch_s = 1e-6;
    cluster.profile.memory.fraction = 0.5;
    cluster.profile.matrix = {0.5, 4, 2, 2, 3, 2};
    cluster.profile.attention = {0.5, 0.25, 4, 2};
    cluster.profile.memory.normalisation = 0.25;
    cluster.profile.memory.gather = 0.125;
    graph.kernels = group_kernels(graph, cluster.profile);
    const GraphRules rules = *rules_of(graph);
    SearchRequest request{graph, rules, cluster};
    RooflineModel model(cluster, *make_mesh(cluster, {2, 2}));
    const MeshProblem built = *build_problem(request, model);
    Draw draw{std::mt19937_64(seed)};
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<int> choices;
      for (const ProblemNode& node : built.problem.nodes) {
        choices.push_back(static_cast<int>(draw.below(node.cost.size())));
      }
      const Evaluation said = evaluate(built.problem, choices);
      if (!(said.cost < kInfinity)) continue;
      ++finite;
      const Strategy strategy = strategy_of(graph, built, choices);
      const auto cost = evaluate(graph, rules, strategy, model);
      REQUIRE(cost);
      INFO("seed " << seed);
      CHECK(cost->total() == Approx(said.cost).epsilon(1e-9));
      REQUIRE(cost->step);
      CHECK(cost->step->seconds <= cost->total() * (1 + 1e-9));
      CHECK(2 * cost->step->seconds >= cost->total() * (1 - 1e-9));
    }
  }
  CHECK(finite > 100);
}

TEST_CASE("a step takes what its busiest stream takes", "[kernels]") {
  const Graph graph = two_matmuls();
  const GraphRules rules = *rules_of(graph);
  for (const Seconds host : {0.0, 1.0}) {
    Cluster cluster = small_cluster({1});
    cluster.profile.name = "test";
    cluster.profile.host_s = host;
    Graph grouped = graph;
    grouped.kernels = group_kernels(graph, cluster.profile);
    RooflineModel model(cluster, Mesh{{{"device", 1, 0, 1}}});
    Strategy strategy;
    strategy.mesh = model.mesh();
    strategy.assignments.assign(graph.ops.size(), Assignment{{-1}});
    for (const Value& value : graph.values) {
      const Spec spec = replicated(value.shape.size());
      strategy.values.push_back({spec, spec, spec});
    }
    const StrategyCost cost = *evaluate(grouped, rules, strategy, model);
    REQUIRE(cost.step);
    CHECK(cost.step->compute == Approx(cost.total()));
    CHECK(cost.step->host == Approx(2 * host));
    // The second kernel begins when it is issued and when the first is done.
    const Seconds last = cost.terms.back().seconds;
    CHECK(cost.step->seconds == Approx(host == 0 ? cost.total() : 2 * host + last));
  }
}

TEST_CASE("profiles say what is wrong with them", "[kernels]") {
  Profile profile;
  CHECK(verify(profile).ok());
  profile.matrix.fraction = 1.5;
  CHECK(verify(profile).error().message.find("matrix.fraction") == 0);
  profile.matrix.fraction = 1;
  profile.host_s = -1;
  CHECK(verify(profile).error().message.find("host_s") == 0);
  profile.host_s = 0;
  profile.matrix.tile_m = profile.matrix.tile_n = 64;
  CHECK(verify(profile).error().message.find("matrix.multiprocessors") == 0);
}

}  // namespace autopar::kernels_test
