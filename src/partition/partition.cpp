#include "autopar/partition.hpp"

#include "partition/program.hpp"

namespace autopar {

Result<Plan> partition(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                       const Cluster& cluster, Bytes bucket_bytes) {
  AUTOPAR_TRY(op_specs, op_specs_of(graph, rules, strategy));
  AUTOPAR_RETURN_IF_ERROR(verify(graph, op_specs, readers_of(graph), strategy));
  AUTOPAR_TRY(draft, insert_reshards(graph, rules, strategy, op_specs, cluster));
  AUTOPAR_RETURN_IF_ERROR(verify(draft.plan, Stage::kAbstract));
  AUTOPAR_RETURN_IF_ERROR(lower(draft));
  AUTOPAR_RETURN_IF_ERROR(verify(draft.plan, Stage::kLowered));
  simplify(draft);
  AUTOPAR_RETURN_IF_ERROR(verify(draft.plan, Stage::kLowered));
  join_collectives(draft, bucket_bytes);
  // By ideal prices nothing runs beside a collective.
  order_collectives(draft.plan.program,
                    cluster.profile.ideal() ? OrderBy::kWhatIsThere : OrderBy::kItsOutput);
  AUTOPAR_RETURN_IF_ERROR(verify(draft.plan, Stage::kOrdered));
  return std::move(draft.plan);
}

}  // namespace autopar
