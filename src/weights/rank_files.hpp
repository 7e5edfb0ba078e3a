// Rank folders, written.
#pragma once

#include <string>
#include <vector>

#include "weights/sharded_program.hpp"
#include "weights/tensors.hpp"

namespace autopar {

// Files that are under temporary names until all of them are complete. What is not kept goes, and
// so do the folders that were made for it.
class PendingFiles {
 public:
  PendingFiles() = default;
  PendingFiles(const PendingFiles&) = delete;
  PendingFiles& operator=(const PendingFiles&) = delete;
  ~PendingFiles();

  // Reserves the file and makes its folder; the temporary name.
  Result<std::string> add(const std::string& path, Bytes size);
  // Another name for a file that was added; a copy where the file system has no hard links.
  Status add_link(const std::string& path, const std::string& temporary);
  // Gives all files their names, in the order in which they were added.
  Status keep();

 private:
  Result<std::string> add_name(const std::string& path);

  std::vector<std::pair<std::string, std::string>> files_;  // temporary, final
  std::vector<std::string> made_;                           // folders, outermost first
};

// Writes the rank folders of a program, and its plan.onnx, below `folder`; `inputs` are graph
// inputs that the ranks' files hold as well. `stored` has them all.
Result<RankFolders> write_rank_folders(ShardedProgram program,
                                       const std::vector<BoundaryValue>& inputs,
                                       PlanMetadata metadata, const StoredTensors& stored,
                                       const std::string& folder);

}  // namespace autopar
