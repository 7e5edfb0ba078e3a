#include "search/rec/within_limit.hpp"

#include <algorithm>
#include <cmath>

#include "search/rec/shortage.hpp"

namespace autopar::rec {

namespace {

constexpr double kEnough = 0.02;  // gap of a plan that fits
// How many times the time of the plan that does not fit all memory of a device is worth at first.
constexpr double kFirstWorth = 1, kStep = 10, kMostWorth = 1e7;
constexpr double kNear = 2;  // multipliers that differ by less are one
constexpr int kMaxTries = 9;
// A plan that needs so many times the limit may fit once its values lie otherwise.
constexpr double kSlightly = 1.3;
constexpr int kFewAxes = 2;

struct Fit {
  Attempts& attempts;
  Shortage shortage;
  double worth = kFirstWorth;  // that the last mesh ended with

  explicit Fit(Attempts& a) : attempts(a), shortage(a.request.graph, a.request.updates) {}

  // The plan without the memory limit; notes when it has its peak.
  Result<SearchOutcome> unlimited(const Attempt& attempt, const Decisions* stored) {
    Attempts::ValuesOptions options;
    options.stored = stored;
    options.limited = false;
    AUTOPAR_TRY(outcome, attempts.with_values(attempt, false, options));
    if (too_big(outcome)) shortage.add(outcome.cost.memory.time);
    return outcome;
  }
  bool too_big(const SearchOutcome& outcome) const {
    return static_cast<double>(outcome.cost.memory.total) > attempts.limit();
  }

  // Whether the last decisions of the attempt make a plan that fits.
  Result<bool> fits(const Attempt& attempt) {
    AUTOPAR_TRY(outcome, unlimited(attempt, &attempt.found));
    if (!too_big(outcome)) return attempts.keep(std::move(outcome));
    if (static_cast<double>(outcome.cost.memory.total) > kSlightly * attempts.limit()) return false;
    Attempts::ValuesOptions options;
    options.stored = &attempt.found;
    options.gap = kEnough;
    options.cutoff = attempts.cutoff();
    return attempts.keep(attempts.with_values(attempt, false, options));
  }

  // `time` of the plan that does not fit.
  Status search_worth(Attempt& attempt, Seconds time) {
    double too_low = 0, enough = kInfinity;
    for (int tries = 0; tries < kMaxTries && worth <= kMostWorth; ++tries) {
      if (attempts.stopped() && (attempts.best || tries > 0)) break;
      AUTOPAR_RETURN_IF_ERROR(
          attempts.recurse_on(attempt, shortage.prices(worth * time / attempts.limit())));
      AUTOPAR_TRY(fit, fits(attempt));
      if (fit) {
        enough = worth;
        if (too_low > 0 && enough <= kNear * too_low) break;
        worth = too_low > 0 ? std::sqrt(too_low * enough) : enough / kStep;
      } else {
        too_low = worth;
        if (enough <= kNear * too_low) break;
        worth = enough < kInfinity ? std::sqrt(too_low * enough) : too_low * kStep;
      }
    }
    worth = enough < kInfinity ? enough : kFirstWorth;
    return Ok{};
  }

  Status mix(const std::vector<Attempt>& made) {
    for (const Attempt& attempt : made) {
      if (attempts.stopped() && attempts.best) return Ok{};
      Attempts::ValuesOptions options;
      options.all_stored_specs = attempt.mesh.rank() <= kFewAxes;
      options.gap = kEnough;
      if (attempts.best) options.cutoff = attempts.cutoff();
      attempts.keep(attempts.with_values(attempt, true, options));
    }
    return Ok{};
  }
};

}  // namespace

Status fit_into_memory(Attempts& attempts, std::vector<Attempt>& made) {
  Fit fit(attempts);
  Seconds time = kInfinity;
  for (const Attempt& attempt : made) {
    AUTOPAR_TRY(outcome, fit.unlimited(attempt, nullptr));
    time = std::min(time, outcome.cost.total());
  }
  if (!attempts.request.mesh) {
    // Priced cuts may lead to other meshes.
    AUTOPAR_TRY(meshes, attempts.meshes(fit.shortage.prices(kStep * time / attempts.limit())));
    for (const Mesh& mesh : meshes) {
      const auto same = [&](const Attempt& attempt) { return attempt.mesh == mesh; };
      if (std::none_of(made.begin(), made.end(), same)) made.push_back({mesh});
    }
  }
  for (Attempt& attempt : made) {
    const Status done = fit.search_worth(attempt, time);
    // A mesh that cannot keep the pins.
    if (!done && done.error().code != ErrorCode::kInput) return done;
  }
  return attempts.best ? Ok{} : fit.mix(made);
}

}  // namespace autopar::rec
