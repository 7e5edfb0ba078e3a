// What moves no data under any prices: Transposes that products see through, and all of a cache but
// the token that is written.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <map>
#include <set>

#include "autopar/kernels.hpp"
#include "autopar/memory.hpp"
#include "cost/views.hpp"
#include "graphs.hpp"
#include "one_device.hpp"

namespace autopar::views_test {

using namespace testing;

namespace {

std::map<std::string, Attribute> perm(const std::vector<std::int64_t>& order) {
  return {{"perm", order}};
}

// The names of the Transposes that are free.
std::set<std::string> free_in(const Graph& graph) {
  std::set<std::string> names;
  const std::vector<char> free = free_transposes(graph).free;
  for (std::size_t o = 0; o < free.size(); ++o) {
    if (free[o]) names.insert(graph.ops[o].name);
  }
  return names;
}

// Batch 2, 3 heads, 8 tokens of 4 numbers: q, k and v as [batch, token, head, number].
struct Heads {
  GraphWriter b;
  ValueId q = b.input("q", {2, 8, 3, 4});
  ValueId k = b.input("k", {2, 8, 3, 4});
  ValueId v = b.input("v", {2, 8, 3, 4});
};

}  // namespace

TEST_CASE("products see through Transposes of weights", "[views]") {
  GraphWriter b;
  const ValueId x = b.input("x", {16, 8});
  const ValueId w = b.parameter("w", {6, 8});
  const ValueId turned = b.op("Transpose", {w}, {8, 6}, perm({1, 0}), "turn");
  const ValueId half = b.op("Mul", {turned, b.constant("c", {})}, {8, 6}, {}, "half");
  const ValueId y = b.op("MatMul", {x, half}, {16, 6}, {}, "product");
  b.graph.outputs = {y};
  CHECK(free_in(b.graph) == std::set<std::string>{"turn"});
  const StrategyCost cost = cost_on_one(b.graph);
  for (const CostTerm& term : cost.terms) {
    if (b.graph.op(term.op).name == "turn") CHECK(term.seconds == 0);
  }
  // x, w, what scales it, and y where that is made: the turned weight is w's own memory.
  CHECK(cost.memory.total == 4 * (16 * 8 + 48 + 1 + 48 + 16 * 6));
  // An op that does not say how it reads, or the caller, needs it as it is.
  GraphWriter other = b;
  other.graph.outputs.push_back(other.op("ReduceSum", {turned, other.ints("axes", {0})}, {1, 6}));
  CHECK(free_in(other.graph).empty());
  GraphWriter given = b;
  given.graph.outputs.push_back(turned);
  CHECK(free_in(given.graph).empty());
}

TEST_CASE("heads are transposed for free where nothing but products touches them", "[views]") {
  Heads heads;
  GraphWriter& b = heads.b;
  const ValueId q = b.op("Transpose", {heads.q}, {2, 3, 8, 4}, perm({0, 2, 1, 3}), "q_heads");
  // As torch writes it: to heads, matrices of one batch, turned, and back.
  const ValueId k = b.op("Transpose", {heads.k}, {2, 3, 8, 4}, perm({0, 2, 1, 3}), "k_heads");
  const ValueId flat = b.op("Reshape", {k, b.ints("f", {6, 8, 4})}, {6, 8, 4}, {}, "flat");
  const ValueId turned = b.op("Transpose", {flat}, {6, 4, 8}, perm({0, 2, 1}), "k_turned");
  const ValueId back = b.op("Reshape", {turned, b.ints("g", {2, 3, 4, 8})}, {2, 3, 4, 8}, {}, "k4");
  const ValueId v = b.op("Transpose", {heads.v}, {2, 3, 8, 4}, perm({0, 2, 1, 3}), "v_heads");
  const ValueId scores = b.op("MatMul", {q, back}, {2, 3, 8, 8}, {}, "scores");
  const ValueId shares = b.op("Softmax", {scores}, {2, 3, 8, 8}, {}, "softmax");
  const ValueId mixed = b.op("MatMul", {shares, v}, {2, 3, 8, 4}, {}, "mix");
  const ValueId joined = b.op("Transpose", {mixed}, {2, 8, 3, 4}, perm({0, 2, 1, 3}), "joined");
  const ValueId y = b.op("Relu", {joined}, {2, 8, 3, 4});
  b.graph.outputs = {y};
  CHECK(free_in(b.graph) ==
        std::set<std::string>{"q_heads", "k_heads", "k_turned", "v_heads", "joined"});
  // A function of all heads reads them in their order, and makes them in it.
  SECTION("not behind a softmax") {
    const ValueId turn = b.op("Transpose", {shares}, {2, 8, 3, 8}, perm({0, 2, 1, 3}), "shares_t");
    b.graph.outputs.push_back(turn);
    CHECK(free_in(b.graph).count("shares_t") == 0);
  }
  // The result is there in one order only.
  SECTION("not where two orders are asked for") {
    b.graph.outputs.push_back(b.op("Relu", {mixed}, {2, 3, 8, 4}));
    CHECK(free_in(b.graph).count("joined") == 0);
  }
}

TEST_CASE("no product reads numbers that lie apart in both dimensions", "[views]") {
  Heads heads;
  GraphWriter& b = heads.b;
  // Contiguous along what becomes a dimension of the batch.
  const ValueId q = b.op("Transpose", {heads.q}, {2, 4, 8, 3}, perm({0, 3, 1, 2}), "q_turned");
  const ValueId k = b.op("Transpose", {heads.k}, {2, 4, 3, 8}, perm({0, 3, 2, 1}), "k_turned");
  const ValueId made = b.op("MatMul", {q, k}, {2, 4, 8, 8}, {}, "product");
  const ValueId out = b.op("Transpose", {made}, {2, 8, 8, 4}, perm({0, 2, 3, 1}), "turned");
  b.graph.outputs = {b.op("Relu", {out}, {2, 8, 8, 4})};
  CHECK(free_in(b.graph).empty());
  CHECK(group_kernels(b.graph, Profile()).empty());
}

TEST_CASE("rows that are no multiple of 16 bytes slow a product down", "[views]") {
  // [m, k] x [k, n] in float32, with each matrix transposed or not.
  const auto seconds = [](std::int64_t m, std::int64_t k, std::int64_t n, bool turn_a, bool turn_b,
                          double unaligned) {
    GraphWriter b;
    ValueId x = b.input("x", turn_a ? Shape{k, m} : Shape{m, k});
    ValueId w = b.parameter("w", turn_b ? Shape{n, k} : Shape{k, n});
    if (turn_a) x = b.op("Transpose", {x}, {m, k}, perm({1, 0}), "turn_a");
    if (turn_b) w = b.op("Transpose", {w}, {k, n}, perm({1, 0}), "turn_b");
    b.graph.outputs = {b.op("MatMul", {x, w}, {m, n}, {}, "product")};
    Profile profile;
    profile.name = "aligned";
    profile.memory.fraction = 1;
    profile.matrix.unaligned = unaligned;
    return cost_on_one(b.graph, "", profile).total();
  };
  // How often the time of the same where that costs nothing.
  const auto slower = [&](std::int64_t m, std::int64_t k, std::int64_t n, bool turn_a = false,
                          bool turn_b = false) {
    return seconds(m, k, n, turn_a, turn_b, 0.125) / seconds(m, k, n, turn_a, turn_b, 1);
  };
  constexpr std::int64_t kEven = 4096, kOdd = 4097, kPair = 4098;
  CHECK(slower(kEven, kEven, kEven) == Approx(1));
  // 4 bytes are two of the three steps from 16 to 2, 8 bytes are one.
  CHECK(slower(kEven, kEven, kOdd) == Approx(4));
  CHECK(slower(kEven, kEven, kPair) == Approx(2));
  CHECK(slower(kEven, kOdd, kEven) == Approx(4));
  // How many rows there are does not matter, but for what is transposed.
  CHECK(slower(kOdd, kEven, kEven) == Approx(1));
  CHECK(slower(kOdd, kEven, kEven, true) == Approx(4));
  CHECK(slower(kEven, kOdd, kEven, true) == Approx(1));
  CHECK(slower(kEven, kOdd, kEven, true, true) == Approx(4));
  CHECK(slower(kEven, kEven, kOdd, false, true) == Approx(4));  // the rows of what is made
}

TEST_CASE("a product writes a gradient as its parameter lies", "[views]") {
  GraphWriter b;
  const ValueId x = b.input("x", {16, 8});
  const ValueId dy = b.input("dy", {16, 6});
  const ValueId xt = b.op("Transpose", {x}, {8, 16}, perm({1, 0}), "x_turned");
  const ValueId dw = b.op("MatMul", {xt, dy}, {8, 6}, {}, "gradient");
  const ValueId turned = b.op("Transpose", {dw}, {6, 8}, perm({1, 0}), "gradient_turned");
  const ValueId w = b.parameter("w", {6, 8});
  b.graph.outputs = {b.op("Sub", {w, turned}, {6, 8}, {}, "update")};
  CHECK(free_in(b.graph) == std::set<std::string>{"x_turned", "gradient_turned"});
}

// What the problem of the search says of any choices, and what evaluate() says of their strategy.
TEST_CASE("views cost the same in the problem and in its plans, in time and memory", "[views]") {
  int finite = 0, with_views = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Graph graph = seed % 2 == 0 ? random_graph(seed, 9) : mixed_graph(seed, 9);
    const Cluster cluster = small_cluster({2, 2});
    graph.kernels = group_kernels(graph, cluster.profile, "new.*");
    with_views += !graph.kernels.empty();
    const GraphRules rules = *rules_of(graph);
    SearchRequest request{graph, rules, cluster};
    request.memory_limit = Bytes{1} << 40;
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
      const auto cost = evaluate(graph, rules, strategy, model, request.updates);
      REQUIRE(cost);
      INFO("seed " << seed);
      CHECK(cost->total() == Approx(said.cost).epsilon(1e-9));
      CHECK(static_cast<double>(cost->memory.total) == said.peak_use);
    }
  }
  CHECK(finite > 100);
  CHECK(with_views > 10);
}

namespace {

// A cache of 64 tokens; one is written, and products read all of it.
struct Cache {
  GraphWriter b;
  std::string type;
  explicit Cache(const std::string& op, bool turned = false, bool read_before = true) : type(op) {
    const ValueId cache = b.input("cache", {2, 64, 4});
    const ValueId token = b.input("token", turned ? Shape{1, 2, 4} : Shape{2, 1, 4});
    const ValueId q = b.input("q", {2, 1, 4});
    if (read_before) b.graph.outputs.push_back(b.op("ReduceMax", {cache}, {1, 1, 1}, {}, "before"));
    ValueId next = turned ? with_rows(cache, token) : whole(cache, token);
    b.graph.values[next.index()].name = "new.cache";
    const ValueId keys = b.op("Transpose", {next}, {2, 4, 64}, perm({0, 2, 1}), "turn");
    b.graph.outputs.push_back(b.op("MatMul", {q, keys}, {2, 1, 64}, {}, "scores"));
    b.graph.outputs.push_back(next);
    old = cache;
  }
  ValueId old;

 private:
  ValueId whole(ValueId cache, ValueId token) {
    if (type == "TensorScatter")
      return b.op(type, {cache, token, b.ints("at", {5, 5})}, {2, 64, 4});
    const ValueId at = b.constant("at", {2, 1, 4});
    b.graph.values[at.index()].dtype = DType::kInt64;
    b.graph.values[at.index()].data = int64_tensor({2, 1, 4}, {5, 5, 5, 5, 5, 5, 5, 5});
    return b.op(type, {cache, at, token}, {2, 64, 4}, {{"axis", std::int64_t{1}}});
  }
  // As torch writes index_copy along a dimension that is not the first.
  ValueId with_rows(ValueId cache, ValueId token) {
    const ValueId rows = b.op("Transpose", {cache}, {64, 2, 4}, perm({1, 0, 2}), "rows");
    const ValueId at = b.constant("at", {1, 1});
    b.graph.values[at.index()].dtype = DType::kInt64;
    b.graph.values[at.index()].data = int64_tensor({1, 1}, {5});
    const ValueId written = b.op("ScatterND", {rows, at, token}, {64, 2, 4}, {}, "write");
    return b.op("Transpose", {written}, {2, 64, 4}, perm({1, 0, 2}), "back");
  }
};

Seconds seconds_of(const Graph& graph, const StrategyCost& cost, const std::string& type) {
  Seconds sum = 0;
  for (const CostTerm& term : cost.terms) {
    if (graph.op(term.op).type == type) sum += term.seconds;
  }
  return sum;
}

}  // namespace

TEST_CASE("a token is written into its cache for what the token takes", "[views]") {
  const double cache = 4.0 * 2 * 64 * 4, token = 4.0 * 2 * 4, bandwidth = 1e9;
  for (const std::string type : {"ScatterElements", "ScatterND", "TensorScatter"}) {
    const Cache made(type, type == "ScatterND");
    INFO(type);
    const double indices = type == "ScatterElements" ? 8.0 * 8 : type == "ScatterND" ? 8 : 16;
    const StrategyCost in_place = cost_on_one(made.b.graph, "new.*");
    CHECK(seconds_of(made.b.graph, in_place, type) == Approx((2 * token + indices) / bandwidth));
    // Nothing makes the next value of an input here: the cache is copied.
    const StrategyCost copied = cost_on_one(made.b.graph);
    const double all = 2 * cache + 3 * token + indices;
    CHECK(seconds_of(made.b.graph, copied, type) == Approx(all / bandwidth));
    // In place there is one cache, as there was, and no more than scores beside the inputs.
    CHECK(in_place.memory.total < cache + cache / 2);
    CHECK(copied.memory.total >= 2 * cache);
    CHECK(seconds_of(made.b.graph, in_place, "Transpose") == 0);
  }
}

TEST_CASE("a cache that is read later is copied before it is written", "[views]") {
  Cache made("TensorScatter");
  GraphWriter& b = made.b;
  b.graph.outputs.push_back(b.op("ReduceMin", {made.old}, {1, 1, 1}, {}, "after"));
  const CacheWrites writes = cache_writes(b.graph, "new.*");
  CHECK(std::count(writes.in_place.begin(), writes.in_place.end(), 1) == 0);
  const Cache earlier("TensorScatter");
  const CacheWrites found = cache_writes(earlier.b.graph, "new.*");
  CHECK(std::count(found.in_place.begin(), found.in_place.end(), 1) == 1);
  const CacheWrites none = cache_writes(earlier.b.graph, "next.*");
  CHECK(std::count(none.in_place.begin(), none.in_place.end(), 1) == 0);
}

}  // namespace autopar::views_test
