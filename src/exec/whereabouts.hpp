// What ranks are doing, and the words for it where others wait for them.
//
//   ranks[0]: waits in AllReduce 'b' of ranks 0, 1 (as their second one); ranks[1]: has left 'a'
//   who_waits(ranks, 0) -> "AllReduce 'b' (...): rank 0 waits for rank 1; rank 1 is busy with local
//                           ops after AllReduce 'a'"
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace autopar {

// Ranks that meet, in their order.
using RankGroup = std::vector<std::int64_t>;

struct Whereabouts {
  std::string waits_in;   // the call that it has not come out of; empty: none
  RankGroup group;        // of that call
  std::string last_call;  // the one that it came out of before; empty: none
  bool finished = false;  // it makes no further calls
  bool answers = true;    // false: nothing else is known
  std::string name;       // where it does not answer: "process 17 on host"
  // How often it has come to each group: the k-th calls of a group's ranks belong together.
  std::map<RankGroup, std::uint64_t> meetings = {};
};

inline constexpr std::size_t kListedRanks = 8;  // in a message; a world may have many more

// "rank 1", "ranks 0, 2 and 5 more".
std::string list_ranks(const std::vector<std::int64_t>& ranks);

// "rank 1 is busy with local ops after AllReduce 'a'".
std::string state_text(std::int64_t rank, const Whereabouts& where);

// For whom `rank`, which is in a call, waits; for whom those wait, and so on; and what all of these
// are doing. Ranks that came to the same meeting with another call are told too. Precondition: one
// entry per rank of the world. O(ranks * meetings).
std::string who_waits(const std::vector<Whereabouts>& ranks, std::int64_t rank);

}  // namespace autopar
