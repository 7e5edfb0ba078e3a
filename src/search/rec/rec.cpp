#include "search/rec/rec.hpp"

#include "search/rec/within_limit.hpp"

namespace autopar {

namespace {

// A plan that needs so many times the limit does not fit once only its values lie otherwise.
constexpr double kFarTooBig = 2;

// Where values lie between the ops of the attempt. Without the memory limit first, which is quick
// and shows whether it matters.
void place_values(rec::Attempts& attempts, rec::Attempt& attempt) {
  rec::Attempts::ValuesOptions options;
  options.cutoff = attempts.cutoff();
  if (attempts.request.limit_memory) {
    options.limited = false;
    Result<SearchOutcome> unlimited = attempts.with_values(attempt, false, options);
    if (!unlimited) {
      attempts.keep(std::move(unlimited));
      return;
    }
    const auto bytes = static_cast<double>(unlimited->cost.memory.total);
    if (bytes <= attempts.limit()) {
      attempts.keep(std::move(unlimited));
      return;
    }
    attempt.unlimited = unlimited->cost.total();
    attempt.peak_time = unlimited->cost.memory.time;
    if (bytes > kFarTooBig * attempts.limit()) return;
    options.limited = true;
  }
  attempts.keep(attempts.with_values(attempt, false, options));
}

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
  for (rec::Attempt& attempt : made) {
    if (attempts.stopped() && &attempt != &made.front()) break;
    place_values(attempts, attempt);
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
