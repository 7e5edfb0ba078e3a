// What the passes of a step add up, and what the update makes of the sums.
#include <catch2/catch.hpp>

#include "autopar/grad.hpp"
#include "strategies.hpp"

namespace autopar::accumulate_test {

using namespace testing;

namespace {

using Catch::Matchers::Contains;

// Logits [4, 6] of two layers; `loss`: a number beside them.
Graph network(const std::string& weight = "W1") {
  GraphWriter b;
  const ValueId x = b.input("X", {4, 8});
  const ValueId h = b.op("MatMul", {x, b.parameter(weight, {8, 8})}, {4, 8}, {}, "fc1");
  const ValueId y = b.op("MatMul", {h, b.parameter("W2", {8, 6})}, {4, 6}, {}, "fc2");
  const ValueId mean = b.op("ReduceMean", {y}, {}, {{"keepdims", std::int64_t{0}}}, "mean");
  b.graph.value(mean).name = "told";
  b.graph.outputs = {y, mean};
  return std::move(b.graph);
}

TrainingOptions options_of(const std::string& loss, std::int64_t passes) {
  TrainingOptions options;
  options.loss = loss;
  options.micro_batches = passes;
  return options;
}

TrainingStep step_of(const TrainingOptions& options) {
  auto step = training_step(network(), options);
  INFO((step.ok() ? "" : step.error().message));
  REQUIRE(step.ok());
  return std::move(*step);
}

ValueId named(const Graph& graph, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return ValueId(static_cast<std::int64_t>(v));
  }
  return {};
}

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Constants of one element that the update's ops read, apart from those of the optimizer.
bool update_multiplies_by(const TrainingStep& step, double factor) {
  for (const Op& op : step.graph.ops) {
    if (op.phase != Phase::kUpdate) continue;
    for (ValueId input : op.inputs) {
      const Tensor* tensor = input.valid() ? step.graph.value(input).tensor() : nullptr;
      if (tensor == nullptr || tensor->dtype != DType::kFloat32) continue;
      const auto numbers = float_values(*tensor);
      if (numbers && numbers->size() == 1 && (*numbers)[0] == Approx(factor)) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("each parameter has a float32 sum that the passes add to", "[accumulate]") {
  for (const Precision precision :
       {Precision::kFp32, Precision::kMixedBf16, Precision::kFp16, Precision::kMixedFp16}) {
    CAPTURE(name_of(precision));
    TrainingOptions options = options_of("told", 3);
    options.precision = precision;
    const TrainingStep step = step_of(options);
    const Graph& graph = step.graph;
    CHECK(graph.passes == 3);
    CHECK(step.facts.accumulators == std::vector<std::string>{"acc.W1", "acc.W2"});
    for (const std::string& name : step.facts.accumulators) {
      const ValueId before = named(graph, name), next = named(graph, "new." + name);
      REQUIRE(before.valid());
      REQUIRE(next.valid());
      CHECK(contains(graph.inputs, before));
      CHECK(contains(graph.outputs, next));
      CHECK(graph.value(before).dtype == DType::kFloat32);
      CHECK(graph.value(next).dtype == DType::kFloat32);
      CHECK(graph.value(before).shape == graph.value(named(graph, name.substr(4))).shape);
      const Op& add = graph.op(graph.value(next).producer);
      CHECK(add.type == "Add");
      CHECK(add.phase == Phase::kBackward);
      CHECK(contains(add.inputs, before));
    }
    // The update reads of the passes the sums alone.
    for (const Op& op : graph.ops) {
      if (op.phase != Phase::kUpdate) continue;
      for (ValueId input : op.inputs) {
        const OpId maker = graph.value(input).producer;
        CHECK((!maker.valid() || graph.op(maker).phase == Phase::kUpdate));
      }
    }
  }
}

TEST_CASE("a step of one pass has no sums", "[accumulate]") {
  const TrainingStep step = step_of(options_of("cross_entropy", 1));
  CHECK(step.facts.accumulators.empty());
  CHECK(step.graph.passes == 1);
  CHECK(!named(step.graph, "acc.W1").valid());
}

TEST_CASE("how the losses of the passes become one", "[accumulate]") {
  for (const bool mean : {true, false}) {
    CAPTURE(mean);
    const auto with = [&](const std::string& loss) {
      TrainingOptions options = options_of(loss, 5);
      options.mean_gradients = mean;
      return step_of(options);
    };
    // The model's own, and the mean of squares: the mean, and so are the gradients.
    for (const char* loss : {"told", "mse"}) {
      const TrainingStep step = with(loss);
      CHECK(step.facts.loss_combining == LossCombining::kMean);
      CHECK(update_multiplies_by(step, 0.2) == mean);
      CHECK(!named(step.graph, "acc.loss").valid());
    }
    const TrainingStep sum = with("sum");
    CHECK(sum.facts.loss_combining == LossCombining::kSum);
    CHECK(!update_multiplies_by(sum, 0.2));
    // Labels that count are counted, in the forward pass.
    const TrainingStep entropy = with("cross_entropy");
    CHECK(entropy.facts.loss_combining == LossCombining::kLast);
    CHECK(entropy.facts.accumulators ==
          std::vector<std::string>{"acc.W1", "acc.W2", "acc.loss", "acc.count"});
    const Graph& graph = entropy.graph;
    for (const char* name : {"acc.loss", "acc.count"}) {
      const ValueId next = named(graph, std::string("new.") + name);
      REQUIRE(next.valid());
      CHECK(graph.value(next).shape.empty());
      CHECK(graph.op(graph.value(next).producer).phase == Phase::kForward);
    }
    const ValueId loss = named(graph, "loss");
    REQUIRE(loss.valid());
    CHECK(graph.op(graph.value(loss).producer).phase == Phase::kUpdate);
    CHECK(graph.outputs[0] == loss);
    // Four samples in five passes: the gradients are divided by 20 before they are added up.
    CHECK(update_multiplies_by(entropy, 20) == mean);
  }
}

TEST_CASE("work is that of all passes", "[accumulate]") {
  const ForwardWork one = step_of(options_of("cross_entropy", 1)).facts.forward,
                    three = step_of(options_of("cross_entropy", 3)).facts.forward;
  CHECK(three.samples == 3 * one.samples);
  REQUIRE(one.contractions.size() == 1);
  CHECK(three.contractions.at(DType::kFloat32) == 3 * one.contractions.at(DType::kFloat32));
}

TEST_CASE("a name that a sum needs is taken", "[accumulate]") {
  for (const char* name : {"acc.W2", "new.acc.W2"}) {
    const auto step = training_step(network(name), options_of("told", 2));
    REQUIRE(!step.ok());
    CHECK_THAT(step.error().message, Contains("'" + std::string(name) + "'") && Contains("rename"));
    CHECK(training_step(network(name), options_of("told", 1)).ok());
  }
  const auto step = training_step(network("acc.count"), options_of("cross_entropy", 2));
  REQUIRE(!step.ok());
  CHECK_THAT(step.error().message, Contains("'acc.count'"));
}

}  // namespace autopar::accumulate_test
