// Files with collectives, as plans or by hand.
#pragma once

#include "io/export/plan_metadata.hpp"
#include "io/onnx_read.hpp"

namespace autopar {

// The ranks of a program where another file says them (step.json).
struct GivenRanks {
  std::vector<std::int64_t> ranks;
  std::int64_t world_size = 0;
};
// Of a file with the metadata of a plan. Takes the data out of `model`.
Result<PlanFile> plan_of_model(LeanModel& model, const std::string& path,
                               const GivenRanks* given = nullptr);
// Sets ranks and world size, of a file whose path and mesh are there. Errors: the file says others
// than are given.
Status set_ranks(const Properties& properties, PlanFile& file, const GivenRanks* given = nullptr);
// Of a model into which somebody wrote collectives, in the words of ai.autopar or another runtime.
Result<PlanFile> read_by_hand(const std::string& path,
                              const std::map<std::string, std::int64_t>& dims,
                              const GivenRanks* given = nullptr);
// Of one that has been read from `path`, its collectives being those of ai.autopar already.
Result<PlanFile> by_hand_of(ModelFile read, const std::string& path, const std::string& dialect,
                            const std::map<std::string, std::int64_t>& dims,
                            const GivenRanks* given = nullptr);

// A list of the files that the ranks of a world run (plan.trt.json), one program of all of them.
// Nothing else that is read here is JSON (is_json).
Result<PlanFile> read_rank_files(const std::string& path,
                                 const std::map<std::string, std::int64_t>& dims);
// A file of some of the ranks only is refused.
Status check_is_for_all_ranks(const std::string& path, const Properties& properties);

}  // namespace autopar
