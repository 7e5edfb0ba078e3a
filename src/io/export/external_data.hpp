// External data beside the file that refers to it.
#pragma once

#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/unfinished.hpp"

namespace autopar {

// Puts every file that initializers refer to into `folder`, with `files`, where it is not there
// already. Clones or copies; links above `link_bytes`. Returns warnings (files that do not exist,
// links). Errors: a file that cannot be written.
Result<std::vector<std::string>> place_external_data(const Graph& graph,
                                                     const std::string& from_folder,
                                                     const std::string& folder, Bytes link_bytes,
                                                     UnfinishedFiles& files);

}  // namespace autopar
