#include "solve/limit/within_limit.hpp"

#include <algorithm>
#include <utility>

#include "solve/bound/settle.hpp"
#include "solve/bound/subgradient.hpp"
#include "solve/branch/explore.hpp"
#include "solve/close.hpp"
#include "solve/effort.hpp"
#include "solve/limit/columns.hpp"
#include "solve/limit/mixes.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {
namespace {

using namespace effort::within_limit;
using namespace effort::work;

// Of all tables. Smaller problems need no prices for all times.
double entries(const Problem& problem) {
  double sum = 0;
  for (const CostTable& table : problem.tables) {
    sum += static_cast<double>(table.rows) * static_cast<double>(table.columns);
  }
  return sum;
}

// Of a pass over all tables.
double pass_work(const Network& net) {
  double work = 0;
  for (const Edge& edge : net.edges) {
    work += effort::work::kRowEntryWork *
            static_cast<double>(net.algebra.core(edge.table.core).values.size());
  }
  return 2 * (work +
              effort::work::kVisitWork * static_cast<double>(net.nodes.size() + net.edges.size()));
}

}  // namespace

LimitedSearch::LimitedSearch(Race& race, std::vector<int> start,
                             std::shared_ptr<const CarriedMessages> messages)
    : race_(race),
      budget_(race.budget),
      start_(std::move(start)),
      messages_(std::move(messages)),
      all_(race) {}

void LimitedSearch::price() {
  if (all_.net().impossible) return race_.raise(race_.below());
  if (budget_.patient && entries(race_.problem) > kManyEntries) return price_all_times();
  const bool large = race_.problem.nodes.size() >= kNodesToPrice;
  if (start_.empty() || !large || budget_.patient) return meet(start_);
  for (int row : all_.overfull_rows(all_.labels_of(start_))) {
    times_.insert(all_.net().row_time[at(row)]);
  }
  if (!times_.empty()) price_few_times();
}

void LimitedSearch::price_from(LearntPrices learnt) {
  if (all_.net().impossible) return race_.raise(race_.below());
  const Noted noted(race_, "prices");
  const BudgetShare share(budget_, kFewTimesPart);
  all_.take_best();
  priced_ = std::move(learnt.priced);
  for (Met& met : priced_.met) met = weigh(all_.net(), std::move(met.labels));
  has_plans_ = learnt.has_plans && !priced_.cut_off;
  times_ = std::move(learnt.times);
  prices_ = std::move(learnt.prices);
  pricer_ = std::make_unique<Pricer>(race_, all_, learnt.messages);
  pricer_->allow(learnt.rows);
  if (priced_.cut_off) {
    priced_ = find_better_prices(all_, std::move(priced_), *pricer_, race_);
  } else {
    pricer_->settle(priced_.prices, false);
  }
}

std::optional<LearntPrices> LimitedSearch::learnt() const {
  if (pricer_ == nullptr || priced_.met.empty()) return std::nullopt;
  LearntPrices result = {.priced = priced_,
                         .rows = pricer_->rows(),
                         .messages = pricer_->messages(),
                         .has_plans = has_plans_,
                         .times = times_,
                         .prices = prices_};
  for (Met& met : result.priced.met) met.excess = {};
  return result;
}

void LimitedSearch::close() {
  bool whole = !budget_.patient;  // the first rounds must leave time for others
  if (branch()) return;
  const BudgetShare most(budget_, BudgetShare::Most{closing_work()});
  for (int round = 0; round < effort::within_limit::kRounds && !race_.closed() && !budget_.over();
       ++round) {
    const std::size_t before = times_.size();
    {
      const BudgetShare share(budget_, whole ? 1.0 : kRoundPart);
      solve_relaxed(whole ? To::kTheEnd : To::kFirstRound);
    }
    const double gap = race_.below() - race_.bound;
    combine();
    const bool news = race_.below() - race_.bound < (1 - effort::within_limit::kNews) * gap;
    // Without further times, the relaxed problem is the whole as far as can be seen.
    if (times_.size() == before && whole && !news) break;
    whole = whole || times_.size() == before;
  }
}

std::vector<Kept> LimitedSearch::halves() const {
  if (!priced_.divided) return {};
  return halves_of(all_.net(), *priced_.divided, priced_.prices);
}

// Only above a gap that is worth it, and where the best mix is clearly cheaper than the plan: else
// the gap comes of the prices, not of what the mix divides. True if it closed more than is left:
// closing the whole would start from the bound of before, and add nothing.
bool LimitedSearch::branch() {
  const double before = race_.bound;
  const double gap = race_.below() - before;
  if (!(gap > effort::halves::kWorthwhile * race_.below())) return false;
  if (!(race_.below() - priced_.mixed > effort::halves::kMixedPart * gap)) return false;
  const Noted noted(race_, "halves");
  const BudgetShare share(budget_, effort::halves::kWorkPart);
  search_halves(race_, start_, halves());
  return !budget_.patient && race_.below() - race_.bound < race_.bound - before;
}

// A small gap is worth only so much, or nothing.
double LimitedSearch::closing_work() const {
  if (budget_.patient) return kInfinity;
  double work = kInfinity;
  for (const SmallGap& small : effort::within_limit::kSmallGaps) {
    if (!(race_.below() - race_.bound < small.gap * race_.below())) continue;
    work = budget_.effort * small.work;
    if (work < small.least_passes * pass_work(all_.net())) work = 0;
  }
  return work;
}

// On the whole, before any network is reduced.
void LimitedSearch::price_few_times() {
  pricer_ = std::make_unique<Pricer>(race_, all_, messages_);
  {
    const Noted noted(race_, "prices");
    const BudgetShare share(budget_, kFewTimesPart);
    priced_ = find_prices(all_, all_.labels_of(start_), *pricer_, race_);
  }
}

void LimitedSearch::find_plans() {
  if (budget_.patient || std::exchange(has_plans_, true)) return;
  if (pricer_ == nullptr) return solve_relaxed(To::kPrices);
  combine();
  if (race_.runs(SolveStage::kMix) && !race_.closed() && !priced_.met.empty()) {
    const Noted noted(race_, "mix");
    mix_labellings(all_, pricer_->rows(), priced_, race_);
  }
  for (const auto& [time, price] : by_time(all_.net(), priced_.prices)) {
    prices_[time] = price;
    times_.insert(time);
  }
}

// Plans from what was met, and the prices that they suggest.
void LimitedSearch::combine() {
  if (pricer_ == nullptr) return;
  if (!race_.runs(SolveStage::kColumns) || race_.closed()) return;
  // Where the work was up before anything was met.
  if (priced_.met.empty() && all_.best().empty()) return;
  const Noted noted(race_, "columns");
  // A plan that is far from the bound says little about what the prices favour.
  const bool far = race_.below() - race_.bound > effort::columns::kNear * race_.bound;
  if (race_.feasible() && far && !priced_.met.empty()) all_.keep(priced_.met.back().labels);
  generate_columns(all_, *pricer_, priced_, race_);
  if (race_.feasible() || race_.closed() || priced_.met.empty()) return;
  // Without a labelling that fits, no mix of them may: then single labels are changed until one
  // does.
  all_.keep(priced_.met.back().labels);
  if (race_.feasible()) generate_columns(all_, *pricer_, priced_, race_);
}

// Prices for where the limit matters most, before it is looked at time by time.
void LimitedSearch::price_all_times() {
  const BudgetShare share(budget_, kPricesPart);
  const std::unique_ptr<Network> net = build_network(race_.problem, maximal_times(race_.problem));
  budget_.add(reduce(*net));
  if (net->impossible) return race_.raise(race_.below());
  Dual dual(*net);
  Subgradient steps(*net, dual, budget_, kAllTimesReach, true);
  const double work_before = budget_.work;
  double repaired = 0;
  for (int step = 0; step < kAllTimesSteps && !budget_.over(); ++step) {
    if (!steps.pass(race_.below())) break;
    budget_.add(4 * dual.work_per_pass());
    const std::vector<int> labels = steps.favoured();
    if (!steps.step(race_.below())) break;
    if (steps.reach() > kSettledReach) continue;
    if (repaired > kOfferedWork * (budget_.work - work_before)) continue;
    const double before = budget_.work;
    all_.keep(all_.labels_of(lift(*net, labels)));
    repaired += budget_.work - before;
  }
  race_.raise(steps.finish(race_.below()));
  note_prices(*net, dual);
  for (const auto& [time, price] : prices_) times_.insert(time);
}

// Solves with the rows so far, unless the labelling that their prices favour does not fit at
// further times: these come first.
void LimitedSearch::solve_relaxed(To to) {
  const Noted noted(race_, "at some times");
  const std::unique_ptr<Network> net =
      build_network(race_.problem, std::vector<int>(times_.begin(), times_.end()));
  budget_.add(kReducingPart * reduce(*net));
  double cutoff = race_.below();
  if (net->impossible || net->constant >= cutoff) return race_.raise(cutoff);
  race_.raise(net->constant);
  forget_unused(*net);
  Dual dual(*net);
  dual.set_multipliers(multipliers_of(*net, prices_));
  const auto messages = pricer_ == nullptr ? nullptr : pricer_->messages();
  if (messages != nullptr) {
    dual.begin_from(*messages);
  } else if (race_.runs(SolveStage::kFold)) {
    settle_folded(*net, dual, cutoff, budget_);
  }
  {
    const Noted noted(race_, "rows");
    Incumbent best;
    move_prices(*net, dual, cutoff, best);
    if (best.value < kInfinity) meet(lift(*net, best.labels));
    race_.raise(dual.exhausted() ? cutoff : dual.bound());
  }
  if (dual.exhausted() || dual.bound() >= cutoff) return;
  note_prices(*net, dual);
  const std::size_t times = times_.size();
  meet(lift(*net, dual.decode_and_improve()));
  if (times_.size() > times || to == To::kPrices) return;
  cutoff = std::min(cutoff, race_.below());
  const Noted closing_noted(race_, "close");
  // Where much is open, the next round may have less of it.
  const UseWindows windows = !race_.runs(SolveStage::kWindows) ? UseWindows::kNever
                             : to == To::kFirstRound           ? UseWindows::kWhereNarrow
                                                               : UseWindows::kAlways;
  const double bound = std::max(dual.bound(), std::min(race_.bound, cutoff));
  const Found found = close_gap(*net, dual, bound, cutoff, budget_, windows);
  if (found.value < kInfinity) meet(found.labels);
  race_.raise(found.bound);
}

// The messages settle before the multipliers move; the last digits of the multipliers are for those
// who have the time, and for gaps that they can close, or where they cost nothing.
void LimitedSearch::move_prices(const Network& net, Dual& dual, double& cutoff, Incumbent& best) {
  std::vector<std::vector<int>> met;
  const double before = budget_.work;
  for (const StepReach& reach : kReaches) {
    if (dual.exhausted() || dual.bound() >= cutoff) break;
    const bool last = &reach != kReaches;
    const double missing = (cutoff - dual.bound()) / cutoff;
    const bool dear = budget_.work - before > budget_.effort * kCheapWork;
    if (last && (!budget_.patient || (missing < effort::within_limit::kCloseEnough && dear))) break;
    const BudgetShare share(budget_, effort::within_limit::kRowsPart);
    if (!last) tighten(net, dual, cutoff, best, budget_, effort::within_limit::kSettling);
    tighten_rows(net, dual, cutoff, best, budget_, kRootSteps, reach, &met);
  }
  // They are columns of the whole, too.
  for (const std::vector<int>& labels : met) {
    if (pricer_ != nullptr) meet_in_pool(all_.net(), all_.labels_of(lift(net, labels)), priced_);
  }
}

void LimitedSearch::note_prices(const Network& net, const Dual& dual) {
  prices_.clear();
  for (std::size_t r = 0; r < net.capacity.size(); ++r) {
    if (dual.multipliers()[r] > 0) prices_[net.row_time[r]] = dual.multipliers()[r];
  }
}

// Rows for where these choices do not fit; then the choices themselves, repaired.
void LimitedSearch::meet(const std::vector<int>& choices) {
  if (choices.empty()) return;
  std::vector<int> labels = all_.labels_of(choices);
  for (int row : all_.overfull_rows(labels)) times_.insert(all_.net().row_time[at(row)]);
  all_.keep(std::move(labels));
}

void search_within_limit(Race& race, const std::vector<int>& start) {
  LimitedSearch search(race, start);
  search.price();
  search.find_plans();
  search.close();
}

}  // namespace autopar::solver
