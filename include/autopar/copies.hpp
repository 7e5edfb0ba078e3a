// Several copies of the passes of a training step, interleaved: while a collective of one runs, the
// others compute.
#pragma once

#include <string>
#include <vector>

#include "autopar/partition.hpp"
#include "autopar/step.hpp"

namespace autopar {

// What copy c does next: up to the op of that name, or, where there is none, up to and with the
// next of its collectives.
struct CopyTurn {
  std::size_t copy = 0;
  std::string op = {};
};

// The program of `copies` passes in place of one. `pass` is a pass of one micro-batch; the result
// takes `copies` of them: of each input in `micro_inputs` it reads so many times the extent along
// the dimension that is cut, and copy c gets the elements c, c + copies, c + 2 copies, ... of it.
// So the part that each rank holds of every copy lies in its part of the whole.
//
// - All copies read the same parameters. What a copy makes as the next value of an input
//   (`new.<input>`: accumulators, running statistics) is what the next copy reads in its place.
// - Each of `outputs` becomes one value by its `combining`.
// - The ops come in the order of `turns`. Where these do not name as many collectives of each copy
//   as the pass has, the copies alternate in sections that end with collectives. Copy 0 keeps the
//   names of its ops, the op `x` of copy c is called `x.copy<c>`.
//
// Preconditions: copies >= 1; a plan of partition() or unsharded(), whose outputs are next values
// of its inputs, or stand in `outputs` and are not concatenated.
Result<Plan> interleave_copies(const Plan& pass, std::int64_t copies,
                               const std::vector<MicroInput>& micro_inputs,
                               const std::vector<StepOutput>& outputs,
                               const std::vector<CopyTurn>& turns = {});

}  // namespace autopar
