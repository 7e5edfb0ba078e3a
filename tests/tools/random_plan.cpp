// random_plan MODEL MESH SEED OUT.onnx [moving]: the plan of a strategy in which every op, hub and
// stored tensor gets one of its candidates at random, with `moving` also of those whose parts move.
// For tests: whatever is valid must compute the same.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "autopar/export.hpp"
#include "autopar/import.hpp"
#include "autopar/search.hpp"

using namespace autopar;

namespace {

// One tier per axis, all alike.
Cluster cluster_of(const std::vector<std::int64_t>& sizes) {
  Cluster cluster;
  cluster.name = "random";
  cluster.device = {"device", Bytes{1} << 40, 1e12, {{"float32", 1e12}}};
  for (std::size_t t = sizes.size(); t-- > 0;) {
    cluster.tiers.push_back({"t" + std::to_string(t), sizes[t], 1e10, 1e-6, {}});
  }
  return cluster;
}

Status write(const char* model_path, const char* mesh_text, std::uint64_t seed, const char* out,
             bool moving) {
  AUTOPAR_TRY(sizes, parse_mesh(mesh_text));
  const Cluster cluster = cluster_of(sizes);
  AUTOPAR_TRY(mesh, make_mesh(cluster, sizes));
  AUTOPAR_TRY(model, import_model(model_path));
  AUTOPAR_TRY(rules, rules_of(model.graph));
  SearchRequest request{model.graph, rules, cluster};
  if (moving) request.moving = SearchRequest::Moving::kAlso;
  RooflineModel prices(cluster, mesh);
  AUTOPAR_TRY(problem, build_problem(request, prices));
  std::mt19937_64 engine(seed);
  std::vector<int> choices;
  for (const ProblemNode& node : problem.problem.nodes) {
    choices.push_back(static_cast<int>(engine() % node.cost.size()));
  }
  const Strategy strategy = strategy_of(model.graph, problem, choices);
  AUTOPAR_RETURN_IF_ERROR(verify(model.graph, rules, strategy));
  AUTOPAR_TRY(plan, partition(model.graph, rules, strategy, cluster));
  PlanMetadata metadata;
  metadata.version = AUTOPAR_VERSION;
  for (const Tier& tier : cluster.tiers) metadata.tier_names.push_back(tier.name);
  AUTOPAR_TRY(warnings, write_plan(plan, metadata, out));
  for (const std::string& warning : warnings) std::fprintf(stderr, "%s\n", warning.c_str());
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  const bool moving = argc == 6 && std::string(argv[5]) == "moving";
  if (argc != 5 && !moving) {
    std::fprintf(stderr, "usage: random_plan MODEL MESH SEED OUT.onnx [moving]\n");
    return 2;
  }
  const Status done = write(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), argv[4], moving);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : static_cast<int>(done.error().code);
}
