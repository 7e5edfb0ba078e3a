// What the stages of building the problem of a mesh share, and the stages in their order: nodes and
// edges are numbered as they are added.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autopar/phase_ops.hpp"
#include "autopar/search.hpp"
#include "search/build/spec_tables.hpp"
#include "search/build/weighted_prices.hpp"
#include "search/pins.hpp"

namespace autopar {

// Everything that ops of one class have in common.
struct OpTable {
  std::shared_ptr<const MeshProblem::OpChoices> choices;
  std::vector<double> cost;
  std::vector<double> temporaries;  // bytes while the op runs; empty: none
  std::vector<int> input_lists;     // per port: list id of the needed specs per choice
  std::vector<int> output_lists;    // per output: list id of the produced specs
};

struct MeshBuild {
  MeshBuild(const SearchRequest& request, CostModel& model, KeptPins pins, Allowance& allowance);

  // One end of an edge: a node and the spec that each of its choices stands for.
  struct End {
    int node = -1;
    int list = -1;
  };

  const SearchRequest& request;
  const KeptPins pins;
  Allowance& allowance;
  const Graph& graph;
  CostModel& model;
  const WeightedPrices prices;
  const std::vector<Readers> readers;  // per value
  const PhaseOps phase_ops;
  const std::set<ValueId> inputs;
  const std::vector<ValueId> updated;  // per value the input whose next value it is
  MeshProblem out;
  SpecTables tables;
  std::vector<std::shared_ptr<const OpTable>> table_of_op;
  std::vector<End> supplier;  // per value: its producer's node or its source node

  int add_node(std::string name, std::vector<double> cost);
  End add_value_node(std::string name, int list);
  // Bytes in use while a choice of a node is made; nothing without a limit.
  void use(int node, int begin, int end, std::vector<double> bytes);
  bool limited() const { return out.problem.use_limit != kInfinity; }
  // How many passes may be at that op at once.
  int copies_at(int time) const;

  // The number of a value in `tables`, for its bytes and for reshards that happen once.
  int type_of(ValueId id) const { return types_[id.index()]; }
  // The same for reshards that happen when the op runs.
  int type_of(ValueId id, OpId when);

  // The list that is left where a layout or a pin may say something about a value.
  template <class Restrict>
  Result<int> restricted(int list, const Restrict& restrict) {
    const bool free = request.inputs.kind == BoundaryLayout::Kind::kFree &&
                      request.outputs.kind == BoundaryLayout::Kind::kFree && !pins.has_values();
    if (free) return list;
    SpecList specs = tables.specs(list);
    AUTOPAR_RETURN_IF_ERROR(restrict(specs));
    return tables.list_of(std::move(specs));
  }

  // The specs that an op may need at a port.
  int needed_list(const Use& use) const;
  // Of all readers, each list once.
  std::vector<int> needed_lists(ValueId id) const;

  // The list of how a model's inputs and outputs are often asked for: whole, or data parallel.
  int common_layouts(ValueId id);

  // How a value is stored by a rule; null: none, or a pin or a layout says so, which comes before.
  const StoredRule* stored_rule(ValueId id) const;

 private:
  std::vector<int> types_, types_in_passes_;  // per value
};

// The nodes of ops. Each stage ends early, and the problem is not whole, where the allowance is
// over.
Status add_ops(MeshBuild& build);

// The nodes of inputs and parameters: how they are stored.
Status add_sources(MeshBuild& build);

// The nodes of hubs and outputs, the edges of all values, and the memory that values take.
Status connect_values(MeshBuild& build);

}  // namespace autopar
