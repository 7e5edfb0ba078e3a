// What keeping or making again takes at least, against all choices of what is kept.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <limits>
#include <random>

#include "recompute/least_kept.hpp"
#include "strategies.hpp"

namespace autopar::least_kept_test {

using namespace testing;

namespace {

// Forward ops that read the one before and any other, some of them products with parameters;
// backward ops that read some of what they made.
Graph random_step(std::mt19937& random) {
  GraphWriter b;
  std::vector<ValueId> made = {b.input("x", {8, 8})};
  const auto any = [&] { return made[random() % made.size()]; };
  const std::size_t ops = 3 + random() % 6;
  for (std::size_t o = 0; o < ops; ++o) {
    const std::string name = "f" + std::to_string(o);
    switch (random() % 4) {
      case 0:
        made.push_back(
            b.op("MatMul", {made.back(), b.parameter("w" + name, {8, 8})}, {8, 8}, {}, name));
        break;
      case 1:
        made.push_back(b.op("MatMul", {made.back(), any()}, {8, 8}, {}, name));
        break;
      case 2:
        made.push_back(b.op("Add", {made.back(), any()}, {8, 8}, {}, name));
        break;
      default:
        made.push_back(b.op("Exp", {any()}, {8, 8}, {}, name));
    }
  }
  const std::size_t forward = b.graph.ops.size();
  ValueId gradient = made.back();
  for (std::size_t o = 0; o < 1 + random() % 3; ++o) {
    gradient = b.op("Mul", {gradient, any()}, {8, 8}, {}, "g" + std::to_string(o));
  }
  for (std::size_t o = forward; o < b.graph.ops.size(); ++o) {
    b.graph.ops[o].phase = Phase::kBackward;
  }
  b.graph.outputs = {gradient};
  return b.graph;
}

// Of one choice: what is there is kept or made again, with all that this reads.
double taken(const Graph& graph, Recompute what, const KeepPrices& prices, unsigned kept) {
  const Repeatable repeatable(graph);
  std::vector<char> is_there(graph.values.size(), 0);
  double sum = 0;
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    bool runs = op.phase == Phase::kBackward;
    if (!runs) {
      const std::size_t v = op.outputs[0].index();
      if (is_there[v] == 0) continue;
      if ((kept >> o & 1) != 0) {
        sum += prices.keep[v];
        continue;
      }
      if (!repeatable.may_repeat(op, what)) return std::numeric_limits<double>::infinity();
      sum += prices.repeat[o];
      runs = true;
    }
    for (const ValueId input : op.inputs) is_there[input.index()] = 1;
  }
  return sum;
}

}  // namespace

TEST_CASE("no choice of what is kept takes less, and one takes that", "[recompute]") {
  std::mt19937 random(11);
  int of_products = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = random_step(random);
    KeepPrices prices;
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      prices.keep.push_back(static_cast<double>(random() % 9));
    }
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      prices.repeat.push_back(static_cast<double>(random() % 5));
    }
    double before = std::numeric_limits<double>::infinity();
    for (const Recompute what : {Recompute::kCheap, Recompute::kProducts, Recompute::kFull}) {
      double least = std::numeric_limits<double>::infinity();
      for (unsigned kept = 0; kept < 1U << graph.ops.size(); ++kept) {
        least = std::min(least, taken(graph, what, prices, kept));
      }
      const LeastKept found = least_kept(graph, what, prices);
      CAPTURE(round, name_of(what));
      CHECK(found.sum == Approx(least).margin(1e-9));
      unsigned kept = 0;
      for (std::size_t o = 0; o < graph.ops.size(); ++o) {
        if (found.keeps[graph.ops[o].outputs[0].index()] != 0) kept |= 1U << o;
      }
      CHECK(taken(graph, what, prices, kept) == Approx(least).margin(1e-9));
      CHECK(found.sum <= before + 1e-9);
      of_products += found.sum < before - 1e-9 && before < 1e9;
      before = found.sum;
    }
  }
  CHECK(of_products > 20);
}

}  // namespace autopar::least_kept_test
