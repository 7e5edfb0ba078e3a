// Rank folders, written.
#pragma once

#include <string>
#include <vector>

#include "autopar/unfinished.hpp"
#include "weights/sharded_program.hpp"
#include "weights/tensors.hpp"

namespace autopar {

// Adds a file and reserves its size; the name under which it is to be written.
Result<std::string> add_reserved(UnfinishedFiles& files, const std::string& path, Bytes size);
// Adds another name for a file that was added as `part`; a copy where the file system has no hard
// links.
Status add_link(UnfinishedFiles& files, const std::string& path, const std::string& part);

// Writes the rank folders of a program, and its plan.onnx, below `folder`, with `files`; `inputs`
// are graph inputs that the ranks' files hold as well. `stored` has them all.
Result<RankFolders> write_rank_folders(ShardedProgram program,
                                       const std::vector<BoundaryValue>& inputs,
                                       PlanMetadata metadata, const StoredTensors& stored,
                                       const std::string& folder, UnfinishedFiles& files);

// The same of a plan whose initializers are whole; `stored` has the inputs.
Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder,
                                       UnfinishedFiles& files,
                                       const std::vector<BoundaryValue>& inputs,
                                       StoredTensors stored);

}  // namespace autopar
