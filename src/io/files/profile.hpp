// A profile as JSON: a file of its own, or part of a cluster.json.
#pragma once

#include "autopar/profile.hpp"
#include "io/files/json.hpp"

namespace autopar {

// Checked; errors name file and field.
Result<Profile> profile_of(const Json& json);

}  // namespace autopar
