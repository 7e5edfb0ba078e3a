#include "planning/pipelines/stage_memory.hpp"

#include <algorithm>
#include <numeric>

#include "autopar/cost_models.hpp"
#include "cost/memory_course.hpp"
#include "planning/pipelines/chunk_cost.hpp"

namespace autopar {

namespace {

// A plan whose ops of W stand behind the others of the backward pass.
struct WeightsBehind {
  Graph graph;
  GraphRules rules;
  Strategy strategy;
};

std::size_t begin_of_update(const Graph& graph) {
  const auto first = std::find_if(graph.ops.begin(), graph.ops.end(),
                                  [](const Op& op) { return op.phase == Phase::kUpdate; });
  return static_cast<std::size_t>(first - graph.ops.begin());
}

template <class T>
std::vector<T> in_order(const std::vector<T>& of_ops, const std::vector<std::size_t>& order) {
  std::vector<T> found;
  found.reserve(order.size());
  for (const std::size_t o : order) found.push_back(of_ops[o]);
  return found;
}

// `weight_ops`: per op whether it is of W.
WeightsBehind weights_behind(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const std::vector<char>& weight_ops) {
  std::vector<std::size_t> order(graph.ops.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(),
                        order.begin() + static_cast<std::ptrdiff_t>(begin_of_update(graph)),
                        [&](std::size_t o) { return weight_ops[o] == 0; });
  std::vector<OpId> places(order.size());
  for (std::size_t at = 0; at < order.size(); ++at) {
    places[order[at]] = OpId(static_cast<std::int64_t>(at));
  }
  WeightsBehind found{graph, rules, strategy};
  found.graph.ops = in_order(graph.ops, order);
  found.rules.rules = in_order(rules.rules, order);
  found.rules.class_of_op = in_order(rules.class_of_op, order);
  found.strategy.assignments = in_order(strategy.assignments, order);
  for (Value& value : found.graph.values) {
    if (value.producer.valid()) value.producer = places[value.producer.index()];
  }
  Kernels& kernels = found.graph.kernels;
  if (kernels.empty()) return found;
  kernels.of_op = in_order(kernels.of_op, order);
  for (OpId& last : kernels.needed_by) {
    if (last.valid()) last = places[last.index()];
  }
  // What goes from one part to the other inside a kernel is stored then.
  for (const Op& op : graph.ops) {
    for (const ValueId id : op.inputs) {
      const OpId maker = id.valid() ? graph.value(id).producer : OpId();
      const auto reader = static_cast<std::size_t>(&op - graph.ops.data());
      if (maker.valid() && weight_ops[maker.index()] != weight_ops[reader]) {
        if (graph.op(maker).phase == Phase::kBackward) kernels.inside[id.index()] = 0;
      }
    }
  }
  return found;
}

// What other chunks hand it for a micro-batch, which is there while that is worked on.
Bytes handed_bytes(const Graph& graph, const Strategy& strategy) {
  Bytes bytes = 0;
  for (ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    if (!value.of_micro_batch) continue;
    bytes += local_bytes(strategy.values[id.index()].spec, value.shape, value.dtype, strategy.mesh);
  }
  return bytes;
}

// What a plan holds, by the actions of its chunk. `weight_ops`: empty, the backward pass is one.
Result<ChunkBytes> bytes_of(const ChunkPlan& chunk, const std::vector<char>& weight_ops,
                            const std::string& updates) {
  const SearchRequest& request = *chunk.planned->request;
  const Strategy& strategy = chunk.planned->outcome.strategy;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, strategy.mesh));
  WeightsBehind plan = weight_ops.empty()
                           ? WeightsBehind{request.graph, request.rules, strategy}
                           : weights_behind(request.graph, request.rules, strategy, weight_ops);
  AUTOPAR_TRY(course, memory_course(plan.graph, plan.rules, plan.strategy, *model, updates));
  plan.graph.in_flight += 1;
  AUTOPAR_TRY(more, memory_course(plan.graph, plan.rules, plan.strategy, *model, updates));
  const std::size_t turn = end_of_forward(plan.graph), update = begin_of_update(plan.graph);
  const auto divided = static_cast<std::size_t>(
      std::count(weight_ops.begin(), weight_ops.end(), static_cast<char>(1)));
  const std::size_t weights = update - divided;
  const auto most = [&](std::size_t from, std::size_t to) {
    Bytes found = 0;
    for (std::size_t o = from; o < to; ++o) found = std::max(found, course.held[o]);
    return found;
  };
  ChunkBytes found;
  if (turn == plan.graph.ops.size()) {  // without a backward pass nothing is kept
    const Bytes held = most(0, turn);
    found.stored = held;
    for (const Bytes before : course.before) found.stored = std::min(found.stored, before);
    found.stored -= std::min(found.stored, handed_bytes(plan.graph, plan.strategy));
    found.forward = held - found.stored;
    return found;
  }
  const std::int64_t others = chunk.in_flight - 1;
  found.kept = more.before[turn] - course.before[turn];
  found.stored = course.before[turn] - chunk.in_flight * found.kept;
  const Bytes of_others = found.stored + others * found.kept;
  found.forward = most(0, turn) - course.before[turn];
  found.backward = most(turn, weights) - course.before[turn];
  if (divided > 0) {
    found.waiting = course.before[weights] - of_others;
    found.weights = most(weights, update) - course.before[weights];
  }
  found.update = std::max<Bytes>(0, most(update, plan.graph.ops.size()) - of_others);
  return found;
}

}  // namespace

bool is_apart(const PipelineSchedule& schedule, std::size_t chunk) {
  return std::any_of(schedule.lines.begin(), schedule.lines.end(), [&](const StepLine& line) {
    return std::any_of(line.begin(), line.end(), [&](const StepAction& action) {
      return action.chunk == static_cast<std::int64_t>(chunk) &&
             action.phase == StepPhase::kWeightGradients;
    });
  });
}

void join_backward(PipelineSchedule& schedule, const std::function<bool(std::size_t)>& is_whole) {
  for (StepLine& line : schedule.lines) {
    const auto is_joined = [&](const StepAction& action) {
      return is_whole(static_cast<std::size_t>(action.chunk));
    };
    std::erase_if(line, [&](const StepAction& action) {
      return action.phase == StepPhase::kWeightGradients && is_joined(action);
    });
    for (StepAction& action : line) {
      const bool is_part = action.phase == StepPhase::kInputGradients;
      if (is_part && is_joined(action)) action.phase = StepPhase::kBackward;
    }
  }
}

std::map<std::int64_t, std::vector<std::size_t>> chunks_of_stages(
    const PipelineSchedule& schedule) {
  std::map<std::int64_t, std::vector<std::size_t>> of_stage;
  for (std::size_t c = 0; c < schedule.stage_of_chunk.size(); ++c) {
    of_stage[schedule.stage_of_chunk[c]].push_back(c);
  }
  return of_stage;
}

Bytes stage_memory(const StepLine& line, const std::vector<ChunkBytes>& chunks) {
  Bytes now = 0;  // between two actions
  for (const ChunkBytes& chunk : chunks) now += chunk.stored;
  Bytes most = now;
  for (const ChunkBytes& chunk : chunks) most = std::max(most, now + chunk.update);
  for (const StepAction& action : line) {
    const auto found = std::find_if(chunks.begin(), chunks.end(), [&](const ChunkBytes& chunk) {
      return chunk.chunk == action.chunk;
    });
    AUTOPAR_CHECK(found != chunks.end(), "an action of a chunk that is not of its stage");
    const ChunkBytes& chunk = *found;
    switch (action.phase) {
      case StepPhase::kForward:
        now += chunk.kept;
        most = std::max(most, now + chunk.forward);
        break;
      case StepPhase::kForwardBackward:
        most = std::max(most, now + chunk.kept + chunk.beside());
        break;
      case StepPhase::kBackward:
        most = std::max(most, now + chunk.backward);
        now -= chunk.kept;
        break;
      case StepPhase::kInputGradients:
        most = std::max(most, now + chunk.backward);
        now += chunk.waiting - chunk.kept;
        break;
      case StepPhase::kWeightGradients:
        most = std::max(most, now + chunk.weights);
        now -= chunk.waiting;
        break;
      case StepPhase::kReduce:
      case StepPhase::kUpdate:
        break;
    }
  }
  return most;
}

std::vector<Bytes> limits_of_chunks(const StepLine& line, const std::vector<ChunkBytes>& chunks,
                                    Bytes room) {
  Bytes beside = 0;
  for (const ChunkBytes& chunk : chunks) beside = std::max(beside, chunk.beside());
  const Bytes left = std::max<Bytes>(0, room - stage_memory(line, chunks)) /
                     std::min<Bytes>(2, static_cast<Bytes>(chunks.size()));
  std::vector<Bytes> limits;
  for (const ChunkBytes& chunk : chunks) limits.push_back(chunk.resting() + beside + left);
  return limits;
}

Result<std::vector<ChunkBytes>> memory_of_chunks(const std::vector<ChunkPlan>& plans,
                                                 const std::vector<std::size_t>& chunks,
                                                 const PipelineSchedule& schedule,
                                                 const std::string& updates) {
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  std::vector<ChunkBytes> found;
  for (const std::size_t c : chunks) {
    const ChunkPlan& chunk = plans[c];
    const Planned& planned = *chunk.planned;
    std::vector<char> weight_ops;
    if (is_apart(schedule, c)) {
      weight_ops = weight_part(planned.request->graph, planned.outcome.strategy, updates);
    }
    if (weight_ops.empty() && chunks.size() == 1 && flying[c] == chunk.in_flight) {
      found.push_back({static_cast<std::int64_t>(c), planned.outcome.cost.memory.total});
      continue;
    }
    std::optional<ChunkBytes>& known =
        weight_ops.empty() ? chunk.bytes->whole : chunk.bytes->divided;
    if (!known) {
      AUTOPAR_TRY(bytes, bytes_of(chunk, weight_ops, updates));
      known = bytes;
    }
    found.push_back(*known);
    found.back().chunk = static_cast<std::int64_t>(c);
    found.back().in_flight = chunk.in_flight;
  }
  return found;
}

}  // namespace autopar
