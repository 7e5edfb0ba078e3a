#include "solve/state/race.hpp"

namespace autopar::solver {

bool Race::offer(const std::vector<int>& offered) {
  if (offered.empty()) return false;
  const Evaluation found = evaluate(problem, offered);
  if (!(found.cost < kInfinity)) return false;
  if (found.peak_use < least_peak) {
    least_peak = found.peak_use;
    least_peak_time = found.peak_time;
    least_peak_choices = offered;
  }
  if (found.peak_use > problem.use_limit || !(found.cost < cost)) return false;
  cost = found.cost;
  choices = offered;
  note();
  return true;
}

void Race::raise(double more) {
  if (!(more > bound)) return;
  bound = std::min(more, below());
  note();
}

// What was asked for is there: the best plan, of this problem or of another one, is as close to the
// bound as that.
void Race::check_gap() {
  const double best = std::min(cost, cutoff);
  budget.enough = gap > 0 && best < kInfinity && bound >= best * (1 - gap);
}

void Race::note() {
  check_gap();
  if (progress) progress(*this);
}

Noted::~Noted() {
  const std::chrono::duration<double> time = Budget::Clock::now() - start_;
  race_.reports.push_back(
      {name_, race_.bound, race_.cost, race_.budget.work - work_, time.count()});
}

}  // namespace autopar::solver
