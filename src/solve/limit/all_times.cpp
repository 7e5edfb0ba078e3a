#include "solve/limit/all_times.hpp"

#include <algorithm>
#include <utility>

#include "solve/effort.hpp"
#include "solve/plans/repair.hpp"

namespace autopar::solver {

using namespace effort::all_times;

AllTimes::AllTimes(Race& race)
    : race_(race), net_(build_network(race.problem, maximal_times(race.problem))) {
  forget_unused(*net_);
  label_of_.resize(race.problem.nodes.size());
  for (std::size_t n = 0; n < label_of_.size(); ++n) {
    label_of_[n].assign(race.problem.nodes[n].cost.size(), 0);
    const Labels& choices = net_->origin_labels[n];
    for (std::size_t l = 0; l < choices.size(); ++l) {
      label_of_[n][at(choices[l])] = static_cast<int>(l);
    }
  }
}

std::vector<int> AllTimes::labels_of(const std::vector<int>& choices) const {
  std::vector<int> labels(choices.size());
  for (std::size_t n = 0; n < choices.size(); ++n) labels[n] = label_of_[n][at(choices[n])];
  return labels;
}

void AllTimes::take_best() {
  if (race_.feasible()) best_ = labels_of(race_.choices);
}

void AllTimes::keep(std::vector<int> labels) {
  double work = 0;
  const double allowed = std::min(kRepairPart * race_.budget.left(), kMostRepairWork);
  const bool fits = repair(*net_, labels, allowed, work);
  race_.budget.add(work);
  if (fits && race_.offer(lift(*net_, labels))) best_ = std::move(labels);
}

std::vector<int> AllTimes::overfull_rows(const std::vector<int>& labels) const {
  std::vector<int> rows = solver::overfull_rows(uses_of(*net_, labels), net_->capacity);
  if (!race_.budget.patient && rows.size() > kManyTimes) rows.resize(kWorstTimes);
  return rows;
}

}  // namespace autopar::solver
