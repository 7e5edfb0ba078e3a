#include "search/rec/rec.hpp"

#include "search/rec/within_limit.hpp"

namespace autopar {

Result<SearchOutcome> search_rec(const SearchRequest& request) {
  rec::Attempts attempts(request);
  AUTOPAR_TRY(meshes, attempts.meshes({}));
  const Seconds cuts_seconds = attempts.clock.lap();
  std::vector<rec::Attempt> made;
  for (const Mesh& mesh : meshes) {
    if (attempts.best && attempts.stopped()) break;
    rec::Attempt attempt{mesh};
    const Status done = attempts.recurse_on(attempt, {});
    if (!done) {
      // Another mesh may keep the pins that this one cannot.
      if (done.error().code != ErrorCode::kInput) return done.error();
      attempts.error = done.error();
      continue;
    }
    rec::Attempts::ValuesOptions options;
    options.cutoff = attempts.cutoff();
    attempts.keep(attempts.with_values(attempt, false, options));
    made.push_back(std::move(attempt));
  }
  if (!attempts.best && !made.empty()) {
    AUTOPAR_RETURN_IF_ERROR(rec::fit_into_memory(attempts, made));
  }
  if (!attempts.best) return *attempts.error;
  SearchOutcome outcome = std::move(*attempts.best);
  outcome.trials = std::move(attempts.trials);
  outcome.lower_bound = outcome.unlimited_lower_bound = 0;
  outcome.interrupted |= attempts.stopped();
  outcome.searcher = "rec";
  outcome.phases = {{"cuts", cuts_seconds},
                    {"recursion", attempts.recursion_seconds},
                    {"values", attempts.values_seconds}};
  return outcome;
}

}  // namespace autopar
