// What a pipeline takes, of what its chunks take.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "planning/pipelines/chunk_cost.hpp"
#include "planning/pipelines/message.hpp"
#include "planning/pipelines/stage_memory.hpp"
#include "planning/pipelines/waiting_values.hpp"

namespace autopar {

namespace {

class Pricing {
 public:
  Pricing(const Cluster& cluster, const std::string& updates, Bytes room)
      : cluster_(cluster), updates_(updates), room_(room) {}

  Status run(PipelinePlan& plan) const {
    std::vector<ForwardLinks> links(plan.chunks.size());
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) find_weight_ops(plan, c);
    AUTOPAR_TRY(limits, add_memory(plan));
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) price(plan, c, limits, links);
    fetch_early(plan, links);
    join_backward(plan.schedule,
                  [&plan](std::size_t chunk) { return plan.chunks[chunk].weight_ops.empty(); });
    const bool reduces =
        std::any_of(plan.chunks.begin(), plan.chunks.end(),
                    [](const ChunkPlan& chunk) { return !chunk.reduce_ops.empty(); });
    const bool is_trained = !is_forward_only(plan.schedule);
    if (is_trained) add_updates(plan.schedule, reduces);
    if (reduces) drop_missing_reductions(plan);
    std::vector<ChunkCost> costs;
    for (ChunkPlan& chunk : plan.chunks) {
      // What comes behind the last pass is of that where nothing is updated.
      ChunkCost& cost = chunk.cost;
      if (!is_trained) cost.last->forward += std::exchange(cost.update, 0);
      costs.push_back(cost);
    }
    AUTOPAR_TRY(times, simulate_schedule(plan.schedule, costs));
    plan.times = std::move(times);
    if (!is_trained) {
      const std::vector<Bytes> waiting = bytes_waiting(plan);
      for (std::size_t stage = 0; stage < waiting.size(); ++stage) {
        plan.stage_bytes[stage] += waiting[stage];
      }
      take_peak(plan);
      count_waiting_for_first(plan.times);
    }
    return Ok{};
  }

 private:
  // Of forward passes alone: what stages wait for their first micro-batch, and behind their last
  // one, is most of what they wait.
  static void count_waiting_for_first(ScheduleTimes& times) {
    const Seconds idle = std::accumulate(times.idle.begin(), times.idle.end(), Seconds{0});
    const Seconds all = times.makespan * static_cast<double>(times.idle.size());
    times.bubble_rate = all > 0 ? idle / all : 0;
  }

  static void take_peak(PipelinePlan& plan) {
    plan.peak_bytes = *std::max_element(plan.stage_bytes.begin(), plan.stage_bytes.end());
    plan.upper_bytes = plan.stage.profile.upper_memory(plan.peak_bytes);
  }

  // Stored weights are fetched as early as the link is free (simulate()): so while a stage waits
  // for its first micro-batch, and beside forward passes of its other chunks, where these do not
  // need the link.
  static void fetch_early(PipelinePlan& plan, const std::vector<ForwardLinks>& links) {
    struct OfStage {
      std::array<Seconds, kLinks> free = {};  // for so long each link was
      std::size_t passed = 0;                 // actions of its line
    };
    std::map<std::int64_t, OfStage> stages;
    Seconds waiting = 0;
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      ChunkCost& cost = plan.chunks[c].cost;
      PassSeconds& first = *cost.first;
      const std::int64_t stage = plan.schedule.stage_of_chunk[c];
      const auto [known, is_first] = stages.try_emplace(stage);
      OfStage& of = known->second;
      if (is_first) of.free.fill(waiting);
      const StepLine& line = plan.schedule.lines[static_cast<std::size_t>(stage)];
      for (; of.passed < line.size(); ++of.passed) {
        const StepAction& action = line[of.passed];
        const auto other = static_cast<std::size_t>(action.chunk);
        if (other == c && action.micro_batch == 0) break;
        if (action.phase != StepPhase::kForward) continue;
        for (std::size_t l = 0; l < kLinks; ++l) {
          const Seconds forward = plan.chunks[other].cost.steady.forward;
          of.free[l] += std::max(0.0, forward - links[other].of_pass[l]);
        }
      }
      const Seconds more = std::max(0.0, first.forward - cost.steady.forward);
      const std::array<Seconds, kLinks> before = of.free;
      Seconds early = 0, until = kInfinity;  // all that is fetched, and how long links are free
      for (std::size_t l = 0; l < kLinks; ++l) {
        if (links[c].fetching[l] == 0) continue;
        early += links[c].room_to_fetch * links[c].fetching[l];
        until = std::min(until, of.free[l]);
        of.free[l] = std::max(0.0, of.free[l] - links[c].fetching[l]);
      }
      const Seconds free = *std::min_element(before.begin(), before.end());
      early = std::min(std::max(std::min(early, until), std::min(links[c].first_wait, free)), more);
      first.forward -= early;
      waiting += first.forward + cost.send_forward;
    }
  }

  void find_weight_ops(PipelinePlan& plan, std::size_t c) const {
    ChunkPlan& chunk = plan.chunks[c];
    const Planned& planned = *chunk.planned;
    if (is_apart(plan.schedule, c)) {
      chunk.weight_ops = weight_part(planned.request->graph, planned.outcome.strategy, updates_);
    }
  }

  void price(PipelinePlan& plan, std::size_t c, const std::vector<Bytes>& limits,
             std::vector<ForwardLinks>& links) const {
    ChunkPlan& chunk = plan.chunks[c];
    const Planned& planned = *chunk.planned;
    const Mesh& mesh = planned.outcome.strategy.mesh;
    const Bytes limit = limits[c];
    const StrategyCost& own = planned.outcome.cost;
    if (own.step && limit != own.most_held()) {
      StrategyCost cost = own;
      cost.limit = limit;
      cost.step = simulate(planned.request->graph, cost, mesh, planned.request->cluster, updates_);
      chunk.in_stage = std::make_shared<const StrategyCost>(std::move(cost));
    }
    if (const auto like = priced_like(plan, c, limits)) {
      std::tie(chunk.cost, links[c]) = std::tie(plan.chunks[*like].cost, links[*like]);
    } else {
      chunk.cost =
          chunk_cost(*planned.request, mesh, chunk.strategy_cost(), chunk.weight_ops, &links[c]);
    }
    divide_update(chunk);
    add_messages(plan, c, chunk.cost);
  }

  // R and U are programs of their own: each has its share of what the update takes.
  static void divide_update(ChunkPlan& chunk) {
    ChunkCost& cost = chunk.cost;
    cost.update += cost.reduce;
    cost.reduce = 0;
    if (chunk.reduce_ops.empty()) return;
    const Graph& graph = chunk.planned->request->graph;
    const std::vector<char> reduces = reduce_part(graph, chunk.reduce_ops);
    Seconds all = 0, of_reduce = 0;
    for (const CostTerm& term : chunk.strategy_cost().terms) {
      const OpId op = when_of(term, graph);
      if (!op.valid() || graph.op(op).phase != Phase::kUpdate) continue;
      all += term.seconds;
      if (reduces[op.index()] != 0) of_reduce += term.seconds;
    }
    if (all <= 0) return;
    cost.reduce = cost.update * of_reduce / all;
    cost.update -= cost.reduce;
  }

  // Whether R of the chunk reads it, not U alone.
  static bool is_read_by_reduce(const ChunkPlan& chunk, ValueId value) {
    if (chunk.reduce_ops.empty()) return false;
    const Graph& graph = chunk.planned->request->graph;
    const std::vector<char> reduces = reduce_part(graph, chunk.reduce_ops);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const std::vector<ValueId>& inputs = graph.ops[o].inputs;
      const bool reads = std::find(inputs.begin(), inputs.end(), value) != inputs.end();
      if (reads && reduces[o] != 0) return true;
    }
    return false;
  }

  // A chunk before this one that takes as long. With others in flight there is other room for what
  // is held ahead.
  static std::optional<std::size_t> priced_like(const PipelinePlan& plan, std::size_t c,
                                                const std::vector<Bytes>& limits) {
    const ChunkPlan& chunk = plan.chunks[c];
    if (chunk.alike < 0 || chunk.alike >= static_cast<int>(c)) return std::nullopt;
    const auto like = static_cast<std::size_t>(chunk.alike);
    const ChunkPlan& other = plan.chunks[like];
    const bool is_same = other.weight_ops == chunk.weight_ops && limits[like] == limits[c] &&
                         other.in_flight == chunk.in_flight;
    return is_same ? std::optional(like) : std::nullopt;
  }

  // What other chunks read in each pass: those of one stage get it in one message, a value once in
  // each layout, which has to be there when the first of them begins.
  void add_messages(const PipelinePlan& plan, std::size_t c, ChunkCost& cost) const {
    const std::vector<std::int64_t>& stages = plan.schedule.stage_of_chunk;
    struct Message {
      std::size_t to = 0;  // the nearest chunk
      double bytes = 0;
    };
    std::map<std::pair<bool, std::int64_t>, Message> messages;  // forward, by stage
    struct Sums {
      double bytes = 0;
      std::map<std::size_t, bool> to;  // chunks, and whether their R reads any
    };
    std::map<std::int64_t, Sums> sums;  // for the update, by stage
    for (const Handed& handed : plan.handed) {
      if (handed.from != static_cast<int>(c)) continue;
      std::set<std::pair<std::int64_t, std::string>> sent;  // by stage, the layouts
      for (const int reader : handed.to) {
        const auto to = static_cast<std::size_t>(reader);
        const HandedValue value = handed_value(plan.chunks[c], plan.chunks[to], handed.value);
        const double bytes =
            bytes_to_read(value.value, value.by_maker, value.by_reader, stages[c] == stages[to]);
        if (!handed.in_pass) {
          Sums& of = sums[stages[to]];
          bool& for_reduce = of.to[to];
          for_reduce = for_reduce || is_read_by_reduce(plan.chunks[to], value.read);
          const std::string layout = to_text(value.by_reader.spec, value.by_reader.mesh);
          if (sent.emplace(stages[to], layout).second) of.bytes += bytes;
          continue;
        }
        const bool forward = to > c;
        const auto [found, is_new] = messages.try_emplace({forward, stages[to]}, Message{to});
        Message& message = found->second;
        message.to = forward ? std::min(message.to, to) : std::max(message.to, to);
        const std::string layout = to_text(value.by_reader.spec, value.by_reader.mesh);
        if (sent.emplace(stages[to], layout).second) message.bytes += bytes;
      }
    }
    cost.send_forward = cost.send_backward = 0;
    cost.further.clear();
    cost.reduced.emplace();
    for (const auto& [stage, of] : sums) {
      const Seconds seconds = message_seconds(cluster_, plan.stage, stages[c], stage, of.bytes);
      for (const auto& [to, for_reduce] : of.to) {
        cost.reduced->push_back({static_cast<std::int64_t>(to), seconds, for_reduce});
      }
    }
    for (const auto& [way, message] : messages) {
      const auto& [forward, stage] = way;
      const Seconds seconds =
          message_seconds(cluster_, plan.stage, stages[c], stage, message.bytes);
      if (forward && message.to == c + 1) {
        cost.send_forward = seconds;
      } else if (!forward && message.to + 1 == c) {
        cost.send_backward = seconds;
      } else if (seconds > 0) {
        cost.further.push_back({.to = static_cast<std::int64_t>(message.to), .seconds = seconds});
      }
    }
  }

  static void drop_missing_reductions(PipelinePlan& plan) {
    for (StepLine& line : plan.schedule.lines) {
      std::erase_if(line, [&](const StepAction& action) {
        return action.phase == StepPhase::kReduce &&
               plan.chunks[static_cast<std::size_t>(action.chunk)].reduce_ops.empty();
      });
    }
  }

  // Returns per chunk what it may hold with what is held ahead.
  Result<std::vector<Bytes>> add_memory(PipelinePlan& plan) const {
    std::vector<Bytes> limits(plan.chunks.size(), 0);
    plan.stage_bytes.assign(static_cast<std::size_t>(plan.form.stages), 0);
    for (const auto& [stage, chunks] : chunks_of_stages(plan.schedule)) {
      const StepLine& line = plan.schedule.lines[static_cast<std::size_t>(stage)];
      AUTOPAR_TRY(memory, memory_of_chunks(plan.chunks, chunks, plan.schedule, updates_));
      plan.stage_bytes[static_cast<std::size_t>(stage)] = stage_memory(line, memory);
      const std::vector<Bytes> of_stage = limits_of_chunks(line, memory, room_);
      for (std::size_t i = 0; i < chunks.size(); ++i) limits[chunks[i]] = of_stage[i];
    }
    take_peak(plan);
    return limits;
  }

  const Cluster& cluster_;
  const std::string& updates_;
  const Bytes room_;
};

}  // namespace

const Tier& tier_between(const Cluster& cluster, const Cluster& stage) {
  std::int64_t size = 1;
  for (const Tier& tier : cluster.tiers) {
    size *= tier.size;
    if (size > stage.device_count()) return tier;
  }
  return cluster.tiers.back();
}

Status price_pipeline(const Cluster& cluster, const std::string& updates, Bytes room,
                      PipelinePlan& plan) {
  return Pricing(cluster, updates, room).run(plan);
}

}  // namespace autopar
