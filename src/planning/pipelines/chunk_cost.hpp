// What a chunk of a pipeline takes of its stage's time.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "autopar/pipeline.hpp"
#include "autopar/stages.hpp"
#include "planning/parts_of_step.hpp"

namespace autopar {

// On one device of the cluster, as its profile prices them. `step`: with kernels.
Result<OpSeconds> seconds_of_ops(const Inputs& inputs, const Graph& step,
                                 const std::string& updates);

// What is in memory for each forward op of a step, whole: what is stored of the parameters that it
// is the first to read, what the backward pass reads of its outputs, for a micro-batch, and what is
// made in the forward pass and read by this op or later in it.
struct OpBytes {
  std::vector<double> stored, kept, alive;
};
OpBytes bytes_of_ops(const Graph& step, const std::string& updates);

// Per op of the graph what its product at least takes when the backward pass does it again, on one
// device; 0 for all that are no products, and for the first one of an attention, which its backward
// kernel does again anyway. Of one pass. `graph`: with kernels.
Result<std::vector<Seconds>> seconds_again(const Inputs& inputs, const Graph& graph);

// For how long links are busy in a forward pass, and with what the first micro-batch has more: with
// weights that are fetched once. And how long compute waits for weights before it begins at all.
struct ForwardLinks {
  std::array<Seconds, kLinks> of_pass = {}, fetching = {};
  Seconds first_wait = 0;
  // The part of the weights of a forward pass that there is room for before it begins.
  double room_to_fetch = 1;
};

// Where the phases of each pass end in a chunk's own timeline: with the last of their compute, or
// with the collectives that come after it (of an output that leaves in another layout, or inside
// the last op). What the first op of a phase waits for, such as a gathered input, is in that phase.
// The actions of a schedule are cut there.
class PhaseEnds {
 public:
  explicit PhaseEnds(std::int64_t passes) : of_pass_(static_cast<std::size_t>(passes)) {}
  void add(const StepEvent& event, const Graph& graph, const StrategyCost& cost);
  void close();  // after the last event, and before anything is asked

  Seconds forward_begin(std::size_t pass) const { return pass == 0 ? 0 : backward_end(pass - 1); }
  Seconds forward_end(std::size_t pass) const { return of_pass_[pass].forward; }
  Seconds backward_end(std::size_t pass) const { return of_pass_[pass].backward; }
  Seconds end() const { return of_pass_.back().backward; }  // of all before the update
  Seconds first_begin() const { return first_; }            // of compute; infinity: there is none

 private:
  struct OfPass {
    Seconds forward = 0, backward = 0;
  };
  std::vector<OfPass> of_pass_;
  Seconds first_ = kInfinity;
};
// The op whose part of the backward pass a term is in: a value is handed on as its hub.
OpId op_of_part(const CostTerm& term, const Graph& graph);

PhaseEnds phase_ends(const Graph& graph, const StrategyCost& cost,
                     const std::vector<StepEvent>& events);

// Of one pass and of the update, without what is sent, as the timeline of the chunk's own step has
// them (PhaseEnds). `weight_ops`: of W, per op; a backward pass in two parts takes as long as these
// do, each alone, as they are programs of their own. `links`: null, not asked for.
ChunkCost chunk_cost(const Planned& planned, const std::vector<char>& weight_ops,
                     ForwardLinks* links = nullptr);
ChunkCost chunk_cost(const SearchRequest& request, const Mesh& mesh, const StrategyCost& plan,
                     const std::vector<char>& weight_ops, ForwardLinks* links = nullptr);

// What of a step's update is not compute of its own.
struct LateSeconds {
  // Links are busy with gradients, which the update waits for, and with new weights, which the
  // passes of the next step do.
  std::array<Seconds, kLinks> gradients = {}, weights = {};
  Seconds tail = 0;  // from the end of the passes until the last gradient is there
  Seconds rest = 0;  // from then on
};
LateSeconds late_seconds(const SearchRequest& request, const Mesh& mesh, const StrategyCost& plan);

// Per op of a chunk's graph whether it belongs to W. Empty where one of the parts would be. What
// lies as a partial sum does not pass from one part to the other: its readers belong to the part
// that makes it, with all that they read. I reads nothing of W, which comes later.
std::vector<char> weight_part(const Graph& graph, const Strategy& strategy,
                              const std::string& updates);

// Per op of a chunk's graph whether it belongs to R, which are the named ones and what of the
// update makes what they read.
std::vector<char> reduce_part(const Graph& graph, const std::vector<std::string>& reduce_ops);

}  // namespace autopar
