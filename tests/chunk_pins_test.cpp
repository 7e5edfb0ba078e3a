// pins_of_part(): what pins of a step ask of a part of it.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "planning/pipelines/chunk_pins.hpp"
#include "strategies.hpp"

namespace autopar::chunk_pins_test {

using namespace testing;

namespace {

// y is made, and handed on; its gradient comes back.
Graph first_part() {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4}), w = b.parameter("w", {4, 4});
  const ValueId back = b.input("y.back", {4, 4});
  const ValueId y = b.op("MatMul", {x, w}, {4, 4}, {}, "y");
  const ValueId gradient = b.op("MatMul", {x, back}, {4, 4}, {}, "w.grad");
  b.graph.ops[1].phase = Phase::kBackward;
  b.graph.outputs = {y, gradient};
  for (const ValueId handed : {back, y}) b.graph.values[handed.index()].of_micro_batch = true;
  return b.graph;
}

StrategyFile pins() {
  StrategyFile file;
  ValuePin all;
  all.hub_spec = "[{},{}]";
  all.spec = all.kept_spec = all.backward_hub_spec = all.update_hub_spec = "[{d},{}]";
  file.pins.values = {{"x", all}, {"y_out", all}, {"y.back", all}, {"elsewhere", all}};
  file.pins.ops["y"] = {};
  file.pins.ops["elsewhere"] = {};
  return file;
}

}  // namespace

TEST_CASE("a part keeps the pins of what it has", "[chunk_pins]") {
  const StrategyFile kept = pins_of_part(pins(), first_part());
  CHECK(kept.pins.ops.size() == 1);
  CHECK(kept.pins.values.size() == 3);
  CHECK(kept.pins.values.count("elsewhere") == 0);
}

TEST_CASE("how ops of other parts get a value is not asked of a part", "[chunk_pins]") {
  std::map<std::string, ValuePin> values = pins_of_part(pins(), first_part()).pins.values;
  // Read in both passes, and in no update.
  CHECK(values["x"].hub_spec == "[{},{}]");
  CHECK(values["x"].kept_spec == "[{d},{}]");
  CHECK(values["x"].backward_hub_spec == "[{d},{}]");
  CHECK(values["x"].update_hub_spec.empty());
  // In the backward pass alone: beside what is kept the hub is of the forward pass.
  CHECK(values["y.back"].hub_spec.empty());
  CHECK(values["y.back"].backward_hub_spec == "[{d},{}]");
  // By no op of this part.
  CHECK(values["y_out"].spec == "[{d},{}]");
  CHECK(values["y_out"].hub_spec.empty());
  CHECK(values["y_out"].kept_spec.empty());
  CHECK(values["y_out"].backward_hub_spec.empty());
}

TEST_CASE("what the step hands out leaves as it is pinned", "[chunk_pins]") {
  Graph part = first_part();
  part.values[part.outputs[0].index()].of_micro_batch = false;
  std::map<std::string, ValuePin> values = pins_of_part(pins(), part).pins.values;
  CHECK(values["y_out"].hub_spec == "[{},{}]");
}

TEST_CASE("partial sums of other parts are added up on the way", "[chunk_pins]") {
  StrategyFile file = pins();
  file.pins.values["y.back"].spec = "[{},{}] +{d}";
  CHECK(pins_of_part(file, first_part()).pins.values["y.back"].spec.empty());
}

TEST_CASE("a part keeps pins of what is made of its own", "[chunk_pins]") {
  StrategyFile file = pins();
  file.pins.ops["y.again"] = {};
  file.pins.ops["elsewhere.again"] = {};
  file.pins.values["y_out.hub"] = {};
  const Pins kept = pins_of_part(file, first_part()).pins;
  CHECK(kept.ops.count("y.again") == 1);
  CHECK(kept.ops.count("elsewhere.again") == 0);
  CHECK(kept.values.count("y_out.hub") == 1);
}

TEST_CASE("parts are pinned alike by their places", "[chunk_pins]") {
  const Graph one = first_part();
  Graph other = one;
  for (Op& op : other.ops) op.name = "other." + op.name;
  for (Value& value : other.values) value.name = "other." + value.name;
  std::vector<ValueId> same;
  for (std::size_t v = 0; v < one.values.size(); ++v)
    same.emplace_back(static_cast<std::int64_t>(v));
  StrategyFile file;
  CHECK(are_pinned_alike(file, one, other, same));
  file.pins.ops["y"].in_strategy = {{1, 1}, {1, 2}};
  CHECK_FALSE(are_pinned_alike(file, one, other, same));
  CHECK_FALSE(are_pinned_alike(file, other, one, same));
  file.pins.ops["other.y"] = file.pins.ops["y"];
  CHECK(are_pinned_alike(file, one, other, same));
  file.pins.ops["y.again"].in_strategy = {{2, 1}, {1, 1}};
  CHECK_FALSE(are_pinned_alike(file, one, other, same));
  file.pins.ops["other.y.again"] = file.pins.ops["y.again"];
  CHECK(are_pinned_alike(file, one, other, same));
  file.pins.values["w"].spec = "[{d},{}]";
  CHECK_FALSE(are_pinned_alike(file, one, other, same));
  file.pins.values["other.w"].spec = "[{},{d}]";
  CHECK_FALSE(are_pinned_alike(file, one, other, same));
  file.pins.values["other.w"].spec = "[{d},{}]";
  CHECK(are_pinned_alike(file, one, other, same));
}

}  // namespace autopar::chunk_pins_test
