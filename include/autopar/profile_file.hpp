// Profiles as files.
//
//   write_file_atomically(path, profile_to_json(profile, "autopar fit: 12 plans of runs.csv"));
#pragma once

#include <string>

#include "autopar/profile.hpp"

namespace autopar {

// The text of a profile.json that read_profile reads as the same profile, which must have a name.
// `sources`: where its numbers come from, for people; empty: nothing is said.
std::string profile_to_json(const Profile& profile, const std::string& sources = "");

}  // namespace autopar
