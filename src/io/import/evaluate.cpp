#include "io/import/evaluate.hpp"

namespace autopar {
namespace {

bool within(const OpEvaluation& evaluation, Bytes limit) {
  for (const OutputType& output : evaluation.outputs) {
    if (output.shape && element_count(*output.shape) > limit / size_of(output.dtype)) return false;
  }
  // Reading a large input for a small result is fine, within reason.
  for (const Tensor* input : evaluation.inputs) {
    if (input && static_cast<Bytes>(input->bytes.size()) / 16 > limit) return false;
  }
  return true;
}

bool as_inferred(const Tensors& results, const OpEvaluation& evaluation, Bytes limit) {
  if (results.size() != evaluation.outputs.size()) return false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OutputType& output = evaluation.outputs[i];
    if (results[i].dtype != output.dtype || (output.shape && results[i].shape != *output.shape) ||
        static_cast<Bytes>(results[i].bytes.size()) > limit) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Tensors> evaluate(const OpEvaluation& evaluation, Bytes limit) {
  if (!evaluation.op.domain.empty() || !within(evaluation, limit)) return std::nullopt;
  for (const auto family :
       {evaluate_elementwise, evaluate_movement, evaluate_indexing, evaluate_reduction}) {
    auto results = family(evaluation);
    if (!results) continue;
    if (!as_inferred(*results, evaluation, limit)) return std::nullopt;
    return results;
  }
  return std::nullopt;
}

}  // namespace autopar
