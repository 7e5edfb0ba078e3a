// Finds what a runtime makes of a machine from what steps took on it.
//
//   Result<ProfileFit> fit = fit_profile(start, {"host_s", "matrix.fraction"}, measured,
//                                        [&](const Profile& p, std::size_t row) { ... });
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autopar/profile.hpp"

namespace autopar {

// A number of a profile that may be fitted, named as in profile.json, within bounds.
struct FitParameter {
  std::string name;
  double least = 0, most = 1;  // both above 0
  double unknown = 1;          // what is tried first where a profile has 0
};
const std::vector<FitParameter>& fit_parameters();
// Errors: kUsage naming the known ones.
Result<double> parameter_of(const Profile& profile, const std::string& name);
Status set_parameter(Profile& profile, const std::string& name, double value);

// Of a row, in seconds; above 0.
using FitPredictor = std::function<Result<Seconds>(const Profile&, std::size_t row)>;

struct ProfileFit {
  Profile profile;
  // Roots of the mean squared logarithm of predicted over measured: 0.1 is about 10 %.
  double error_before = 0, error_after = 0;
  double error_left_out =
      0;  // of each row, predicted by what was fitted to all others; if asked for
  std::vector<Seconds> before, after, left_out;  // predicted, by row; left out as above
  std::vector<std::string> without_effect;       // parameters on which no row depends: they stay
  bool is_nearer = false;  // than what it began with, which else stays as it was
};

// The named parameters that make predictions most like `measured`: those with the least sum of
// squared logarithms of their ratio. By slopes (Levenberg 1944, Marquardt 1963) on the logarithms
// of the parameters, and then, since a step's time has kinks, one after the other with steps that
// are halved (Hooke and Jeeves, "Direct search", 1961): the same input gives the same result. Takes
// some 100 predictions of each row per parameter, and less for each row that is left out.
// Errors: kUsage for unknown or repeated names and for fewer rows than parameters; those of the
// predictor.
// `weights`: how much each row counts; empty: 1 each. Errors are those of all rows alike.
Result<ProfileFit> fit_profile(const Profile& start, const std::vector<std::string>& parameters,
                               const std::vector<Seconds>& measured, const FitPredictor& predict,
                               const std::vector<double>& weights = {}, bool leave_out = true);

}  // namespace autopar
