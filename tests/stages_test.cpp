// Chunks of a step: each op in one of them, values handed on in the directions of the passes, cuts
// that balance them against all cuts that there are.
#include "autopar/stages.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "autopar/grad.hpp"
#include "graphs.hpp"
#include "planning/pipelines/step_units.hpp"

namespace autopar::stages_test {

using namespace testing;

namespace {

// x + W2 tanh(W1 x), again and again; what depends on data alone is read by every layer.
Graph network(int layers) {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 12});
  const ValueId mask = b.op("Relu", {x}, {8, 12}, {}, "mask");
  ValueId h = b.op("MatMul", {x, b.parameter("W", {12, 12})}, {8, 12}, {}, "first");
  for (int l = 0; l < layers; ++l) {
    const std::string name = "layer" + std::to_string(l);
    const ValueId up =
        b.op("MatMul", {h, b.parameter(name + ".up", {12, 24})}, {8, 24}, {}, name + ".up");
    const ValueId act = b.op("Tanh", {up}, {8, 24}, {}, name + ".act");
    const ValueId down =
        b.op("MatMul", {act, b.parameter(name + ".down", {24, 12})}, {8, 12}, {}, name + ".down");
    const ValueId masked = b.op("Mul", {down, mask}, {8, 12}, {}, name + ".mask");
    h = b.op("Add", {h, masked}, {8, 12}, {}, name + ".sum");
  }
  b.graph.outputs = {h};
  b.graph.name = "residual";
  return std::move(b.graph);
}

Graph step_of(int layers, double clip_norm = 0) {
  TrainingOptions options;
  options.loss = "mse";
  options.optimizer = Optimizer::kAdamW;
  options.micro_batches = 4;
  options.clip_norm = clip_norm;
  auto step = training_step(network(layers), options);
  INFO((step.ok() ? "" : step.error().message));
  REQUIRE(step.ok());
  mark_accumulators(step->graph);
  return std::move(step->graph);
}

OpId op_named(const Graph& graph, const std::string& name) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].name == name) return OpId(static_cast<std::int64_t>(o));
  }
  return {};
}

std::set<std::string> names_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::set<std::string> names;
  for (ValueId id : ids) names.insert(graph.value(id).name);
  return names;
}

void check_chunks(const Graph& step, const Chunks& found) {
  std::map<std::string, int> times;
  std::map<std::string, int> outputs;
  for (const Chunk& chunk : found.chunks) {
    REQUIRE(verify(chunk.graph).ok());
    CHECK(chunk.graph.passes == step.passes);
    for (const Op& op : chunk.graph.ops) ++times[op.name];
    for (const std::string& name : names_of(chunk.graph, chunk.graph.outputs)) ++outputs[name];
  }
  for (const Op& op : step.ops) {
    const bool is_shared = op.name == "mask" || times[op.name] > 1;
    CHECK(times[op.name] >= 1);
    if (!is_shared) continue;
    // Only what needs no parameter, or single numbers of the update.
    for (ValueId id : op.inputs) {
      const Value& value = step.value(id);
      const bool is_number = element_count(value.shape) == 1;
      CHECK((value.kind != ValueKind::kParameter || (op.phase == Phase::kUpdate && is_number)));
    }
  }
  for (ValueId id : step.outputs) CHECK(outputs[step.value(id).name] == 1);
  const std::set<std::string> inputs = names_of(step, step.inputs);
  for (const Handed& handed : found.handed) {
    const auto& from = found.chunks[static_cast<std::size_t>(handed.from)].graph;
    CHECK(names_of(from, from.outputs).count(handed.value) == 1);
    for (int to : handed.to) {
      CHECK(to != handed.from);
      const auto& reader = found.chunks[static_cast<std::size_t>(to)].graph;
      CHECK(names_of(reader, reader.inputs).count(handed.value) == 1);
    }
  }
  for (const Chunk& chunk : found.chunks) {
    for (ValueId id : chunk.graph.inputs) {
      const std::string& name = chunk.graph.value(id).name;
      const bool is_handed = std::any_of(found.handed.begin(), found.handed.end(),
                                         [&](const Handed& h) { return h.value == name; });
      CHECK((inputs.count(name) == 1) != is_handed);
    }
  }
}

}  // namespace

TEST_CASE("every op is in its chunk, wherever a step is cut", "[stages]") {
  Draw draw{std::mt19937_64(7)};
  for (int trial = 0; trial < 40; ++trial) {
    const Graph step = step_of(2 + trial % 4, trial % 3 == 0 ? 0.5 : 0);
    std::vector<OpId> forward;
    for (std::size_t o = 1; o < step.ops.size(); ++o) {
      if (step.ops[o].phase == Phase::kForward) forward.emplace_back(static_cast<std::int64_t>(o));
    }
    std::set<OpId> cuts;
    for (std::size_t i = 0; i < 1 + draw.below(3); ++i)
      cuts.insert(forward[draw.below(forward.size())]);
    CAPTURE(trial);
    const auto found = chunks_of(step, {cuts.begin(), cuts.end()});
    if (!found) {
      CHECK(found.error().message.find("no op of its own") != std::string::npos);
      continue;
    }
    check_chunks(step, *found);
  }
}

TEST_CASE("between layers one value goes forward and one gradient back", "[stages]") {
  const Graph step = step_of(4);
  const std::vector<OpId> cuts = {op_named(step, "layer1.up"), op_named(step, "layer2.up"),
                                  op_named(step, "layer3.up")};
  const auto found = chunks_of(step, cuts);
  INFO((found.ok() ? "" : found.error().message));
  REQUIRE(found.ok());
  check_chunks(step, *found);
  std::map<std::pair<int, int>, int> messages;
  for (const Handed& handed : found->handed) {
    if (!handed.in_pass) continue;
    for (int to : handed.to) ++messages[{handed.from, to}];
  }
  const std::map<std::pair<int, int>, int> expected = {{{0, 1}, 1}, {{1, 2}, 1}, {{2, 3}, 1},
                                                       {{1, 0}, 1}, {{2, 1}, 1}, {{3, 2}, 1}};
  CHECK(messages == expected);
  // The layers between are the same but for names, and no others are.
  CHECK(same_values(found->chunks[1].graph, found->chunks[2].graph).has_value());
  CHECK(!same_values(found->chunks[0].graph, found->chunks[1].graph).has_value());
  CHECK(!same_values(found->chunks[2].graph, found->chunks[3].graph).has_value());
  const auto map = same_values(found->chunks[1].graph, found->chunks[2].graph);
  const Graph &one = found->chunks[1].graph, &other = found->chunks[2].graph;
  for (std::size_t v = 0; v < map->size(); ++v) {
    if (one.values[v].name == "layer1.up") CHECK(other.value((*map)[v]).name == "layer2.up");
  }
  Graph changed = other;
  changed.ops.back().attributes["new"] = std::int64_t{1};
  CHECK(!same_values(one, changed).has_value());
}

TEST_CASE("the norm of all gradients is made before updates", "[stages]") {
  const Graph step = step_of(3, 0.5);
  const auto found = chunks_of(step, {op_named(step, "layer1.up"), op_named(step, "layer2.up")});
  REQUIRE(found.ok());
  check_chunks(step, *found);
  int reduce = 0;
  for (const Chunk& chunk : found->chunks) reduce += chunk.reduce_ops.empty() ? 0 : 1;
  CHECK(reduce == 3);
  // Each chunk adds up its own, and the last one the sums: nobody else waits for another.
  for (const Handed& handed : found->handed) {
    for (int to : handed.to) {
      if (!handed.in_pass) CHECK((to == 2 || handed.from == 2));
    }
  }
}

Result<std::vector<OpId>> cut_into(const Graph& step, int chunks,
                                   const std::vector<Seconds>& seconds, double bytes_per_s) {
  const OpSeconds of{seconds, std::vector<Seconds>(seconds.size())};
  return balanced_cuts(step, chunks, cut_places(step, chunks, of), of, bytes_per_s);
}

TEST_CASE("cuts leave less to a chunk that takes more beside its ops", "[stages]") {
  const Graph step = step_of(6);
  const OpSeconds seconds{std::vector<Seconds>(step.ops.size(), 1),
                          std::vector<Seconds>(step.ops.size())};
  const std::vector<OpId> places = cut_places(step, 2, seconds);
  const auto even = balanced_cuts(step, 2, places, seconds, 1e18);
  REQUIRE(even.ok());
  const auto count = [&](OpId from, OpId to) {
    return static_cast<double>((to.valid() ? to.index() : step.ops.size()) - from.index());
  };
  for (const std::size_t slow : {0U, 1U}) {
    const auto cuts = balanced_cuts(
        step, 2, places, seconds, 1e18, "new.*",
        [&](std::size_t c, OpId from, OpId to) { return c == slow ? 10 * count(from, to) : 0; });
    REQUIRE(cuts.ok());
    CAPTURE(slow, even->front().index(), cuts->front().index());
    CHECK((slow == 0 ? cuts->front() < even->front() : even->front() < cuts->front()));
  }
}

TEST_CASE("balanced cuts are as good as any, to what like places may cost", "[stages]") {
  Draw draw{std::mt19937_64(3)};
  for (int trial = 0; trial < 30; ++trial) {
    const Graph step = step_of(2 + trial % 5);
    std::vector<Seconds> seconds;
    for (std::size_t o = 0; o < step.ops.size(); ++o) {
      seconds.push_back(trial % 2 == 0 ? 1.0 : 1.0 + static_cast<double>(draw.below(9)));
    }
    const int chunks = 2 + trial % 2;
    CAPTURE(trial, chunks);
    const auto cuts = cut_into(step, chunks, seconds, 1e18);
    INFO((cuts.ok() ? "" : cuts.error().message));
    REQUIRE(cuts.ok());
    REQUIRE(static_cast<int>(cuts->size()) == chunks - 1);
    const auto busiest = [&](const std::vector<OpId>& at) {
      std::vector<Seconds> sums(static_cast<std::size_t>(chunks));
      for (std::size_t o = 0; o < step.ops.size(); ++o) {
        if (step.ops[o].phase != Phase::kForward) continue;
        std::size_t chunk = 0;
        while (chunk < at.size() && at[chunk].index() <= o) ++chunk;
        sums[chunk] += seconds[o];
      }
      return *std::max_element(sums.begin(), sums.end());
    };
    // Of all cuts behind sums, which is where least crosses.
    Seconds best = 1e18;
    std::vector<OpId> places;
    for (std::size_t o = 1; o < step.ops.size(); ++o) {
      const std::string& name = step.ops[o].name;
      if (name.size() > 3 && name.substr(name.size() - 3) == ".up") {
        places.emplace_back(static_cast<std::int64_t>(o));
      }
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (chunks == 2) best = std::min(best, busiest({places[i]}));
      for (std::size_t j = i + 1; chunks == 3 && j < places.size(); ++j) {
        best = std::min(best, busiest({places[i], places[j]}));
      }
    }
    if (best < 1e18) CHECK(busiest(*cuts) <= best * 1.01 + 1e-9);
    const auto found = chunks_of(step, *cuts);
    REQUIRE(found.ok());
    check_chunks(step, *found);
  }
  const Graph step = step_of(2);
  const std::vector<Seconds> seconds(step.ops.size(), 1);
  CHECK(cut_into(step, 1, seconds, 1)->empty());
  CHECK(!cut_into(step, 50, seconds, 1).ok());
  CHECK(!cut_into(step, 0, seconds, 1).ok());
  Graph one_pass = step;
  one_pass.passes = 1;
  one_pass.accumulates = false;
  CHECK(!chunks_of(one_pass, {OpId(3)}).ok());
  CHECK(!chunks_of(step, {OpId(static_cast<std::int64_t>(step.ops.size()) - 1)}).ok());
  CHECK(!chunks_of(step, {OpId(3), OpId(2)}).ok());
}

TEST_CASE("a step is cut between ops that read parameters", "[stages]") {
  const Graph step = step_of(3);
  std::vector<std::size_t> readers;
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const std::vector<ValueId>& inputs = step.ops[o].inputs;
    const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) {
      return step.value(id).kind == ValueKind::kParameter;
    });
    if (reads && step.ops[o].phase == Phase::kForward) readers.push_back(o);
  }
  const std::vector<OpId> cuts = cut_places(
      step, 2,
      {std::vector<Seconds>(step.ops.size(), 1), std::vector<Seconds>(step.ops.size(), 0)});
  CHECK(cuts.size() >= 3);
  for (const OpId cut : cuts) {
    INFO(step.op(cut).name);
    CHECK(readers.front() < cut.index());
    CHECK(readers.back() >= cut.index());
  }
}

// Layers of one width, each a product and its bias, which have one op of the user's. `late`: what
// the first layer makes is added behind the last but one, too.
Graph layers_of_one_width(int layers, bool late = false) {
  GraphWriter b;
  ValueId h = b.input("X", {8, 12});
  ValueId side;
  for (int l = 0; l < layers; ++l) {
    const std::string name = "fc" + std::to_string(l);
    if (late && l + 1 == layers) h = b.op("Add", {h, side}, {8, 24}, {}, "join");
    const std::int64_t width = l + 1 < layers ? 24 : 4, from = l == 0 ? 12 : 24;
    h = b.op("MatMul", {h, b.parameter(name + ".w", {from, width})}, {8, width}, {}, name);
    h = b.op("Add", {h, b.parameter(name + ".b", {width})}, {8, width}, {}, name + "/add");
    h = b.op("Tanh", {h}, {8, width}, {}, "act" + std::to_string(l));
    if (l == 0) side = h;
  }
  b.graph.outputs = {h};
  TrainingOptions options;
  options.loss = "mse";
  options.micro_batches = 4;
  auto step = training_step(std::move(b.graph), options);
  REQUIRE(step.ok());
  mark_accumulators(step->graph);
  return std::move(step->graph);
}

TEST_CASE("a gradient is in the chunk of the op whose it is", "[stages]") {
  const Graph step = layers_of_one_width(3);
  const auto found = chunks_of(step, {op_named(step, "fc1/add")});
  REQUIRE(found.ok());
  int of_fc1 = 0;
  for (std::size_t c = 0; c < 2; ++c) {
    for (const Op& op : found->chunks[c].graph.ops) {
      INFO(op.name);
      const auto begins = [&](const char* with) { return op.name.rfind(with, 0) == 0; };
      const bool is_behind = begins("fc1/add") || begins("fc1.b") || begins("fc2");
      const bool is_before = begins("fc1.grad") || begins("fc1.w") || begins("fc0");
      CHECK_FALSE((is_behind && c == 0));
      CHECK_FALSE((is_before && c == 1));
      of_fc1 += op.name.rfind("fc1.grad", 0) == 0 ? 1 : 0;
    }
  }
  CHECK(of_fc1 > 0);
}

// Those of the products and their busiest chunk, where each product takes as long.
std::pair<std::set<std::string>, int> cuts_of_products(const Graph& step, int chunks) {
  OpSeconds seconds{std::vector<Seconds>(step.ops.size(), 0),
                    std::vector<Seconds>(step.ops.size(), 0)};
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const bool is_product = step.ops[o].type == "MatMul" && step.ops[o].phase == Phase::kForward;
    seconds.forward[o] = is_product ? 1 : 0;
  }
  const std::vector<OpId> places = cut_places(step, chunks, seconds);
  std::set<std::string> names;
  for (const OpId cut : places) names.insert(step.op(cut).name);
  auto ends = balanced_cuts(step, chunks, places, seconds, 1e12);
  REQUIRE(ends.ok());
  ends->push_back(OpId(static_cast<std::int64_t>(step.ops.size())));
  int busiest = 0;
  std::size_t from = 0;
  for (const OpId end : *ends) {
    Seconds busy = 0;
    for (; from < end.index(); ++from) busy += seconds.forward[from];
    busiest = std::max(busiest, static_cast<int>(busy));
  }
  return {std::move(names), busiest};
}

TEST_CASE("layers of one width are cut between them, too", "[stages]") {
  const auto [names, busiest] = cuts_of_products(layers_of_one_width(5), 2);
  for (const char* layer : {"fc1", "fc2", "fc3"}) CHECK(names.count(layer) == 1);
  CHECK(busiest == 3);
}

TEST_CASE("beside a branch that joins late a step is cut, too", "[stages]") {
  for (const int chunks : {2, 3, 4}) {
    CAPTURE(chunks);
    const auto [names, busiest] = cuts_of_products(layers_of_one_width(12, true), chunks);
    CHECK(names.count("fc6") == 1);
    CHECK(busiest == 12 / chunks);
  }
}

TEST_CASE("cuts are where the user said of which stage ops are", "[stages]") {
  const Graph step = step_of(4);
  std::vector<int> said(step.ops.size(), -1);
  const auto say = [&](const std::string& op, int stage) {
    said[op_named(step, op).index()] = stage;
  };
  say("layer1.up", 1);
  say("layer3.act", 2);
  const auto cuts = cuts_of_stages(step, said, 3);
  REQUIRE(cuts.ok());
  CHECK(*cuts == std::vector<OpId>{op_named(step, "layer1.up"), op_named(step, "layer3.act")});
  const auto says = [&](int stages, const std::string& what) {
    const auto refused = cuts_of_stages(step, said, stages);
    REQUIRE(!refused.ok());
    INFO(refused.error().message);
    CHECK(refused.error().code == ErrorCode::kInput);
    CHECK(refused.error().message.find(what) != std::string::npos);
  };
  says(2, "op 'layer3.act': pipeline_stage 2, and there are stages 0 to 1");
  says(4, "no op is of stage 3");
  say("layer3.sum", 1);
  says(3, "op 'layer3.sum': pipeline_stage 1 behind op 'layer3.act' of stage 2");
  say("layer1.up", -1);
  say("layer3.sum", -1);
  says(3, "op 'layer3.act': pipeline_stage 2: no op before it is of stage 1");
}

TEST_CASE("between like cuts lie units that are the same but for names", "[stages]") {
  const Graph step = step_of(5);
  const std::vector<OpId> cuts = like_cuts(step);
  REQUIRE(cuts.size() >= 4);
  const auto chunks = chunks_of(step, cuts);
  REQUIRE(chunks.ok());
  for (std::size_t c = 2; c + 1 < chunks->chunks.size(); ++c) {
    CHECK(same_values(chunks->chunks[1].graph, chunks->chunks[c].graph).has_value());
  }
}

TEST_CASE("without the update a chunk has all its passes, and gives its sums of gradients",
          "[stages]") {
  const Graph step = step_of(3);
  const auto chunks = chunks_of(step, {op_named(step, "layer1.up")});
  REQUIRE(chunks.ok());
  for (const Chunk& chunk : chunks->chunks) {
    const Graph passes = without_update(chunk.graph);
    REQUIRE(verify(passes).ok());
    std::set<std::string> ops, expected;
    for (const Op& op : passes.ops) ops.insert(op.name);
    for (const Op& op : chunk.graph.ops) {
      if (op.phase != Phase::kUpdate) expected.insert(op.name);
    }
    CHECK(ops == expected);
    const std::set<std::string> outputs = names_of(passes, passes.outputs);
    for (const Value& value : chunk.graph.values) {
      const bool is_sum = value.name.rfind("new.acc.", 0) == 0;
      if (is_sum) CHECK(outputs.count(value.name) == 1);
    }
  }
}

TEST_CASE("units that follow each other hand on what they are handed") {
  const Graph step = step_of(5);
  const std::vector<OpId> cuts = like_cuts(step);
  REQUIRE(cuts.size() >= 3);
  const auto units = units_of(step, cuts, "new.*", 6);
  REQUIRE(units.ok());
  const Graph& kind = units->kinds[units->usual];
  const auto inputs = names_of(kind, kind.inputs), outputs = names_of(kind, kind.outputs);
  // The activation on the way forward, its gradient on the way back.
  CHECK(units->handed_on.size() >= 2);
  std::set<std::string> known;
  bool has_gradient = false;
  for (const auto& [leaves, comes] : units->handed_on) {
    CHECK(outputs.count(leaves) == 1);
    CHECK(inputs.count(comes) == 1);
    CHECK(known.insert(leaves).second);
    CHECK(known.insert(comes).second);
    has_gradient |= leaves.find("grad") != std::string::npos;
    const auto shape_of = [&](const std::string& name) {
      const auto found = std::find_if(kind.values.begin(), kind.values.end(),
                                      [&](const Value& value) { return value.name == name; });
      return found->shape;
    };
    CHECK(shape_of(leaves) == shape_of(comes));
  }
  CHECK(has_gradient);
}

}  // namespace autopar::stages_test
