#include "autopar/fit.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/linear.hpp"

namespace autopar {

namespace {

constexpr double kFirstStep = 0.7;      // of a logarithm: about a factor of two
constexpr double kFirstStepNear = 0.1;  // where all rows but one are known to be fitted
constexpr double kLastStep = 1e-3;
constexpr int kMostMoves = 200;     // at one size of the step
constexpr double kNoEffect = 1e-9;  // of a logarithm
// Levenberg and Marquardt: of a logarithm, for slopes; how much of the diagonal is added at first,
// at most, and by which factor that changes; and what is no gain, as a part of the error.
// Assumed, as is usual: the damping settles itself in a few steps.
constexpr double kSlopeStep = 1e-4;
constexpr double kFirstDamping = 1e-2, kMostDamping = 1e6, kDampingFactor = 5;
constexpr double kNoGain = 1e-6;
constexpr int kMostSteps = 40;

double* number_of(Profile& p, const std::string& name) {
  if (name == "host_s") return &p.host_s;
  if (name == "launch_s") return &p.launch_s;
  if (name == "matrix.fraction") return &p.matrix.fraction;
  if (name == "matrix.half_k") return &p.matrix.half_k;
  if (name == "attention.forward") return &p.attention.forward;
  if (name == "attention.backward") return &p.attention.backward;
  if (name == "attention.half_length") return &p.attention.half_length;
  if (name == "attention.half_heads") return &p.attention.half_heads;
  if (name == "memory.fraction") return &p.memory.fraction;
  if (name == "memory.half_bytes") return &p.memory.half_bytes;
  if (name == "memory.normalisation") return &p.memory.normalisation;
  if (name == "memory.gather") return &p.memory.gather;
  if (name == "bucket_bytes") return &p.bucket_bytes;
  return nullptr;
}

Error unknown(const std::string& name) {
  std::string known;
  for (const FitParameter& p : fit_parameters()) known += (known.empty() ? "" : ", ") + p.name;
  return usage_error("'" + name + "' is no number of a profile that can be fitted; those are " +
                     known);
}

double squared(Seconds predicted, Seconds measured) {
  const double away = std::log(predicted / measured);
  return away * away;
}

// One fit: the rows that count, and where the parameters are now.
class Descent {
 public:
  Descent(std::vector<FitParameter> parameters, const std::vector<Seconds>& measured,
          const FitPredictor& predict, const std::vector<double>& weights, std::size_t left_out)
      : parameters_(std::move(parameters)),
        measured_(measured),
        predict_(predict),
        weights_(weights),
        left_out_(left_out) {}

  // By slopes as long as these lead on, then step by step: at a kink only that does.
  Result<Profile> run(const Profile& from, double step) const {
    AUTOPAR_TRY(near, by_slopes(from));
    AUTOPAR_TRY(nearer, by_steps(near, step));
    return by_slopes(nearer);
  }

  // Whether any row depends on a parameter, between its bounds and `profile`.
  Result<bool> matters(const Profile& profile, const FitParameter& parameter) const {
    for (const double bound : {parameter.least, parameter.most}) {
      Profile moved = profile;
      *number_of(moved, parameter.name) = bound;
      for (std::size_t r = 0; r < measured_.size(); ++r) {
        AUTOPAR_TRY(here, predict_(profile, r));
        AUTOPAR_TRY(there, predict_(moved, r));
        if (std::abs(std::log(there / here)) > kNoEffect) return true;
      }
    }
    return false;
  }

  // What is minimised.
  Result<double> error(const Profile& profile) const {
    AUTOPAR_TRY(found, residuals(profile));
    return sum_of_squares(found);
  }

 private:
  static Profile scaled(const Profile& profile, const FitParameter& parameter, double factor) {
    Profile moved = profile;
    double& number = *number_of(moved, parameter.name);
    number = std::clamp(number * factor, parameter.least, parameter.most);
    return moved;
  }

  // Weighted logarithms of the ratios, of all rows but what is left out.
  Result<std::vector<double>> residuals(const Profile& profile) const {
    std::vector<double> found;
    for (std::size_t r = 0; r < measured_.size(); ++r) {
      if (r == left_out_) continue;
      AUTOPAR_TRY(seconds, predict_(profile, r));
      if (!(seconds > 0)) {
        return input_error("row " + std::to_string(r + 1) +
                           " is predicted to take no time, which no ratio can be made of");
      }
      const double weight = weights_.empty() ? 1 : weights_[r];
      found.push_back(std::sqrt(weight) * std::log(seconds / measured_[r]));
    }
    return found;
  }

  static double sum_of_squares(const std::vector<double>& residuals) {
    double sum = 0;
    for (const double r : residuals) sum += r * r;
    return sum;
  }

  // Of each parameter's logarithm, away from a bound that it is at: per parameter, of each row.
  Result<std::vector<std::vector<double>>> slopes(const Profile& at,
                                                  const std::vector<double>& here) const {
    std::vector<std::vector<double>> found;
    for (const FitParameter& parameter : parameters_) {
      Profile moved = scaled(at, parameter, std::exp(kSlopeStep));
      double step = kSlopeStep;
      if (moved == at) {
        moved = scaled(at, parameter, std::exp(-kSlopeStep));
        step = -kSlopeStep;
      }
      AUTOPAR_TRY(there, residuals(moved));
      for (std::size_t r = 0; r < there.size(); ++r) there[r] = (there[r] - here[r]) / step;
      found.push_back(std::move(there));
    }
    return found;
  }

  // Levenberg (1944) and Marquardt (1963), on the logarithms of the parameters.
  Result<Profile> by_slopes(Profile at) const {
    const std::size_t n = parameters_.size();
    AUTOPAR_TRY(here, residuals(at));
    double damping = kFirstDamping;
    for (int step = 0; step < kMostSteps && damping < kMostDamping; ++step) {
      const double least = sum_of_squares(here);
      AUTOPAR_TRY(slope, slopes(at, here));
      std::vector<std::vector<double>> normal(n, std::vector<double>(n, 0));
      std::vector<double> down(n, 0);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t r = 0; r < here.size(); ++r) {
          down[i] -= slope[i][r] * here[r];
          for (std::size_t j = 0; j < n; ++j) normal[i][j] += slope[i][r] * slope[j][r];
        }
      }
      bool gains = false;
      for (; !gains && damping < kMostDamping; damping *= kDampingFactor) {
        std::vector<std::vector<double>> damped = normal;
        for (std::size_t i = 0; i < n; ++i) {
          // What no row depends on here does not move.
          damped[i][i] = damped[i][i] > 0 ? (1 + damping) * damped[i][i] : 1;
        }
        const auto move = solve_linear(std::move(damped), down);
        if (!move) continue;
        Profile tried = at;
        for (std::size_t i = 0; i < n; ++i) {
          const double logarithm = std::clamp((*move)[i], -kFirstStep, kFirstStep);
          tried = scaled(tried, parameters_[i], std::exp(logarithm));
        }
        AUTOPAR_TRY(there, residuals(tried));
        gains = sum_of_squares(there) < (1 - kNoGain) * least;
        if (!gains) continue;
        at = tried;
        here = std::move(there);
        damping /= kDampingFactor * kDampingFactor;
      }
      if (!gains) break;
    }
    return at;
  }

  // Hooke and Jeeves (1961).
  Result<Profile> by_steps(Profile at, double step) const {
    AUTOPAR_TRY(least, error(at));
    for (; step > kLastStep; step /= 2) {
      for (int move = 0; move < kMostMoves; ++move) {
        Profile tried = at;
        AUTOPAR_TRY(found, explore(tried, least, step));
        if (!(found < least)) break;
        // On in the same direction, as long as that helps.
        Profile ahead = further(at, tried);
        at = tried;
        least = found;
        AUTOPAR_TRY(beyond, error(ahead));
        AUTOPAR_TRY(explored, explore(ahead, beyond, step));
        if (explored < least) {
          at = ahead;
          least = explored;
        }
      }
    }
    return at;
  }

  Result<double> explore(Profile& at, double least, double step) const {
    for (const FitParameter& parameter : parameters_) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        const Profile moved = scaled(at, parameter, factor);
        if (moved == at) continue;  // at its bound
        AUTOPAR_TRY(found, error(moved));
        if (!(found < least)) continue;
        least = found;
        at = moved;
        break;
      }
    }
    return least;
  }

  Profile further(const Profile& from, const Profile& to) const {
    Profile ahead = to;
    for (const FitParameter& parameter : parameters_) {
      Profile before = from;
      const double factor = *number_of(ahead, parameter.name) / *number_of(before, parameter.name);
      ahead = scaled(ahead, parameter, factor);
    }
    return ahead;
  }

  std::vector<FitParameter> parameters_;
  const std::vector<Seconds>& measured_;
  const FitPredictor& predict_;
  const std::vector<double>& weights_;
  std::size_t left_out_;  // none: as many as there are rows
};

Result<std::vector<FitParameter>> named(const std::vector<std::string>& names) {
  std::vector<FitParameter> found;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    const auto& known = fit_parameters();
    const auto at = std::find_if(known.begin(), known.end(),
                                 [&](const FitParameter& p) { return p.name == name; });
    if (at == known.end()) return unknown(name);
    if (!seen.insert(name).second) return usage_error("'" + name + "' is named twice");
    found.push_back(*at);
  }
  return found;
}

Result<std::vector<Seconds>> predicted(const Profile& profile, std::size_t rows,
                                       const FitPredictor& predict) {
  std::vector<Seconds> all;
  for (std::size_t r = 0; r < rows; ++r) {
    AUTOPAR_TRY(seconds, predict(profile, r));
    all.push_back(seconds);
  }
  return all;
}

double mean_error(const std::vector<Seconds>& predicted, const std::vector<Seconds>& measured) {
  double sum = 0;
  for (std::size_t r = 0; r < measured.size(); ++r) sum += squared(predicted[r], measured[r]);
  return std::sqrt(sum / static_cast<double>(measured.size()));
}

}  // namespace

const std::vector<FitParameter>& fit_parameters() {
  static const std::vector<FitParameter> all = {{"host_s", 1e-8, 1e-2, 1e-5},
                                                {"launch_s", 1e-8, 1e-2, 1e-6},
                                                {"matrix.fraction", 0.01, 1, 0.5},
                                                {"matrix.half_k", 0.1, 1e4, 10},
                                                {"attention.forward", 0.01, 1, 0.5},
                                                {"attention.backward", 0.01, 1, 0.5},
                                                {"attention.half_length", 1, 1e5, 1000},
                                                {"attention.half_heads", 0.1, 1e3, 8},
                                                {"memory.fraction", 0.01, 1, 0.5},
                                                {"memory.half_bytes", 10, 1e9, 1e5},
                                                {"memory.normalisation", 0.01, 1, 0.5},
                                                {"memory.gather", 0.01, 1, 0.5},
                                                {"bucket_bytes", 1e4, 1e11, 1e8}};
  return all;
}

Result<double> parameter_of(const Profile& profile, const std::string& name) {
  Profile copy = profile;
  const double* number = number_of(copy, name);
  if (number == nullptr) return unknown(name);
  return *number;
}

Status set_parameter(Profile& profile, const std::string& name, double value) {
  double* number = number_of(profile, name);
  if (number == nullptr) return unknown(name);
  *number = value;
  return verify(profile);
}

Result<ProfileFit> fit_profile(const Profile& start, const std::vector<std::string>& parameters,
                               const std::vector<Seconds>& measured, const FitPredictor& predict,
                               const std::vector<double>& weights, bool leave_out) {
  AUTOPAR_TRY(asked, named(parameters));
  if (measured.size() < asked.size() || measured.empty()) {
    return usage_error(std::to_string(measured.size()) + " measured times for " +
                       std::to_string(asked.size()) +
                       " parameters: there must be at least as many times; measure more plans, or "
                       "fit fewer parameters");
  }
  if (!weights.empty() && weights.size() != measured.size()) {
    return usage_error(std::to_string(weights.size()) + " weights for " +
                       std::to_string(measured.size()) + " measured times");
  }
  for (const Seconds seconds : measured) {
    if (!(seconds > 0 && std::isfinite(seconds))) {
      return input_error("a measured time must be above 0, found " + std::to_string(seconds));
    }
  }
  const std::size_t rows = measured.size();
  ProfileFit fit;
  AUTOPAR_TRY(before, predicted(start, rows, predict));
  Profile from = start;
  std::vector<FitParameter> used;
  for (const FitParameter& parameter : asked) {
    Profile tried = from;
    double& number = *number_of(tried, parameter.name);
    number = number > 0 ? std::clamp(number, parameter.least, parameter.most) : parameter.unknown;
    AUTOPAR_TRY(matters, Descent({}, measured, predict, weights, rows).matters(tried, parameter));
    if (!matters) {
      fit.without_effect.push_back(parameter.name);
      continue;
    }
    from = tried;
    used.push_back(parameter);
  }
  const Descent descent(used, measured, predict, weights, rows);
  AUTOPAR_TRY(found, descent.run(from, kFirstStep));
  AUTOPAR_TRY(after, predicted(found, rows, predict));
  for (std::size_t r = 0; leave_out && rows > 1 && r < rows; ++r) {
    AUTOPAR_TRY(others, Descent(used, measured, predict, weights, r).run(found, kFirstStepNear));
    AUTOPAR_TRY(seconds, predict(others, r));
    fit.left_out.push_back(seconds);
  }
  // Zeros are no place to begin at, but may be best.
  AUTOPAR_TRY(error_found, descent.error(found));
  AUTOPAR_TRY(error_start, descent.error(start));
  fit.is_nearer = error_found < error_start;
  fit.profile = fit.is_nearer ? std::move(found) : start;
  fit.after = fit.is_nearer ? std::move(after) : before;
  fit.before = std::move(before);
  fit.error_before = mean_error(fit.before, measured);
  fit.error_after = mean_error(fit.after, measured);
  if (!fit.left_out.empty()) fit.error_left_out = mean_error(fit.left_out, measured);
  return fit;
}

}  // namespace autopar
