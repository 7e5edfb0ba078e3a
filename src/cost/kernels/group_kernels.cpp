// Groups of ops that run as one kernel: the order in which the kinds of groups are found.
#include <utility>

#include "autopar/kernels.hpp"
#include "cost/kernels/finders.hpp"

namespace autopar {
namespace {

// What ends a segment that is repeated runs twice, where runtimes repeat whole segments.
void repeat_ends(Grouping& all) {
  for (std::size_t o = 0; o < all.graph.ops.size(); ++o) {
    if (all.op(o).ends_segment) all.found.of_op[o].runs = 2;
  }
}

// Of ops by themselves; chains say it of all their ops. An update has no normalisations.
void mark_rows(const Graph& graph, Kernels& kernels) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    OpKernel& kernel = kernels.of_op[o];
    if (kernel.kind == OpKernel::Kind::kOwn) kernel.has_rows = is_over_rows(graph, graph.ops[o]);
    if (graph.ops[o].phase == Phase::kUpdate) kernel.has_rows = false;
  }
}

Kernels one_by_one(const Graph& graph) {
  Kernels kernels;
  kernels.of_op.resize(graph.ops.size());
  kernels.inside.assign(graph.values.size(), 0);
  mark_rows(graph, kernels);
  return kernels;
}

}  // namespace

Kernels group_kernels(const Graph& graph, const Profile& profile, const std::string& updates) {
  if (profile.runs_op_by_op) return one_by_one(graph);
  Grouping all(graph, profile, updates);
  if (profile.fuses_attention) join_attention(all);
  if (profile.ideal()) return all.any_is_free ? std::move(all.found) : Kernels();
  hold_gradients(all, updates);
  if (profile.repeats_whole_segments) repeat_ends(all);
  join_functions(all);
  join_accumulations(all);
  if (profile.fuses_elementwise || profile.fuses_normalisation) join_chains(all);
  narrow_scattered_sums(all);
  keep_arguments(all);
  mark_rows(graph, all.found);
  mark_launches(all);
  mark_inside(all);
  return std::move(all.found);
}

}  // namespace autopar
