// Files with collectives, as plans or by hand.
#pragma once

#include "io/export/plan_metadata.hpp"

namespace autopar {

// Of a file with the metadata of a plan. Takes the data out of `model`.
Result<PlanFile> plan_of_model(LeanModel& model, const std::string& path);
// Sets ranks and world size, of a file whose path and mesh are there.
Status set_ranks(const Properties& properties, PlanFile& file);
// Of a model into which somebody wrote collectives.
Result<PlanFile> read_by_hand(const std::string& path,
                              const std::map<std::string, std::int64_t>& dims);

// Collectives of other domains; the error says what is accepted in their place.
Status check_known_collectives(const onnx::ModelProto& model);

}  // namespace autopar
