// What one rank does while a machine is measured.
#pragma once

#include <string>
#include <vector>

#include "autopar/calibrate.hpp"
#include "exec/runtime.hpp"

namespace autopar {

// All ranks at the same time; all get the same result. `environment`: of this process's sessions;
// `hosts`: by rank.
Result<Measurements> measure_rank(Communicator& communicator, Ort::Env& environment,
                                  const MeasureRequest& request,
                                  const std::vector<std::string>& hosts);

}  // namespace autopar
