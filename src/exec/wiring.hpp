// How the programs of a request hang together: which calls every rank makes, from where each input
// comes, where each output goes, and what of it is compared. Worked out once, alike on all ranks.
//
//   AUTOPAR_TRY(wiring, wiring_of(request));
//   for (const ProgramCall& call : wiring.lines[wiring.line_of_rank[rank]]) ...
//
// A request without a step is the special case in which every rank calls its one program once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/movement.hpp"
#include "exec/request.hpp"

namespace autopar {

struct ProgramCall {
  std::size_t program = 0;
  std::int64_t micro_batch = -1;  // -1: of all
};

// Names an output of a program.
struct Port {
  std::size_t program = 0;
  std::size_t output = 0;
  auto operator<=>(const Port&) const = default;
};

struct InputSource {
  enum class Kind {
    kGiven,        // by data or seed, as the unsharded model is
    kState,        // given in the first step, later `maker`
    kAccumulator,  // zero at the start of the step, then what the last pass gave
    kMade,         // by `maker`, for the same micro-batch or for all
  };
  Kind kind = Kind::kGiven;
  // kGiven: a micro-batch reads one of equal parts along this dimension.
  std::optional<std::size_t> cut = {};
  Port maker = {};
  // kMade, kState: how the maker's slices become the reader's; nothing: they are the same.
  std::optional<std::size_t> movement = {};
};

// What becomes of an output; an activation may be none of these.
struct OutputUse {
  bool is_accumulator = false;
  bool is_next_value = false;              // the state of a later call
  std::optional<std::size_t> result = {};  // index into Wiring::results
};

// One output that leaves the run.
struct RunOutput {
  std::size_t program = 0;
  // Its whole shape and spec. Of one that is put together along a dimension (`cut`), that dimension
  // is two: the micro-batches, and what each has.
  BoundaryValue value;
  std::optional<std::size_t> cut = {};
  Combining combining = Combining::kLast;
};

// The values of one output that one input reads, where these lie otherwise; and other inputs of the
// same ranks in the same layout, for which they come once.
struct ValueMovement {
  Port maker;
  std::size_t reader = 0;  // program
  std::size_t input = 0;
  Movement slices;
};

struct Wiring {
  std::vector<std::vector<InputSource>> inputs;  // by program, by input
  std::vector<std::vector<OutputUse>> outputs;   // by program, by output
  std::vector<std::vector<ProgramCall>> lines;
  std::vector<std::size_t> line_of_rank;
  std::vector<RunOutput> results;
  std::vector<ValueMovement> movements;
  std::int64_t micro_batches = 1;
  std::int64_t world_size = 1;
};

// Errors (kInput): values that do not fit together, named with their programs; actions that cannot
// run in the order of the schedule.
Result<Wiring> wiring_of(const RunRequest& request);

// A given input as the unsharded model has it, and the same with a dimension of micro-batches.
BoundaryValue whole_of(const BoundaryValue& input, const InputSource& source,
                       std::int64_t micro_batches);
BoundaryValue with_micro_batches(const BoundaryValue& value, std::size_t dimension,
                                 std::int64_t micro_batches);
// A whole tensor in the form of a result, where it has its size.
void to_result_form(const Wiring& wiring, std::map<std::string, Tensor>& tensors);
// And back.
void from_result_form(const Wiring& wiring, std::map<std::string, Tensor>& tensors);

// The position of a rank among those of a program; nothing: it is not one of them.
std::optional<std::int64_t> position_of(const RunProgram& program, std::int64_t rank);
// The results that a rank has a slice of, in their order.
struct ResultPlace {
  std::size_t result = 0;
  RankPlace place;
};
std::vector<ResultPlace> results_of(const RunRequest& request, const Wiring& wiring, int rank);

// Messages between ranks: all pairs of a sender and a receiver.
std::vector<std::vector<std::int64_t>> message_pairs(const RunRequest& request,
                                                     const Wiring& wiring);

}  // namespace autopar
