// The stored values of a step of several programs in files of its ranks: a rank has its slices of
// the parameters and states that its programs read, and of what is not trained where that is an
// input, too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/step_file.hpp"
#include "autopar/training_roles.hpp"
#include "autopar/unfinished.hpp"
#include "weights/tensors.hpp"

namespace autopar {

// Where a value lies: over the ranks of one program, in the order of its mesh.
struct StepPlace {
  BoundaryValue value;
  const Mesh* mesh = nullptr;
  const std::vector<std::int64_t>* ranks = nullptr;
};

// Which slices the ranks hold. What reads a value on a rank in several layouts (tied weights) has
// it as it is updated, else as the first program reads it.
struct StepLayout {
  std::map<std::string, StepPlace> whole;  // by value: over the ranks that update it, else read it
  std::vector<std::map<std::string, StepPlace>> of_rank;
  TrainingRoles roles;

  // What is not trained, of the values in `whole`.
  std::vector<std::string> not_trained() const;
};

// `step` and `plans`, which are its programs in its order, must outlive what is returned.
// `metadata`: of one of them, which says what is data.
Result<StepLayout> step_layout(const Step& step, const std::vector<const Plan*>& plans,
                               const PlanMetadata& metadata, const std::string& where);

// A step as it lies in a folder.
struct StepFolder {
  Step step;
  std::vector<PlanFile> files;
  StepLayout layout;
};
Result<StepFolder> read_step_folder(const std::string& folder);

// Whether a folder has files of ranks.
bool has_rank_files(const std::string& folder);

// The slices of the ranks that update each value. Errors: a rank's file that is missing, has what
// the rank does not read, has it in another layout, or lacks a parameter, or states that others
// have.
Result<StoredTensors> stored_in_step(const StepLayout& layout, const std::string& folder);

// The step has parameters that are stored in float32 in 16 bits.
void narrow_to_step(const StepLayout& layout, StoredTensors& stored);

// The parameters and states of a step of one pass, which reads them as inputs. Errors: as of
// write_step_ranks().
Result<std::vector<BoundaryValue>> inputs_in(const Plan& plan, const std::string& training,
                                             bool narrows, const std::string& from,
                                             StoredTensors& stored);

// Writes the ranks' files below `folder`, with `files`: of every value that `stored` has. Errors: a
// parameter or running statistic that it lacks, states of which it has some, another shape or type.
Result<RankFolders> write_step_ranks(const StepLayout& layout, const StoredTensors& stored,
                                     const std::string& from, const std::string& folder,
                                     UnfinishedFiles& files);

}  // namespace autopar
