#include "planning/search_shown.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "autopar/iopddl.hpp"
#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/trace.hpp"
#include "support/counted.hpp"

namespace autopar {

namespace {

// One line that is drawn over, on a terminal only and not before the search has taken a while.
class ProgressLine {
 public:
  ProgressLine(bool quiet, std::string cost_model)
      : shown_(!quiet && isatty(STDERR_FILENO) != 0), cost_model_(std::move(cost_model)) {}
  ~ProgressLine() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
  }
  void draw(const SolveProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(300)) return;
    last_ = now;
    drawn_ = true;
    std::fprintf(stderr, "\r\033[Ksearching: best %s, lower bound %s",
                 format_price(progress.best_cost, cost_model_).c_str(),
                 format_price(progress.lower_bound, cost_model_).c_str());
    std::fflush(stderr);
  }

 private:
  bool shown_;
  std::string cost_model_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Bare problems have whole numbers: of what, for the prices of a cost model.
struct SmallUnit {
  std::string name;
  double factor = 1;
};
SmallUnit small_unit(const std::string& cost_model) {
  for (const CostModelRow& row : cost_models()) {
    if (cost_model != row.name || row.unit == std::string("seconds")) continue;
    return {"thousandths of " + std::string(row.unit), 1e3};
  }
  return {"picoseconds", 1e12};
}

// With -v: what became of each mesh.
void tell_of_trials(const SearchOutcome& outcome, const std::string& cost_model) {
  for (const MeshTrial& trial : outcome.trials) {
    const bool found = trial.cost < kInfinity;
    logging::debug(
        "mesh {}: {}{}, bound {}; {} nodes, {} edges, {} candidates; built in {}, solved "
        "in {}",
        to_text(trial.mesh), name_of(trial.end),
        found ? " " + format_price(trial.cost, cost_model) : "",
        format_price(trial.lower_bound, cost_model), trial.nodes, trial.edges, trial.candidates,
        format_seconds(trial.build_seconds), format_seconds(trial.solve_seconds));
  }
}

// With --trace: what each stage did on each mesh, in milliseconds where prices are seconds.
void tell_of_stages(const std::vector<MeshTrial>& trials) {
  for (const MeshTrial& trial : trials) {
    if (trial.stages.empty()) continue;
    std::cerr << "mesh " << to_text(trial.mesh) << ": " << name_of(trial.end)
              << (trial.end == TrialEnd::kPlan ? std::string("; ") + name_of(trial.solve_end) : "")
              << "\n"
              << trace_text(trial.stages, 1e3);
  }
}

}  // namespace

void tell_of_form(std::int64_t passes, Recompute recompute) {
  std::cerr << "form: " << counted(passes, "pass", "passes") << ", recompute " << name_of(recompute)
            << '\n';
}

Status dump_problem(const std::string& path, const SearchRequest& request, const Mesh& mesh,
                    const std::string& model) {
  AUTOPAR_TRY(built, build_problem(request, mesh));
  const std::string name = model + " on mesh " + to_text(mesh);
  const SmallUnit unit = small_unit(request.cost_model);
  AUTOPAR_RETURN_IF_ERROR(write_file_atomically(path, [&](int file) {
    return problem_to_iopddl(built.problem, name, unit.factor, 1,
                             [file](std::string_view piece) { return write_all(file, piece); });
  }));
  logging::info("{}: the search problem of mesh {}, {} nodes, costs in {}", path, to_text(mesh),
                built.problem.nodes.size(), unit.name);
  return Ok{};
}

Result<SearchOutcome> search_shown(SearchRequest& request, const CommonOptions& common) {
  ProgressLine line(common.quiet, request.cost_model);
  request.solve.progress = [&line](const SolveProgress& p) { line.draw(p); };
  if (common.trace) request.tell = tell_of_stages;
  auto outcome = search(request);
  request.solve.progress = nullptr;
  request.tell = nullptr;
  if (outcome) tell_of_trials(*outcome, request.cost_model);
  return outcome;
}

}  // namespace autopar
