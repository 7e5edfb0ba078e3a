#include "search/rec/rec.hpp"

#include "search/rec/within_limit.hpp"

namespace autopar {

namespace {

// What was proven of the plans that were looked at last holds for those only.
Error of_rec(Error error) {
  const std::string all = "no plan fits", found = "no plan was found that fits";
  for (const std::string& said : {all, found}) {
    if (error.code != ErrorCode::kInfeasible || error.message.rfind(said, 0) != 0) continue;
    error.message = "rec found no plan that fits" + error.message.substr(said.size()) +
                    "; --searcher dp looks at all plans";
  }
  return error;
}

}  // namespace

Result<SearchOutcome> search_rec(const SearchRequest& request) {
  rec::Attempts attempts(request);
  AUTOPAR_TRY(made, attempts.make({}));
  for (const rec::Attempt& attempt : made) {
    if (attempts.best && attempts.stopped()) break;
    rec::Attempts::ValuesOptions options;
    options.cutoff = attempts.cutoff();
    attempts.keep(attempts.with_values(attempt, false, options));
  }
  if (!attempts.best) AUTOPAR_RETURN_IF_ERROR(rec::fit_into_memory(attempts, made));
  if (!attempts.best) return of_rec(*attempts.error);
  SearchOutcome outcome = std::move(*attempts.best);
  outcome.trials = std::move(attempts.trials);
  outcome.lower_bound = outcome.unlimited_lower_bound = 0;
  outcome.interrupted |= attempts.stopped();
  outcome.searcher = "rec";
  outcome.phases = {{"cuts", attempts.cuts_seconds},
                    {"recursion", attempts.recursion_seconds},
                    {"values", attempts.values_seconds}};
  return outcome;
}

}  // namespace autopar
