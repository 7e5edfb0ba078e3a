// What is repeated in the backward pass, and that it is worth it.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <random>

#include "autopar/recompute.hpp"
#include "recompute/checkpoints.hpp"
#include "strategies.hpp"

namespace autopar::recompute_test {

using namespace testing;

namespace {

// Four layers whose exponentials and sines are read again in reverse order.
Graph exponentials() {
  GraphWriter b;
  ValueId x = b.input("x", {64, 128});
  std::vector<ValueId> kept;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string l = std::to_string(layer);
    const ValueId w = b.parameter("w" + l, {128, 128});
    const ValueId h = b.op("MatMul", {x, w}, {64, 128}, {}, "fc" + l);
    kept.push_back(b.op("Exp", {h}, {64, 128}, {}, "exp" + l));
    x = b.op("Sin", {kept.back()}, {64, 128}, {}, "sin" + l);
    kept.push_back(x);
  }
  for (int layer = 3; layer >= 0; --layer) {
    const std::string l = std::to_string(layer);
    const auto at = static_cast<std::size_t>(2 * layer);
    x = b.op("Mul", {x, kept[at + 1]}, {64, 128}, {}, "late_sin" + l);
    x = b.op("Mul", {x, kept[at]}, {64, 128}, {}, "late_exp" + l);
  }
  b.graph.outputs = {x};
  return b.graph;
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) names.push_back(op.name);
  return names;
}

}  // namespace

TEST_CASE("cheap ops are repeated where that keeps fewer bytes", "[recompute]") {
  const Graph graph = exponentials();
  const Recomputed again = recompute(graph, Recompute::kCheap);
  REQUIRE(verify(again.graph).ok());
  // An exponential and a sine per layer were kept; now it is one tensor, from which at least the
  // sine is made again.
  CHECK(again.kept_after * 4 < again.kept * 3);
  const auto names = names_of(again.graph);
  const auto place = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  CHECK(place("sin0.again") > place("late_exp1"));
  CHECK(place("sin0.again") < place("late_sin0"));
  CHECK(place("fc0.again") == static_cast<std::ptrdiff_t>(names.size()));
  const Op& late = again.graph.ops[static_cast<std::size_t>(place("late_sin0"))];
  CHECK(again.graph.value(late.inputs[1]).name == "sin0_out.again");
}

TEST_CASE("no pass reads what a later one repeats, and nothing of the update is repeated",
          "[recompute]") {
  // Wherever the backward pass and the update begin: at the peak, before or behind it.
  const std::size_t ops = exponentials().ops.size();
  for (std::size_t backward = 1; backward < ops; ++backward) {
    for (std::size_t update = backward + 1; update <= ops; ++update) {
      Graph graph = exponentials();
      for (std::size_t o = backward; o < ops; ++o) {
        graph.ops[o].phase = o < update ? Phase::kBackward : Phase::kUpdate;
      }
      const Recomputed again = recompute(graph, Recompute::kFull);
      for (const Op& op : again.graph.ops) {
        for (ValueId input : op.inputs) {
          const OpId producer = again.graph.value(input).producer;
          if (producer.valid()) CHECK(again.graph.op(producer).phase <= op.phase);
        }
        if (op.phase == Phase::kUpdate) CHECK(again.op_of_repeat.count(op.name) == 0);
      }
    }
  }
}

TEST_CASE("parts of a forward pass repeat as much as is said of them", "[recompute]") {
  Graph graph = exponentials();
  for (std::size_t o = 12; o < graph.ops.size(); ++o) graph.ops[o].phase = Phase::kBackward;
  const auto repeated = [&](const RecomputeLevels& levels) {
    const Recomputed again = recompute(graph, levels);
    REQUIRE(verify(again.graph).ok());
    std::set<std::string> ops;
    for (const auto& [copy, op] : again.op_of_repeat) ops.insert(op);
    return ops;
  };
  const auto only = [](const std::set<std::string>& all, const std::string& layers) {
    std::set<std::string> found;
    for (const std::string& op : all) {
      if (layers.find(op.back()) != std::string::npos) found.insert(op);
    }
    return found;
  };
  const std::set<std::string> cheap = repeated(Recompute::kCheap);
  CHECK(repeated(RecomputeLevels({{0, Recompute::kCheap}, {6, Recompute::kCheap}})) == cheap);
  // The first two layers of three ops each.
  CHECK(repeated(RecomputeLevels({{0, Recompute::kCheap}, {6, Recompute::kNone}})) ==
        only(cheap, "01"));
  CHECK(repeated(RecomputeLevels({{0, Recompute::kNone}, {6, Recompute::kCheap}})) ==
        only(cheap, "23"));
  // What the second part reads of a segment that is repeated as a whole is kept.
  const std::set<std::string> full =
      repeated(RecomputeLevels({{0, Recompute::kFull}, {6, Recompute::kNone}}));
  CHECK(full.count("fc0") == 1);
  CHECK(full.count("sin1") == 0);
  CHECK(only(full, "23").empty());

  const RecomputeLevels levels({{0, Recompute::kFull}, {6, Recompute::kCheap}});
  CHECK(levels.of(5) == Recompute::kFull);
  CHECK(levels.of(6) == Recompute::kCheap);
  CHECK(std::string(name_of(levels)) == "mixed");
  CHECK(std::string(name_of(RecomputeLevels(Recompute::kFull))) == "full");
}

TEST_CASE("ops that are named are repeated, and no others", "[recompute]") {
  Graph graph = exponentials();
  for (std::size_t o = 12; o < graph.ops.size(); ++o) graph.ops[o].phase = Phase::kBackward;
  const auto again = repeat_these(graph, {"exp0", "sin0", "sin3"});
  REQUIRE(again.ok());
  REQUIRE(verify(again->graph).ok());
  const std::map<std::string, std::string> repeats = {{"exp0.again", "exp0"},
                                                      {"sin0.again", "sin0"}};
  CHECK(again->op_of_repeat == repeats);
  CHECK(again->repeated == 3);
  CHECK(again->graph.ops.size() == graph.ops.size() + 2);
  const auto op = [&](const std::string& name) {
    const auto& ops = again->graph.ops;
    return *std::find_if(ops.begin(), ops.end(), [&](const Op& o) { return o.name == name; });
  };
  const auto reads = [&](const std::string& name, std::size_t input) {
    return again->graph.value(op(name).inputs[input]).name;
  };
  CHECK(reads("late_sin0", 1) == "sin0_out.again");
  CHECK(reads("late_exp0", 1) == "exp0_out.again");
  CHECK(reads("sin0.again", 0) == "exp0_out.again");
  CHECK(reads("exp0.again", 0) == "fc0_out");
  CHECK(reads("fc1", 0) == "sin0_out");
  CHECK(reads("late_exp1", 1) == "exp1_out");
  CHECK(op("exp0.again").phase == Phase::kBackward);
  CHECK(op("sin3").phase == Phase::kBackward);  // nothing else reads it

  const auto refused = [&](const std::string& name, const std::string& reason) {
    const auto none = repeat_these(graph, {name});
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().message ==
          "op '" + name + "': cannot be repeated in the backward pass: " + reason);
  };
  refused("late_sin0", "it is of the backward pass");
  refused("nobody", "there is no op of that name");
  refused("fc1", "nothing there reads what it makes, nor does an op that is repeated");
  CHECK(repeat_these(graph, {"fc1", "exp1"}).ok());
  graph = exponentials();
  refused("exp0", "the model has none");
}

TEST_CASE("products are repeated only when asked for, those with parameters never", "[recompute]") {
  // Scores of all pairs of rows are larger than the rows, and read again in reverse order.
  GraphWriter b;
  ValueId x = b.input("x", {256, 8});
  std::vector<ValueId> probabilities;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string l = std::to_string(layer);
    const ValueId q = b.op("MatMul", {x, b.parameter("w" + l, {8, 8})}, {256, 8}, {}, "q" + l);
    const ValueId k = b.op("Transpose", {q}, {8, 256}, {}, "k" + l);
    const ValueId scores = b.op("MatMul", {q, k}, {256, 256}, {}, "scores" + l);
    probabilities.push_back(b.op("Softmax", {scores}, {256, 256}, {}, "softmax" + l));
    x = b.op("MatMul", {probabilities.back(), q}, {256, 8}, {}, "mixed" + l);
  }
  for (int layer = 3; layer >= 0; --layer) {
    x = b.op("MatMul", {probabilities[static_cast<std::size_t>(layer)], x}, {256, 8}, {},
             "late" + std::to_string(layer));
  }
  b.graph.outputs = {x};
  CHECK(recompute(b.graph, Recompute::kNone).repeated == 0);
  CHECK(recompute(b.graph, Recompute::kCheap).repeated == 0);
  const Recomputed again = recompute(b.graph, Recompute::kProducts);
  REQUIRE(verify(again.graph).ok());
  const auto names = names_of(again.graph);
  const auto place = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const auto count = static_cast<std::ptrdiff_t>(names.size());
  for (const char* name : {"scores0.again", "softmax0.again", "softmax2.again"}) {
    CHECK(place(name) < count);
  }
  CHECK(place("softmax0.again") > place("late1"));
  CHECK(place("softmax0.again") < place("late0"));
  CHECK(place("q0.again") == count);
  CHECK(again.kept_after * 3 / 2 < again.kept);
}

TEST_CASE("random ops and graphs without gain stay as they are", "[recompute]") {
  GraphWriter b;
  const ValueId x = b.input("x", {64, 64});
  const ValueId y = b.op("Bernoulli", {x}, {64, 64}, {}, "mask");
  const ValueId z = b.op("ReduceMax", {y}, {1, 1}, {}, "small");
  const ValueId d = b.op("Mul", {y, z}, {64, 64}, {}, "late");
  b.graph.outputs = {d};
  const Recomputed same = recompute(b.graph, Recompute::kProducts);
  CHECK(same.repeated == 0);
  CHECK(names_of(same.graph) == names_of(b.graph));
  CHECK(parse_recompute("cheap") == Recompute::kCheap);
  CHECK_FALSE(parse_recompute("auto").has_value());
}

namespace {

// What is kept and the largest segment, of a given set of places.
Bytes cost_of(const std::vector<Bytes>& across, const std::vector<Bytes>& made,
              const std::vector<std::size_t>& places) {
  Bytes kept = 0, segment = 0, largest = 0;
  std::size_t next = 0;
  for (std::size_t t = 0; t < made.size(); ++t) {
    segment += made[t];
    if (next == places.size() || places[next] != t) continue;
    kept += across[t];
    largest = std::max(largest, segment);
    segment = 0;
    ++next;
  }
  return kept + std::max(largest, segment);
}

// Of all sets of places at which less is handed on than before and after.
Bytes least_cost(const std::vector<Bytes>& across, const std::vector<Bytes>& made) {
  std::vector<std::size_t> narrow;
  for (std::size_t t = 0; t + 1 < across.size(); ++t) {
    if ((t == 0 || across[t] <= across[t - 1]) && across[t] < across[t + 1]) narrow.push_back(t);
  }
  Bytes least = cost_of(across, made, {});
  for (std::size_t set = 1; set < std::size_t{1} << narrow.size(); ++set) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      if ((set >> i & 1) != 0) places.push_back(narrow[i]);
    }
    least = std::min(least, cost_of(across, made, places));
  }
  return least;
}

}  // namespace

TEST_CASE("checkpoints keep little and leave short segments", "[recompute]") {
  // Layers that hand on one and make eight: of sixteen, segments of one or two.
  std::vector<Bytes> across, made;
  for (int layer = 0; layer < 16; ++layer) {
    for (Bytes handed : {2, 3, 3, 1}) {
      across.push_back(handed);
      made.push_back(2);
    }
  }
  const std::vector<std::size_t> cut = checkpoints(across, made);
  CHECK(cut.size() >= 3);
  for (std::size_t t : cut) CHECK(across[t] == 1);
  // Segments are made shorter by an eighth at a time: beside the best of all sets no worse than
  // that.
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    across.clear();
    made.clear();
    const std::size_t ops = 4 + random() % 20;
    for (std::size_t t = 0; t < ops; ++t) {
      across.push_back(static_cast<Bytes>(random() % 50));
      made.push_back(static_cast<Bytes>(random() % 100));
    }
    const Bytes found = cost_of(across, made, checkpoints(across, made));
    const Bytes best = least_cost(across, made);
    CHECK(found <= cost_of(across, made, {}));
    CHECK(static_cast<double>(found) <= 1.15 * static_cast<double>(best));
  }
}

TEST_CASE("full repeats products with parameters, segment by segment", "[recompute]") {
  // Eight layers of a residual network: each hands on its sum, and the backward pass wants the
  // wide product inside.
  GraphWriter b;
  ValueId x = b.input("x", {64, 32});
  std::vector<ValueId> wide, weights;
  for (int layer = 0; layer < 8; ++layer) {
    const std::string l = std::to_string(layer);
    weights.push_back(b.parameter("w" + l, {32, 256}));
    const ValueId h = b.op("MatMul", {x, weights.back()}, {64, 256}, {}, "up" + l);
    wide.push_back(h);
    const ValueId d =
        b.op("MatMul", {h, b.parameter("d" + l, {256, 32})}, {64, 32}, {}, "down" + l);
    x = b.op("Add", {x, d}, {64, 32}, {}, "sum" + l);
  }
  for (int layer = 7; layer >= 0; --layer) {
    const std::string l = std::to_string(layer);
    const ValueId t =
        b.op("Transpose", {wide[static_cast<std::size_t>(layer)]}, {256, 64}, {}, "turned" + l);
    const ValueId g = b.op("MatMul", {t, x}, {256, 32}, {}, "grad" + l);
    x = b.op("MatMul", {wide[static_cast<std::size_t>(layer)], g}, {64, 32}, {}, "late" + l);
  }
  b.graph.outputs = {x};
  REQUIRE(recompute(b.graph, Recompute::kProducts).repeated == 0);
  const Recomputed again = recompute(b.graph, Recompute::kFull);
  REQUIRE(verify(again.graph).ok());
  CHECK(again.kept_after * 2 < again.kept);
  const auto names = names_of(again.graph);
  const auto place = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  // The first layers are repeated last, just before what reads them.
  CHECK(place("up0.again") > place("late4"));
  CHECK(place("up0.again") < place("turned0"));

  // Checkpoints that are given. The last segment is made once, after all that is kept.
  const Recomputed given = recompute(b.graph, Recompute::kFull, {"sum1_*", "sum5_*"});
  REQUIRE(verify(given.graph).ok());
  for (const std::string op : {"sum0", "sum2", "sum3", "sum4", "up5"}) {
    CHECK(given.op_of_repeat.count(op + ".again") == 1);
  }
  for (const std::string op : {"sum1", "sum5", "sum6", "up7"}) {
    CHECK(given.op_of_repeat.count(op + ".again") == 0);
  }
  CHECK(recompute(b.graph, Recompute::kFull, {"none"}).kept_after > given.kept_after);
}

}  // namespace autopar::recompute_test
