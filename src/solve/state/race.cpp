#include "solve/state/race.hpp"

#include <ctime>

namespace autopar::solver {
namespace {

Seconds cpu_seconds_of_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<Seconds>(now.tv_sec) + 1e-9 * static_cast<Seconds>(now.tv_nsec);
}

}  // namespace

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

Noted::Noted(Race& race, const char* name)
    : race_(race), name_(name), work_(race.budget.work), start_(cpu_seconds_of_thread()) {}

Noted::~Noted() {
  race_.reports.push_back({name_, race_.bound, race_.cost, race_.budget.work - work_,
                           cpu_seconds_of_thread() - start_});
}

}  // namespace autopar::solver
