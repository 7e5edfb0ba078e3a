#include "solve/state/budget.hpp"

#include <algorithm>
#include <cmath>

namespace autopar::solver {

bool Budget::over() {
  if (enough || work >= work_limit) return true;
  if (stop != nullptr && stop->load()) interrupted = true;
  if (interrupted || deadline == Clock::time_point::max()) return interrupted;
  const Clock::time_point now = Clock::now();
  interrupted = now >= deadline;
  return interrupted || now >= phase_end;
}

Budget::Clock::time_point Budget::after(double seconds) {
  if (!(seconds < 1e9)) return Clock::time_point::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double strictly_below(double value) {
  return value < kInfinity ? value - 1e-12 * std::abs(value) : value;
}

BudgetShare::BudgetShare(Budget& budget, double part, double part_of_time)
    : budget_(budget), work_limit_(budget.work_limit), phase_end_(budget.phase_end) {
  budget.work_limit = budget.work + part * budget.left();
  const Budget::Clock::time_point end = std::min(budget.deadline, phase_end_);
  if (budget.counted || end == Budget::Clock::time_point::max()) return;
  const auto now = Budget::Clock::now();
  const double time = part_of_time > 0 ? part_of_time : part;
  budget.phase_end = now + std::chrono::duration_cast<Budget::Clock::duration>(time * (end - now));
}

BudgetShare::BudgetShare(Budget& budget, Most most)
    : budget_(budget), work_limit_(budget.work_limit), phase_end_(budget.phase_end) {
  budget.work_limit = std::min(budget.work_limit, budget.work + most.work);
}

BudgetShare::~BudgetShare() {
  budget_.work_limit = work_limit_;
  budget_.phase_end = phase_end_;
}

}  // namespace autopar::solver
