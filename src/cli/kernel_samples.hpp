// What of a model is timed to calibrate a profile, and the profile that comes nearest to the times.
#pragma once

#include <vector>

#include "autopar/calibrate.hpp"
#include "autopar/fit.hpp"
#include "autopar/ir.hpp"

namespace autopar::cli {

struct KernelSample {
  TimedOp timed;
  Graph graph;        // what is timed, once
  double weight = 1;  // in the fit
};

// The model as a whole where its tensors take up to 1 GB, and of each type of op that is not of
// `ai.autopar`, and no view, up to four sizes, from the least to the most work: of the ops as they
// are, and split over each of the meshes in each way that leaves the op itself. Ops of more than
// 256 MB are left out. One more op has next to nothing to do, for the launch, and weighs a quarter
// of these. The same graph gives the same samples. The whole model weighs as much as all of its ops
// together: in it is what lies between ops. O(ops * ways to split).
Result<std::vector<KernelSample>> kernel_samples(const Graph& graph,
                                                 const std::vector<Mesh>& meshes);

// Launch, and the fractions of peaks and bandwidth that the timed samples reach on the device of
// `cluster`: of a runtime that runs op by op, and nothing beside a collective, as `run` does.
// `seconds`: by sample; 0 where it could not be timed. Errors: fewer than four times.
Result<ProfileFit> fit_samples(const std::vector<KernelSample>& samples,
                               const std::vector<Seconds>& seconds, const Cluster& cluster);
inline const std::vector<std::string> kSampleParameters = {"launch_s", "matrix.fraction",
                                                           "matrix.half_k", "memory.fraction"};

}  // namespace autopar::cli
