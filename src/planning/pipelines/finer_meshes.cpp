// The best pipeline's chunks on meshes that divide theirs further.
#include <algorithm>

#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_step.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

namespace {

// Whether axes of `finer` that follow each other make up each axis of `mesh`.
bool divides(const Mesh& mesh, const Mesh& finer) {
  std::size_t a = 0;
  for (const auto& axis : mesh.axes) {
    std::int64_t size = 1;
    while (size < axis.size && a < finer.axes.size()) size *= finer.axes[a++].size;
    if (size != axis.size) return false;
  }
  return a == finer.axes.size();
}

}  // namespace

Status PipelineStep::plan_on_finer_meshes(const FormCandidate& candidate, Bytes room,
                                          PipelinePlan& best) {
  const std::vector<OpId> cuts = cuts_of_plan(best);
  const ChunkPlans plans(search_, best.stage);
  if (!plans.may_choose_meshes() || cuts.size() != best.cut_ops.size()) return Ok{};
  std::vector<std::string> finer;
  for (const Mesh& mesh : mesh_candidates(best.stage, kDefaultAxes, has_backward_pass(step_))) {
    const bool is_finer =
        std::any_of(best.chunks.begin(), best.chunks.end(), [&](const ChunkPlan& chunk) {
          const Mesh& own = chunk.planned->outcome.strategy.mesh;
          return own.rank() < mesh.rank() && divides(own, mesh);
        });
    if (is_finer) finer.push_back(to_text(mesh));
  }
  if (finer.empty()) return Ok{};
  for (const ChunkPlan& chunk : best.chunks) {
    const std::string own = to_text(chunk.planned->outcome.strategy.mesh);
    if (std::find(finer.begin(), finer.end(), own) == finer.end()) finer.push_back(own);
  }
  const Seconds before = best.times.makespan;
  AUTOPAR_TRY(is_better, takes_cuts(candidate, cuts, room, best, finer));
  if (is_better) {
    logging::debug("{}: {} on finer meshes, {} before", to_text(best.form),
                   format_seconds(best.times.makespan), format_seconds(before));
  }
  return Ok{};
}

}  // namespace autopar
