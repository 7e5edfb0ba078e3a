// The memory that search and evaluation count against a plain reading of what it should be.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <map>
#include <set>

#include "autopar/memory.hpp"
#include "graphs.hpp"

namespace autopar::memory_test {

using namespace testing;

namespace {

// What the copies take when those that lie alike along views are one piece of memory: the plain
// reading of the contract of MemoryCharge, for one strategy.
class Pieces {
 public:
  Pieces(const Graph& graph, const GraphRules& rules, const Strategy& strategy)
      : graph_(graph), strategy_(strategy), readers_(readers_of(graph)) {
    specs_ = *op_specs_of(graph, rules, strategy);
    const int horizon = static_cast<int>(graph.ops.size());
    bytes_.assign(static_cast<std::size_t>(horizon), 0);
    const std::vector<ValueId> updated = updated_inputs(graph, "new.*");
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (!graph.values[v].producer.valid()) add(ValueId(static_cast<std::int64_t>(v)));
    }
    for (const Op& op : graph.ops) add(op.outputs[0]);
    for (std::size_t v = 0; v < updated.size(); ++v) {
      if (updated[v].valid()) free_place(v, updated[v]);
    }
    for (int t = 0; t < horizon; ++t) {
      std::map<int, Bytes> of_piece;
      for (const Copy& copy : copies_) {
        if (copy.begin <= t && t < copy.end) of_piece[copy.piece] = copy.bytes;
      }
      for (const auto& [piece, bytes] : of_piece) bytes_[static_cast<std::size_t>(t)] += bytes;
    }
  }
  Bytes at(int time) const { return bytes_[static_cast<std::size_t>(time)]; }

 private:
  struct Copy {
    ValueId value;
    int piece, begin, end;
    Bytes bytes;
    Spec spec;
    bool leaves;
  };

  int copy(ValueId id, const Spec& spec, int from, int begin, int end, bool leaves = false) {
    const bool same = from >= 0 && copies_[static_cast<std::size_t>(from)].spec == spec;
    const int piece = same ? copies_[static_cast<std::size_t>(from)].piece : pieces_++;
    const Value& value = graph_.value(id);
    const Bytes bytes = local_bytes(spec, value.shape, value.dtype, strategy_.mesh);
    copies_.push_back({id, piece, begin, end, bytes, spec, leaves});
    return static_cast<int>(copies_.size()) - 1;
  }

  void add(ValueId id) {
    const Value& value = graph_.value(id);
    const Readers& r = readers_[id.index()];
    const ValueSpecs& v = strategy_.values[id.index()];
    const int horizon = static_cast<int>(graph_.ops.size());
    const int last = r.uses.empty() ? r.produced : r.uses.back().op.value;
    int from = -1;
    if (!value.producer.valid()) {
      from = copy(id, v.spec, -1, 0, horizon);
    } else if (is_view(graph_.op(value.producer))) {
      const Op& op = graph_.op(value.producer);
      const int source = read_from_.at(op.inputs[0].index());
      const int need = copy(op.inputs[0], specs_[value.producer.index()].inputs[0], source, 0, 0);
      from = copy(id, v.spec, -1, r.produced + 1, r.first + 1);
      copies_.back().piece = copies_[static_cast<std::size_t>(need)].piece;
    } else {
      from = copy(id, v.spec, -1, r.produced, r.first + 1);
    }
    if (r.count() > 1) from = copy(id, v.hub, from, r.first + 1, last + 1);
    read_from_[id.index()] = from;
    if (r.is_output) copy(id, v.output, from, r.produced + 1, horizon, true);
  }

  void free_place(std::size_t v, ValueId input) {
    if (!(strategy_.values[v].output == strategy_.values[input.index()].spec)) return;
    // Copies of the input and of its views, however they lie.
    std::set<std::size_t> family = {input.index()};
    for (const Op& op : graph_.ops) {
      if (is_view(op) && family.count(op.inputs[0].index())) family.insert(op.outputs[0].index());
    }
    int end = 0;
    for (const Copy& c : copies_) {
      const bool place = c.value == input && c.begin == 0 && c.end > 0;
      if (family.count(c.value.index()) && !place) end = std::max(end, c.end);
    }
    const Readers& r = readers_[input.index()];
    if (!r.uses.empty()) end = std::max(end, r.uses.back().op.value + 1);
    for (Copy& c : copies_) {
      if (c.value.index() == v && c.leaves) c.end = std::min(c.end, std::max(end, c.begin));
    }
  }

  const Graph& graph_;
  const Strategy& strategy_;
  std::vector<Readers> readers_;
  std::vector<OpSpecs> specs_;
  std::vector<Copy> copies_;
  std::map<std::size_t, int> read_from_;
  std::vector<Bytes> bytes_;
  int pieces_ = 0;
};

}  // namespace

TEST_CASE("memory charged is what the pieces of memory take", "[search]") {
  Draw draw{std::mt19937_64(11)};
  int times = 0, exact = 0, with_views = 0, donated = 0;
  for (std::uint64_t seed = 400; seed < 500; ++seed) {
    const Graph graph = random_graph(seed, 7);
    const Cluster cluster = small_cluster({2, 2});
    const auto rules = rules_of(graph);
    REQUIRE(rules.ok());
    SearchRequest request{graph, *rules, cluster};
    RooflineModel model(cluster, mesh_candidates(cluster, 2).back());
    const auto built = build_problem(request, model);
    REQUIRE(built.ok());
    for (ValueId updated : updated_inputs(graph, "new.*")) donated += updated.valid();
    for (int trial = 0; trial < 8; ++trial) {
      std::vector<int> choices;
      for (const ProblemNode& node : built->problem.nodes) {
        choices.push_back(static_cast<int>(draw.below(node.cost.size())));
      }
      const Strategy strategy = strategy_of(graph, *built, choices);
      // The charges alone: uses of nodes, and of edges but for the temporaries of reshards.
      Problem problem = built->problem;
      for (ProblemEdge& edge : problem.edges) {
        if (!edge.uses.empty()) edge.uses.erase(edge.uses.begin());
      }
      const Pieces pieces(graph, *rules, strategy);
      for (int t = 0; t < problem.horizon; ++t) {
        double charged = 0;
        for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
          for (const NodeUse& use : problem.nodes[n].uses) {
            if (use.begin > t || t >= use.end) continue;
            charged += use.bytes[static_cast<std::size_t>(choices[n])];
          }
        }
        for (const ProblemEdge& edge : problem.edges) {
          for (const EdgeUse& use : edge.uses) {
            if (use.begin > t || t >= use.end) continue;
            const int row = choices[static_cast<std::size_t>(edge.from)];
            const int column = choices[static_cast<std::size_t>(edge.to)];
            charged += problem.tables[static_cast<std::size_t>(use.table)].at(row, column);
          }
        }
        CAPTURE(seed, trial, t);
        REQUIRE(charged >= static_cast<double>(pieces.at(t)));
        ++times;
        exact += charged == static_cast<double>(pieces.at(t));
      }
    }
    for (const Op& op : graph.ops) with_views += is_view(op);
  }
  CHECK(with_views > 50);
  CHECK(donated > 20);
  CHECK(exact > times * 9 / 10);
}

namespace {

// A pass: y = x w in the forward pass, dw = x dy and acc.w + dw in the backward pass; the update
// reads the sum. `ops`: 0 forward, 1 and 2 backward, 3 update.
struct Accumulating {
  Graph graph;
  ValueId x, w, acc, y, grad, next, made;

  Accumulating() {
    const auto value = [&](const char* name, ValueKind kind) {
      return graph.add_value({.name = name, .shape = {8, 8}, .kind = kind});
    };
    x = value("x", ValueKind::kInput);
    w = value("w", ValueKind::kParameter);
    acc = value("acc.w", ValueKind::kParameter);
    y = value("y", ValueKind::kActivation);
    grad = value("grad", ValueKind::kActivation);
    next = value("new.acc.w", ValueKind::kActivation);
    made = value("new.w", ValueKind::kActivation);
    graph.value(acc).accumulates = graph.value(next).accumulates = true;
    graph.inputs = {x, w, acc};
    graph.outputs = {next, made};
    graph.passes = 2;
    graph.add_op({.name = "mul", .type = "MatMul", .inputs = {x, w}, .outputs = {y}});
    graph.add_op({.name = "grad", .type = "MatMul", .inputs = {y, w}, .outputs = {grad}});
    graph.add_op({.name = "sum", .type = "Add", .inputs = {acc, grad}, .outputs = {next}});
    graph.add_op({.name = "update", .type = "Sub", .inputs = {w, acc}, .outputs = {made}});
    graph.ops[1].phase = graph.ops[2].phase = Phase::kBackward;
    graph.ops[3].phase = Phase::kUpdate;
  }

  // Per op what is charged for a value, in bytes of it.
  std::vector<int> charged(ValueId id) const {
    std::vector<int> held(graph.ops.size(), 0);
    for (const MemoryCharge& charge :
         memory_charges(graph, readers_of(graph), updated_inputs(graph, "new.*"))) {
      if (charge.value != id) continue;
      const bool in_full = charge.kind == MemoryCharge::Kind::kSpec ||
                           charge.kind == MemoryCharge::Kind::kHub ||
                           charge.kind == MemoryCharge::Kind::kOutput;
      for (int t = charge.begin; in_full && t < charge.end; ++t) {
        held[static_cast<std::size_t>(t)] += charge.copies;
      }
    }
    return held;
  }
};

}  // namespace

TEST_CASE("a sum of passes takes the place of the one before it, though the update reads that",
          "[search]") {
  const Accumulating step;
  CHECK(step.charged(step.acc) == std::vector<int>{1, 1, 1, 1});
  // While the op runs that makes it; then it is where acc.w was.
  CHECK(step.charged(step.next) == std::vector<int>{0, 0, 1, 0});
}

TEST_CASE("what a runtime holds in a pass: gradients to its end, and beside activations",
          "[search]") {
  Accumulating step;
  Kernels& kernels = step.graph.kernels;
  kernels.of_op.resize(step.graph.ops.size());
  kernels.inside.resize(step.graph.values.size(), 0);
  kernels.held_in_pass.resize(step.graph.values.size(), 0);
  kernels.held_in_pass[step.w.index()] = 1;
  kernels.held_in_pass[step.y.index()] = 2;
  CHECK(step.charged(step.w) == std::vector<int>{1, 2, 2, 1});
  CHECK(step.charged(step.y) == std::vector<int>{3, 3, 0, 0});
  // Of two micro-batches in flight both keep y; gradients there are of one.
  step.graph.in_flight = 2;
  CHECK(step.charged(step.w) == std::vector<int>{1, 2, 2, 1});
  CHECK(step.charged(step.y) == std::vector<int>{6, 6, 3, 3});
}

TEST_CASE("buffers for sums of gradients are there where ranks add these up", "[search]") {
  const Cluster cluster = small_cluster({2, 2});
  for (const bool has_passes : {true, false}) {
    Accumulating step;
    step.graph.passes = has_passes ? 2 : 1;
    Kernels& kernels = step.graph.kernels;
    kernels.of_op.resize(step.graph.ops.size());
    kernels.inside.resize(step.graph.values.size(), 0);
    kernels.held_beside.resize(step.graph.values.size(), 0);
    const Mesh mesh{{{"outer", 2, 1, 2}, {"inner", 2, 0, 1}}};
    RooflineModel model(cluster, mesh);
    const GraphRules rules = *rules_of(step.graph);
    // The weight whole, in halves and in quarters.
    for (const AxisList& axes : {AxisList{}, AxisList{0}, AxisList{0, 1}}) {
      const auto held = [&](int beside) {
        kernels.held_beside[step.w.index()] = static_cast<char>(beside);
        Strategy strategy;
        strategy.mesh = mesh;
        strategy.assignments.assign(step.graph.ops.size(), Assignment{{-1, -1}});
        for (std::size_t v = 0; v < step.graph.values.size(); ++v) {
          const Spec whole = replicated(2);
          strategy.values.push_back({whole, whole, whole});
        }
        ValueSpecs& stored = strategy.values[step.w.index()];
        for (Spec* spec : {&stored.spec, &stored.hub, &stored.output}) spec->dims[0] = axes;
        return evaluate(step.graph, rules, strategy, model)->memory.parameters;
      };
      // Of float32 the first is the accumulator, which a graph with passes has itself.
      const Bytes part = 8 * 8 * 4 / axes_size(mesh, axes);
      const Bytes buffer = axes.size() < 2 ? part : 0;
      CHECK(held(1) - held(0) == (has_passes ? buffer : part));
      CHECK(held(2) - held(0) == (has_passes ? 2 * buffer : part + buffer));
    }
  }
}

TEST_CASE("what kernels read repeated is there once, as long as they do", "[search]") {
  Accumulating step;
  Graph& graph = step.graph;
  // y repeated twice stands in its place for the backward pass.
  const ValueId twice = graph.add_value({.name = "twice", .shape = {2, 8, 8}});
  Op expand{.name = "expand", .type = "Expand", .inputs = {step.y}, .outputs = {twice}};
  graph.values[twice.index()].producer = OpId(1);
  graph.ops.insert(graph.ops.begin() + 1, std::move(expand));
  for (std::size_t o = 2; o < graph.ops.size(); ++o) {
    for (const ValueId output : graph.ops[o].outputs) {
      graph.values[output.index()].producer = OpId(static_cast<std::int64_t>(o));
    }
  }
  graph.ops[2].inputs = {twice, step.w};
  CHECK(step.charged(step.y) == std::vector<int>{1, 1, 0, 0, 0});
  CHECK(step.charged(twice) == std::vector<int>{0, 1, 1, 0, 0});
  graph.kernels.of_op.resize(graph.ops.size());
  graph.kernels.inside.resize(graph.values.size(), 0);
  graph.kernels.of_op[1].kind = OpKernel::Kind::kView;
  CHECK(step.charged(step.y) == std::vector<int>{1, 1, 1, 0, 0});
  CHECK(step.charged(twice) == std::vector<int>{0, 0, 0, 0, 0});
}

TEST_CASE("of what other chunks hand on, what the forward pass reads is there for each in flight",
          "[search]") {
  Accumulating step;
  Graph& graph = step.graph;
  graph.value(step.x).of_micro_batch = true;
  graph.ops[1].inputs = {step.y, step.x};
  const ValueId handed =
      graph.add_value({.name = "dy", .shape = {8, 8}, .kind = ValueKind::kInput});
  graph.value(handed).of_micro_batch = true;
  graph.inputs.push_back(handed);
  graph.ops[2].inputs.push_back(handed);
  graph.in_flight = 3;
  CHECK(step.charged(step.x) == std::vector<int>{3, 3, 3, 3});
  CHECK(step.charged(handed) == std::vector<int>{1, 1, 1, 1});
}

}  // namespace autopar::memory_test
