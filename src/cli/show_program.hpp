// Programs with collectives, plans or by hand: what they do and what they cost.
#pragma once

#include <string>
#include <vector>

#include "autopar/cost.hpp"
#include "autopar/export.hpp"
#include "cli/command.hpp"

namespace autopar::cli {

// Boundary, collectives in order, totals; `all_ops`: every op too.
Result<std::string> show_program(const PlanFile& file, bool all_ops);

// "AllGather {nvlink} 0", or where it names no axes of the mesh "AllGather [0,1][2,3] 0".
std::string collective_text(const Plan& plan, const ProgramCollective& collective);

// What one run of the programs takes.
struct ProgramTerm {
  std::size_t file = 0;
  OpId op;
  bool collective = false;
  std::string tiers = {};  // collectives: those that groups cross, "nvlink,ib"
  Seconds seconds = 0;
  double sent_bytes = 0;  // by one rank
};
struct ProgramPrice {
  std::vector<ProgramTerm> terms;  // of each file in the order of its ops
  std::vector<MemoryPeak> memory;  // by file
  // By file: while an op runs, as StrategyCost::held.
  std::vector<std::vector<Bytes>> held;
  // By the clocks of the ranks: a rank goes through its ops one after the other, a collective
  // starts when all ranks of its group are there.
  Seconds seconds = 0;
};
// Local ops by the roofline model on their local shapes, collectives by the tiers that their groups
// cross. Ranks 0, 1, ... are the first devices of the cluster. Errors: more ranks than devices.
Result<ProgramPrice> price_programs(const std::vector<PlanFile>& files, const Cluster& cluster);
std::string price_table(const std::vector<PlanFile>& files, const ProgramPrice& price);
// What tables say of these prices, which are those of no profile.
inline constexpr const char* kIdealPrices = "at ideal prices: op after op, of no profile";
std::string price_json(const std::vector<PlanFile>& files, const ProgramPrice& price);

// With -v: what was read.
void tell_of_programs(const std::vector<PlanFile>& files);

// A warning for each type of op whose domain says nothing about it: it is taken for local.
std::vector<std::string> warn_of_unknown_ops(const Graph& program);

// Whether a file is a program with collectives rather than a model: by what it holds.
enum class FileKind { kOther, kPlan, kByHand };
FileKind kind_of_file(const std::string& path);

}  // namespace autopar::cli
