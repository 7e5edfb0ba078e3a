#include "exec/reference.hpp"

#include "exec/rank.hpp"
#include "exec/thread_world.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

// All that the passes read is what the step reads.
Status check_inputs(const RunRequest& passes, const Wiring& wiring, const InputTensors& inputs) {
  for (std::size_t p = 0; p < passes.programs.size(); ++p) {
    for (std::size_t i = 0; i < passes.programs[p].inputs.size(); ++i) {
      const InputSource& source = wiring.inputs[p][i];
      if (source.kind != InputSource::Kind::kGiven && source.kind != InputSource::Kind::kState) {
        continue;
      }
      const BoundaryValue whole =
          whole_of(passes.programs[p].inputs[i], source, wiring.micro_batches);
      const auto given = inputs.find(whole.name);
      if (given != inputs.end() && given->second.dtype == whole.dtype &&
          given->second.shape == whole.shape) {
        continue;
      }
      return input_error(passes.programs[p].path + ": reads '" + whole.name + "' as " +
                         name_of(whole.dtype) + to_text(whole.shape) + ", which the step " +
                         (given == inputs.end() ? "lacks" : "reads otherwise") +
                         ": are these its unsharded passes?");
    }
  }
  return Ok{};
}

// The same calls as of any step, by one rank.
Result<Reference> run_passes(Ort::Env& environment, const RunRequest& request,
                             const InputTensors& inputs) {
  RunRequest passes = *request.passes;
  passes.steps = request.steps;
  passes.optimize = request.optimize;
  passes.profile = passes.timeline = false;
  passes.repeat = 0;
  AUTOPAR_RETURN_IF_ERROR(verify(passes));
  AUTOPAR_TRY(wiring, wiring_of(passes));
  AUTOPAR_RETURN_IF_ERROR(check_inputs(passes, wiring, inputs));
  AUTOPAR_TRY(feeds, RankFeeds::make(passes, wiring, {}, 0, &inputs));
  ThreadWorld world(1, request.timeout);
  Rank rank(std::make_unique<ThreadCommunicator>(world, 0), passes, wiring);
  AUTOPAR_RETURN_IF_ERROR(open_sessions(rank, environment, passes));
  Reference reference;
  try {
    const Seconds begin = steady_seconds();
    const std::vector<Ort::Value> results = run_rank(rank, passes, wiring, feeds);
    reference.wall = steady_seconds() - begin;
    for (std::size_t r = 0; r < results.size(); ++r) {
      reference.outputs[wiring.results[rank.results[r].result].value.name] = copy_of(results[r]);
    }
  } catch (const Ort::Exception& exception) {
    return failure_of(passes.programs[0].path + ": ONNX Runtime cannot run the unsharded passes: ",
                      exception, ErrorCode::kInput);
  }
  from_result_form(wiring, reference.outputs);
  return reference;
}

}  // namespace

Result<Reference> run_reference(Ort::Env& environment, const RunRequest& request,
                                const Wiring& wiring, const InputTensors& inputs) {
  if (request.model_path.empty() && !request.passes) return Reference{};
  AUTOPAR_TRY(reference, request.passes ? run_passes(environment, request, inputs)
                                        : run_model(environment, request, inputs));
  to_result_form(wiring, reference.outputs);
  return std::move(reference);
}

}  // namespace autopar
