// The collectives of one program as the order proof sees them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "partition/collectives.hpp"

namespace autopar {

// One op of a program that exchanges data between ranks.
struct CollectiveOfProgram {
  const Op* op = nullptr;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int64_t seq = -1;
  const std::vector<std::int64_t>* groups = nullptr;  // flattened; the program's own list
  std::int64_t group_size = 1;
  TensorType input;    // Send, Recv: what is sent
  bool spans = false;  // some of its groups hold ranks of other programs too
};

// What the ranks of one program call, in the forced order.
struct Calls {
  const ProgramOnRanks* program = nullptr;
  std::vector<CollectiveOfProgram> collectives;
};

// Each rank runs one program at most; `all`: one exactly.
Status check_ranks(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size, bool all);

// Checks what can be checked of one program alone, see prove_order(). Errors start with the
// program's name where it has one. O(values + ops + ranks in different lists of groups).
Result<Calls> calls_of(const ProgramOnRanks& program, std::int64_t world_size);

// "AllReduce 'a' (seq 3)".
std::string to_text(const CollectiveOfProgram& collective);
// What differs between two calls that meet: "axis 1, but rank 0 has axis 0 in AllGather 'a' (seq
// 3)"; empty where nothing does. Of messages kinds are not compared.
std::string difference_of(const CollectiveOfProgram& one, const CollectiveOfProgram& other,
                          std::int64_t other_rank);

}  // namespace autopar
