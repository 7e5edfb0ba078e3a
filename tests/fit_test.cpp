// Fitting a profile to measured times: what made them is found again.
#include "autopar/fit.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace autopar::fit_test {

namespace {

// A step of kernels that a host issues: products, sums and launches, of various sizes.
struct Step {
  double kernels, product_seconds, sum_seconds;  // at the peaks
};
const std::vector<Step> kSteps = {{100, 1e-3, 1e-4},  {100, 1e-2, 1e-4}, {1000, 1e-3, 1e-3},
                                  {1000, 1e-4, 5e-3}, {300, 2e-2, 2e-2}, {5000, 1e-2, 1e-3},
                                  {20000, 1e-3, 1e-3}};

Seconds time_of(const Step& step, const Profile& p) {
  const Seconds compute = step.kernels * p.launch_s + step.product_seconds / p.matrix.fraction +
                          step.sum_seconds / p.memory.fraction;
  return std::max(compute, step.kernels * p.host_s);
}

const FitPredictor kPredict = [](const Profile& p, std::size_t row) -> Result<Seconds> {
  return time_of(kSteps[row], p);
};

Profile made(double host, double launch, double matrix, double memory) {
  Profile p;
  p.name = "made";
  p.host_s = host;
  p.launch_s = launch;
  p.matrix.fraction = matrix;
  p.memory.fraction = memory;
  return p;
}

std::vector<Seconds> times_with(const Profile& p) {
  std::vector<Seconds> times;
  for (const Step& step : kSteps) times.push_back(time_of(step, p));
  return times;
}

const std::vector<std::string> kAll = {"host_s", "launch_s", "matrix.fraction", "memory.fraction"};

}  // namespace

TEST_CASE("fit: parameters that do nearly the same are told apart in few predictions", "[fit]") {
  // Launches and sums are nearly in proportion; step by step along the valley took thousands.
  std::vector<Step> steps;
  for (int s = 0; s < 10; ++s) steps.push_back({1000 + 2.0 * s, 1e-4, 1e-3 + 2e-6 * s * (s % 3)});
  int predictions = 0;
  const FitPredictor predict = [&](const Profile& p, std::size_t row) -> Result<Seconds> {
    ++predictions;
    return time_of(steps[row], p);
  };
  const Profile truth = made(3e-6, 7e-6, 1, 0.7);
  std::vector<Seconds> times;
  for (const Step& step : steps) times.push_back(time_of(step, truth));
  const auto fit = fit_profile(made(1e-6, 1e-6, 1, 1), {"launch_s", "memory.fraction"}, times,
                               predict, {}, false);
  REQUIRE(fit.ok());
  CHECK(fit->error_after < 1e-6);
  CHECK(std::abs(fit->profile.launch_s / 7e-6 - 1) < 0.01);
  CHECK(std::abs(fit->profile.memory.fraction / 0.7 - 1) < 0.01);
  CHECK(predictions < 10 * 1000);
}

TEST_CASE("fit: the profile that made the times is found again", "[fit]") {
  for (const Profile& truth :
       {made(1e-5, 3e-6, 0.6, 0.8), made(4e-6, 1e-6, 0.3, 0.9), made(1.2e-5, 8e-6, 0.75, 0.4)}) {
    const auto fit = fit_profile(made(2e-5, 2e-6, 0.5, 0.5), kAll, times_with(truth), kPredict);
    REQUIRE(fit.ok());
    CHECK(fit->error_after < 0.005);
    CHECK(fit->error_before > 0.1);
    CHECK(fit->without_effect.empty());
    for (const char* name : {"matrix.fraction", "memory.fraction"}) {
      INFO(name);
      CHECK(std::abs(*parameter_of(fit->profile, name) / *parameter_of(truth, name) - 1) < 0.05);
    }
    // The host decides the last step, launches and the others the rest.
    CHECK(std::abs(fit->profile.host_s / truth.host_s - 1) < 0.05);
    CHECK(fit->profile.name == "made");
  }
}

TEST_CASE("fit: noise stays in the error, and what was left out has more of it", "[fit]") {
  std::vector<Seconds> times = times_with(made(1e-5, 3e-6, 0.6, 0.8));
  for (std::size_t r = 0; r < times.size(); ++r) times[r] *= r % 2 == 0 ? 1.1 : 1 / 1.1;
  const auto fit =
      fit_profile(made(2e-5, 2e-6, 0.5, 0.5), {"matrix.fraction", "host_s"}, times, kPredict);
  REQUIRE(fit.ok());
  CHECK(fit->error_after > 0.03);
  CHECK(fit->error_after < 0.25);
  CHECK(fit->error_left_out > fit->error_after);
  CHECK(fit->left_out.size() == times.size());
  // What was not asked for stays.
  CHECK(fit->profile.launch_s == 2e-6);
  CHECK(fit->profile.memory.fraction == 0.5);
  const auto again =
      fit_profile(made(2e-5, 2e-6, 0.5, 0.5), {"matrix.fraction", "host_s"}, times, kPredict);
  REQUIRE(again.ok());
  CHECK(again->profile == fit->profile);
}

TEST_CASE("fit: a parameter on which nothing depends stays as it is, and is named", "[fit]") {
  const auto fit = fit_profile(made(2e-5, 2e-6, 0.5, 0.5), {"matrix.fraction", "bucket_bytes"},
                               times_with(made(2e-5, 2e-6, 0.7, 0.5)), kPredict);
  REQUIRE(fit.ok());
  CHECK(fit->without_effect == std::vector<std::string>{"bucket_bytes"});
  CHECK(fit->profile.bucket_bytes == 0);
  CHECK(std::abs(fit->profile.matrix.fraction - 0.7) < 0.02);
}

TEST_CASE("fit: what cannot be fitted is refused", "[fit]") {
  const Profile start = made(2e-5, 2e-6, 0.5, 0.5);
  const auto few = fit_profile(start, kAll, {1, 2, 3}, kPredict);
  REQUIRE(!few.ok());
  CHECK(few.error().message.find("3 measured times for 4 parameters") != std::string::npos);
  const auto name = fit_profile(start, {"matrix.speed"}, {1, 2}, kPredict);
  REQUIRE(!name.ok());
  CHECK(name.error().message.find("matrix.half_k") != std::string::npos);
  CHECK(!fit_profile(start, {"host_s", "host_s"}, {1, 2}, kPredict).ok());
  CHECK(!fit_profile(start, {"host_s"}, {1, -2}, kPredict).ok());
  const auto failing = fit_profile(
      start, {"host_s"}, {1, 2},
      [](const Profile&, std::size_t) -> Result<Seconds> { return input_error("row is broken"); });
  REQUIRE(!failing.ok());
  CHECK(failing.error().message == "row is broken");
}

}  // namespace autopar::fit_test
