#include "search/rec/within_limit.hpp"

#include <algorithm>
#include <cmath>

#include "search/rec/shortage.hpp"

namespace autopar::rec {

namespace {

constexpr double kEnough = 0.02;  // gap of a plan that fits
// How many times the time of the plan that does not fit all memory of a device is worth at first.
constexpr double kFirstWorth = 1, kStep = 10, kMostWorth = 1e3;
constexpr double kNear = 2;  // multipliers that differ by less are one
constexpr int kMaxTries = 6;
// A plan that needs so many times the limit may fit once its values lie otherwise.
constexpr double kSlightly = 1.3;
constexpr int kFewAxes = 2;

struct Fit {
  Attempts& attempts;
  Shortage shortage;

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

  // Whether the bytes at a price make a plan of the mesh that is better than the best so far.
  // `time` of the plan that does not fit.
  Result<bool> improves(Attempt& attempt, double worth, Seconds time, bool& fitted) {
    const Seconds best = attempts.cutoff();
    const Status done =
        attempts.recurse_on(attempt, shortage.prices(worth * time / attempts.limit()));
    fitted = false;
    if (!done) {
      // A mesh that cannot keep the pins.
      if (done.error().code != ErrorCode::kInput) return done.error();
      return false;
    }
    AUTOPAR_TRY(fit, fits(attempt));
    fitted = fit;
    return attempts.cutoff() < best;
  }

  // The least of a ladder of prices at which some mesh has a plan that fits, and those meshes.
  struct Start {
    double worth = kFirstWorth;
    std::vector<Attempt*> fitting;
  };
  Result<Start> first_that_fits(std::vector<Attempt>& made, Seconds time) {
    Start start;
    for (; start.worth <= kMostWorth && start.fitting.empty(); start.worth *= kStep) {
      for (Attempt& attempt : made) {
        if (attempts.stopped()) return start;
        bool fitted = false;
        AUTOPAR_TRY(better, improves(attempt, start.worth, time, fitted));
        // The best one first.
        if (fitted)
          start.fitting.insert(better ? start.fitting.begin() : start.fitting.end(), &attempt);
      }
    }
    start.worth /= kStep;
    return start;
  }

  // The price lowered while the plan of the mesh still fits; given up where that gains nothing.
  Status lower(Attempt& attempt, double enough, Seconds time) {
    double too_low = enough > kFirstWorth ? enough / kStep : 0;
    int in_vain = 0;
    for (int tries = 0; tries < kMaxTries && in_vain < 2 && enough > kNear * too_low; ++tries) {
      if (attempts.stopped()) return Ok{};
      const double worth = too_low > 0 ? std::sqrt(too_low * enough) : enough / kStep;
      bool fitted = false;
      AUTOPAR_TRY(better, improves(attempt, worth, time, fitted));
      in_vain = better ? 0 : in_vain + 1;
      (fitted ? enough : too_low) = worth;
    }
    return Ok{};
  }

  // Values placed otherwise.
  void place(const std::vector<Attempt>& near) {
    for (const Attempt& attempt : near) {
      if (attempts.stopped()) return;
      if (attempt.unlimited >= attempts.cutoff()) continue;
      Attempts::ValuesOptions options;
      options.gap = kEnough;
      options.cutoff = attempts.cutoff();
      attempts.keep(attempts.with_values(attempt, false, options));
    }
  }

  Status mix(const std::vector<Attempt>& made) {
    for (const Attempt& attempt : made) {
      // One is looked at in any case.
      if (attempts.stopped() && (attempts.best || &attempt != &made.front())) return Ok{};
      Attempts::ValuesOptions options;
      options.all_stored_specs = attempt.mesh.rank() <= kFewAxes;
      options.gap = kEnough;
      if (attempts.best) options.cutoff = attempts.cutoff();
      attempts.keep(attempts.with_values(attempt, true, options));
    }
    return Ok{};
  }
};

// Per op what either has.
std::vector<std::vector<Assignment>> united(std::vector<std::vector<Assignment>> a,
                                            const std::vector<std::vector<Assignment>>& b) {
  for (std::size_t o = 0; o < a.size(); ++o) {
    for (const Assignment& assignment : b[o]) {
      if (std::find(a[o].begin(), a[o].end(), assignment) == a[o].end()) a[o].push_back(assignment);
    }
  }
  return a;
}

}  // namespace

Status fit_into_memory(Attempts& attempts, std::vector<Attempt>& made,
                       const std::vector<Attempt>& near) {
  Fit fit(attempts);
  if (attempts.stopped()) return fit.mix(made);
  Seconds time = kInfinity;
  for (Attempt& attempt : made) {
    if (attempt.peak_time < 0) {
      AUTOPAR_TRY(outcome, fit.unlimited(attempt, nullptr));
      attempt.unlimited = outcome.cost.total();
    } else {
      fit.shortage.add(attempt.peak_time);
    }
    time = std::min(time, attempt.unlimited);
  }
  // Priced cuts may lead to other meshes.
  AUTOPAR_TRY(priced, attempts.make(fit.shortage.prices(kStep * time / attempts.limit())));
  for (Attempt& attempt : made) {
    const auto same = [&](const Attempt& other) { return other.mesh == attempt.mesh; };
    const auto known = std::find_if(priced.begin(), priced.end(), same);
    if (known == priced.end()) {
      priced.push_back(std::move(attempt));
    } else {
      known->all = united(known->all, attempt.all);
    }
  }
  made = std::move(priced);
  AUTOPAR_TRY(start, fit.first_that_fits(made, time));
  for (Attempt* attempt : start.fitting) {
    AUTOPAR_RETURN_IF_ERROR(fit.lower(*attempt, start.worth, time));
  }
  fit.place(near);
  return attempts.best ? Ok{} : fit.mix(made);
}

}  // namespace autopar::rec
