#include "search/rec/rec.hpp"

#include <algorithm>

#include "search/rec/within_limit.hpp"

namespace autopar {

namespace {

// A plan that needs so many times the limit does not fit once only its values lie otherwise.
constexpr double kFarTooBig = 2;

// Of the cost of another plan: a plan that is dearer before it is made to fit may be cheaper after.
constexpr double kSurely = 0.9;
// Estimates are rough, but not by so much: attempts that are estimated at so many times what is of
// interest are left. On steps of 8B those of 1.5 to 1.9 times led to nothing.
constexpr double kTooDear = 1.5;

// Where values lie between the ops of the attempts. Without the memory limit first, which is quick
// and shows whether it matters. Of interest are plans that cost less than `cutoff`.
struct ValuePlacing {
  rec::Attempts& attempts;
  Seconds cutoff = kInfinity;
  std::vector<rec::Attempt> near = {};  // that may fit, which takes long to find out

  void place(rec::Attempt& attempt) {
    rec::Attempts::ValuesOptions options;
    options.cutoff = std::min(attempts.cutoff(), cutoff);
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
      if (attempts.is_large()) {
        near.push_back(attempt);
        return;
      }
    }
    attempts.keep(attempts.with_values(attempt, false, options));
  }

  // Where no plan fits as it is.
  Status fit(std::vector<rec::Attempt>& made) { return fit_into_memory(attempts, made, near); }
};

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

SearchOutcome outcome_of(rec::Attempts& attempts) {
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

}  // namespace

Result<SearchOutcome> search_rec(const SearchRequest& request) {
  rec::Attempts attempts(request);
  ValuePlacing placing{attempts};
  AUTOPAR_TRY(made, attempts.make({}));
  for (rec::Attempt& attempt : made) {
    if (attempts.stopped() && &attempt != &made.front()) break;
    placing.place(attempt);
  }
  if (!attempts.best) AUTOPAR_RETURN_IF_ERROR(placing.fit(made));
  if (!attempts.best) return of_rec(*attempts.error);
  return outcome_of(attempts);
}

Result<std::optional<SearchOutcome>> search_rec(const SearchRequest& request,
                                                const Proven& proven) {
  const auto is_proven = [&](const Mesh& mesh) {
    return std::find(proven.meshes.begin(), proven.meshes.end(), mesh) != proven.meshes.end();
  };
  std::optional<SearchOutcome> none;
  if (request.mesh && is_proven(*request.mesh)) return none;
  rec::Attempts attempts(request);
  attempts.may_end_without = true;
  ValuePlacing placing{attempts, proven.cost / kSurely};
  auto made_now = attempts.make({});
  if (!made_now && attempts.stopped()) return none;
  AUTOPAR_TRY(made, std::move(made_now));
  bool may_fit = false;
  for (rec::Attempt& attempt : made) {
    if (attempts.stopped()) break;
    if (is_proven(attempt.mesh) || attempt.found.cost > kTooDear * placing.cutoff) continue;
    placing.place(attempt);
    may_fit |= attempt.unlimited < kInfinity;
  }
  if (!attempts.best && may_fit) AUTOPAR_RETURN_IF_ERROR(placing.fit(made));
  if (!attempts.best || attempts.best->cost.time() >= proven.cost) return none;
  return std::optional(outcome_of(attempts));
}

}  // namespace autopar
