// For tests: steps on clusters where now one and now another stream is the busiest, and plans of
// them that are drawn.
#pragma once

#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "autopar/grad.hpp"
#include "autopar/kernels.hpp"
#include "graphs.hpp"

namespace autopar::testing::stream_cases {

// Two layers and a loss, trained in so many passes.
inline Graph trained(std::int64_t passes, Optimizer optimizer) {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 12});
  const ValueId h = b.op("MatMul", {x, b.parameter("W1", {12, 8})}, {8, 8}, {}, "fc1");
  const ValueId a = b.op("Add", {h, b.parameter("b1", {8})}, {8, 8}, {}, "shift");
  const ValueId r = b.op("Tanh", {a}, {8, 8}, {}, "act");
  const ValueId y = b.op("MatMul", {r, b.parameter("W2", {8, 4})}, {8, 4}, {}, "fc2");
  b.graph.outputs = {y};
  TrainingOptions options;
  options.loss = "cross_entropy";
  options.optimizer = optimizer;
  options.micro_batches = passes;
  auto step = training_step(std::move(b.graph), options);
  REQUIRE(step.ok());
  mark_accumulators(step->graph);
  return std::move(step->graph);
}

// Where now one and now another stream is the busiest.
inline Cluster cluster_of(std::uint64_t seed) {
  Draw draw{std::mt19937_64(seed)};
  Cluster cluster = small_cluster({2, 2});
  Profile& profile = cluster.profile;
  profile.name = "test";
  profile.fuses_elementwise = draw.below(2) == 0;
  profile.has_strides = draw.below(2) == 0;
  profile.launch_s = draw.below(2) == 0 ? 0 : 1e-6;
  profile.host_s = draw.below(3) == 0 ? 2e-5 : 1e-8;
  profile.bucket_bytes = draw.below(2) == 0 ? 0 : 256;
  for (bool* deferred : {&profile.deferred.all_reduce, &profile.deferred.reduce_scatter,
                         &profile.deferred.gather, &profile.deferred.update}) {
    *deferred = draw.below(3) != 0;
  }
  profile.memory.fraction = 0.5;
  cluster.device.memory_bandwidth_bytes_per_s /= draw.below(2) == 0 ? 1e3 : 1;
  cluster.tiers[draw.below(2)].bandwidth_bytes_per_s /= draw.below(2) == 0 ? 1e3 : 1;
  profile.of_stage = draw.below(2) == 0;
  profile.stage_collective_s = draw.below(2) == 0 ? 0 : 1e-5;
  profile.stage_collective_rank_s = draw.below(2) == 0 ? 0 : 1e-5;
  profile.repeats_whole_segments = draw.below(2) == 0;
  if (draw.below(6) == 0) {
    profile.runs_op_by_op = true;
    profile.fuses_elementwise = profile.has_strides = profile.repeats_whole_segments = false;
  }
  return cluster;
}

struct Case {
  Graph graph;
  Cluster cluster;
  explicit Case(std::uint64_t seed) : cluster(cluster_of(seed)) {
    const bool interleaved = seed % 12 == 1 || seed % 12 == 4;
    graph = seed % 3 == 2 ? random_graph(seed, 6)
                          : trained(interleaved     ? 4
                                    : seed % 3 == 0 ? 1
                                                    : 3,
                                    seed % 2 == 0 ? Optimizer::kSgd : Optimizer::kAdamW);
    if (interleaved) graph.copies = 2;
    // As if they were left of a segment that is repeated.
    for (Op& op : graph.ops) op.ends_segment = op.name == "shift" || op.name == "act";
    graph.kernels = group_kernels(graph, cluster.profile);
  }
};

inline std::vector<int> drawn(const Problem& problem, Draw& draw) {
  std::vector<int> choices;
  for (const ProblemNode& node : problem.nodes) {
    choices.push_back(static_cast<int>(draw.below(node.cost.size())));
  }
  return choices;
}

// Few draws of large problems keep the rules about what is never resharded: a plan near the best.
inline std::vector<int> near_best(const Problem& problem, Draw& draw) {
  Problem noisy = problem;
  for (ProblemNode& node : noisy.nodes) {
    for (double& cost : node.cost) cost += 1e-5 * static_cast<double>(draw.below(1000)) / 1000;
  }
  return solve_dp(noisy, {}).choices;
}

}  // namespace autopar::testing::stream_cases
