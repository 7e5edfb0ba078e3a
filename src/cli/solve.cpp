// autopar solve: a bare search problem.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>

#include "autopar/files.hpp"
#include "autopar/iopddl.hpp"
#include "autopar/unfinished.hpp"
#include "cli/command.hpp"
#include "planning/logging.hpp"
#include "planning/trace.hpp"
#include "support/stopwatch.hpp"

namespace autopar::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct SolveFileOptions {
  std::string problem;
  std::string output;
  Seconds time_limit = 60;
};

std::string number(double value) {
  if (value == kInfinity) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string list(const std::vector<int>& choices) {
  std::string text = "[";
  for (std::size_t n = 0; n < choices.size(); ++n) {
    text += (n > 0 ? ", " : "") + std::to_string(choices[n]);
  }
  return text + "]";
}

// Keeps the file at the best answer so far, so that whoever ends the program early has it.
class Answers {
 public:
  Answers(std::string path, Clock::time_point start) : path_(std::move(path)), start_(start) {}

  void take(const SolveProgress& progress) {
    if (!(progress.best_cost < best_) || progress.best_choices == nullptr) return;
    best_ = progress.best_cost;
    if (first_seconds_ == kInfinity) first_seconds_ = seconds_since(start_);
    logging::debug("{:.2f} s: cost {:.15g}, lower bound {:.15g}", seconds_since(start_), best_,
                   progress.lower_bound);
    write(*progress.best_choices);
  }

  void write(const std::vector<int>& choices) {
    if (path_.empty() || !status_) return;
    status_ = write_file_atomically(path_, list(choices) + "\n");
  }

  const Status& status() const { return status_; }
  double first_seconds() const { return first_seconds_; }

 private:
  std::string path_;
  Clock::time_point start_;
  double best_ = kInfinity;
  double first_seconds_ = kInfinity;
  Status status_ = Ok{};
};

Error no_answer(const std::string& path, const IopddlProblem& file, const Solution& solution) {
  const bool proven = solution.lower_bound == kInfinity;
  std::string text = path + ": " + (proven ? "no choices are feasible" : "none were found");
  if (solution.least_peak_use < kInfinity) {
    text += "; the smallest use of memory " +
            std::string(solution.least_peak_proven ? "is " : "found is ") +
            number(solution.least_peak_use) + " (at time " +
            std::to_string(file.times.at(static_cast<std::size_t>(solution.tightest_time))) +
            "), the limit is " + number(file.problem.use_limit);
  }
  return infeasible_error(text + (proven ? "" : "; try a longer --time-limit"));
}

std::string as_json(const IopddlProblem& file, const Solution& solution, double first_seconds,
                    double seconds) {
  std::string name;
  for (char c : file.name) {
    if (c == '"' || c == '\\') name += '\\';
    name += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return "{\"format\": \"autopar-solution\", \"version\": 1, \"name\": \"" + name +
         "\", \"cost\": " + number(solution.cost) +
         ", \"lower_bound\": " + number(solution.lower_bound) +
         ", \"gap\": " + number(solution.gap()) +
         ", \"unlimited_lower_bound\": " + number(solution.unlimited_lower_bound) +
         ", \"peak_use\": " + number(solution.peak_use) +
         ", \"use_limit\": " + number(file.problem.use_limit) +
         ", \"first_answer_seconds\": " + number(first_seconds) +
         ", \"seconds\": " + number(seconds) +
         ", \"interrupted\": " + (solution.interrupted ? "true" : "false") +
         ", \"choices\": " + list(solution.choices) + "}\n";
}

Result<int> run(const SolveFileOptions& options, const CommonOptions& common) {
  const Clock::time_point start = Clock::now();
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.output));
  AUTOPAR_TRY(file, read_iopddl(options.problem));
  logging::debug("{}: read in {:.2f} s: {} nodes, {} edges, {} threads", options.problem,
                 seconds_since(start), file.problem.nodes.size(), file.problem.edges.size(),
                 threads_of_search(common));
  Answers answers(options.output, start);
  SolveOptions solve;
  AUTOPAR_TRY(left_out, stages_left_out(common.without));
  solve.left_out = left_out;
  solve.patient = true;
  solve.time_limit = options.time_limit;
  solve.used_before = seconds_since(start);
  solve.threads = threads_of_search(common);
  solve.stop = &interrupt_requested();
  solve.progress = [&answers](const SolveProgress& progress) { answers.take(progress); };
  const bool is_empty = file.problem.nodes.empty();
  const Solution solution = is_empty ? Solution{.feasible = true, .choices = {}, .cost = 0}
                                     : solve_dp(file.problem, solve);
  if (common.trace) {
    std::cerr << trace_text(solution.stages, 1) << "  ended: " << name_of(solution.end) << '\n';
  }
  if (!solution.feasible) return no_answer(options.problem, file, solution);
  answers.write(solution.choices);
  if (!answers.status()) return answers.status().error();
  logging::info("cost {:.15g}, lower bound {:.15g}, gap {:.4g} %, peak use {:.15g}", solution.cost,
                solution.lower_bound, solution.gap() * 100, solution.peak_use);
  if (common.json) {
    std::cout << as_json(file, solution, answers.first_seconds(), seconds_since(start));
  } else {
    std::cout << list(solution.choices) << "\n";
  }
  return 0;
}

}  // namespace

Run add_solve(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<SolveFileOptions>();
  app.add_option("PROBLEM", options->problem, "problem in the JSON of the IOPDDL contest")
      ->required();
  app.add_option("--time-limit", options->time_limit,
                 "stop after this long with the best answer found by then: 30s (default 60s)")
      ->transform(duration())
      ->type_name("TIME")
      ->group(group::kSearch);
  app.add_option("-o,--output", options->output,
                 "file that always holds the best choices found so far; -v prints their costs")
      ->type_name("FILE")
      ->group(group::kOutput);
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
