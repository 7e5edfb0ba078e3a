// What the ranks' results are compared with.
#pragma once

#include "exec/session.hpp"
#include "exec/wiring.hpp"

namespace autopar {

// Of the unsharded model, or of its passes and updates one after the other (RunRequest::passes);
// nothing where the request has neither. Whole outputs in the form of the results of `wiring`.
Result<Reference> run_reference(Ort::Env& environment, const RunRequest& request,
                                const Wiring& wiring, const InputTensors& inputs);

}  // namespace autopar
