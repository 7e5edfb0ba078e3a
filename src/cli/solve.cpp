// autopar solve: a bare search problem.
#include <spdlog/spdlog.h>

#include <iostream>

#include "autopar/iopddl.hpp"
#include "cli/command.hpp"

namespace autopar::cli {

namespace {

struct SolveFileOptions {
  std::string problem;
  double time_limit = 60;
};

Result<int> run(const SolveFileOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(file, read_iopddl(options.problem));
  SolveOptions solve;
  solve.time_limit = options.time_limit;
  solve.threads = std::max(1, common.threads);
  solve.stop = &interrupt_requested();
  const Solution solution = solve_dp(file.problem, solve);
  if (!solution.feasible) {
    return infeasible_error(options.problem +
                            ": no feasible choice was found; the smallest use of "
                            "memory found is " +
                            std::to_string(solution.least_peak_use) + " at time " +
                            std::to_string(solution.tightest_time) + ", the limit is " +
                            std::to_string(file.problem.use_limit));
  }
  spdlog::info("cost {:.0f}, lower bound {:.0f}, gap {:.4g} %, peak use {:.0f}", solution.cost,
               solution.lower_bound, solution.gap() * 100, solution.peak_use);
  std::cout << "[";
  for (std::size_t n = 0; n < solution.choices.size(); ++n) {
    std::cout << (n ? ", " : "") << solution.choices[n];
  }
  std::cout << "]\n";
  return 0;
}

}  // namespace

Run add_solve(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<SolveFileOptions>();
  app.add_option("PROBLEM", options->problem, "problem in the JSON of the IOPDDL contest")
      ->required();
  app.add_option("--time-limit", options->time_limit, "seconds");
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
