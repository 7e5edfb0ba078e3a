#include "solve/plans/sift.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "solve/bound/fold.hpp"
#include "solve/bound/multipliers.hpp"
#include "solve/network/reduce.hpp"
#include "solve/plans/combine.hpp"

namespace autopar::solver {
namespace {

constexpr int kRounds = 12;
constexpr double kNodeWork = 20;        // of finding like nodes, per node and edge
constexpr double kReducingPart = 0.25;  // of its work counts: what it leaves must be looked at too
// While the mixes still get much better, so much of the gap at least, a row's price may go to a
// time of the network that is as near as this part of the horizon: another network takes as long as
// many passes.
constexpr double kProgress = 0.5;
constexpr int kNear = 1000;
constexpr int kPasses = 24;
constexpr int kFewPasses = 4;
constexpr double kSettled = 0.02;          // so many passes gain less than this part of the gap
constexpr double kCloseEnough = 2.5e-3;    // of the value
constexpr double kConverged = 2e-4;        // the bound is as good as the mix
constexpr std::size_t kManyNodes = 20000;  // so many are not improved one by one at first
constexpr int kSteps = 40;                 // where there is no news
constexpr StepReach kReach = {0.02, 1e-5};
constexpr int kPatience = 2;    // rounds without news
constexpr double kNews = 0.05;  // of the gap
constexpr std::size_t kPoolSize = 24;

class Sift {
 public:
  Sift(const Problem& problem, const Network& all, std::vector<std::vector<int>> pool,
       Budget& budget, const SiftState& state)
      : problem_(problem),
        all_(all),
        like_(fold(all)),
        pool_(std::move(pool)),
        budget_(budget),
        state_(state) {
    budget.add(kNodeWork * static_cast<double>(all.nodes.size() + all.edges.size()));
  }

  void run(Prices& prices) {
    std::map<int, double> by_row;
    for (std::size_t r = 0; r < all_.row_time.size(); ++r) {
      const auto price = prices.find(all_.row_time[r]);
      if (price == prices.end()) continue;
      by_row[static_cast<int>(r)] = price->second;
      rows_.push_back(static_cast<int>(r));
    }
    int without_news = 0;
    double last = kInfinity;  // mix
    for (int round = 0; round < kRounds && !budget_.over() && !pool_.empty(); ++round) {
      const double value = state_.cutoff, bound = state_.bound;
      const Combination mix = combine_pool(by_row);
      if (mix.value == kInfinity || state_.bound >= state_.cutoff) break;
      exact_ = exact_ || (mix.fits && last - mix.value < kProgress * (mix.value - state_.bound));
      last = mix.fits ? mix.value : kInfinity;
      by_row = mix.prices;
      full_rows_ = mix.full_rows;
      price_whole(by_row, prices);
      if (state_.bound >= state_.cutoff * (1 - kCloseEnough / budget_.effort)) break;
      const bool converged = mix.fits && mix.value - state_.bound <= kConverged * mix.value;
      const double gap = value < kInfinity ? value - bound : kInfinity;
      const bool better = state_.cutoff - state_.bound < gap * (1 - kNews);
      without_news = better || !mix.fits ? 0 : without_news + 1;
      if (without_news >= (converged ? 1 : kPatience)) break;
      if (without_news > 0 && mix.fits) step_from_best(prices);
    }
  }

 private:
  // Where mixes lead nowhere new: steps from the best prices, and what is met there.
  void step_from_best(Prices& prices) {
    if (net_->impossible || dual_->exhausted()) return;
    set_prices(prices);
    settle();
    Pool pool;
    Incumbent best;
    double cutoff = kInfinity;
    tighten_rows(*net_, *dual_, cutoff, best, budget_, kSteps, kReach, &pool);
    for (const auto* labellings : {&pool.met, &pool.fitting}) {
      for (const std::vector<int>& labels : *labellings) {
        meet(state_.labels_of(lift(*net_, labels)));
      }
    }
    if (dual_->bound() > state_.bound) prices = prices_of_dual();
    state_.raise(dual_->bound());
  }

  Prices prices_of_dual() const {
    Prices result;
    for (std::size_t r = 0; r < net_->row_time.size(); ++r) {
      if (dual_->multipliers()[r] > 0) result[net_->row_time[r]] = dual_->multipliers()[r];
    }
    return result;
  }

  void set_prices(const Prices& prices) {
    Vector multipliers;
    for (int time : net_->row_time) {
      const auto price = prices.find(time);
      multipliers.push_back(price == prices.end() ? 0.0 : price->second);
    }
    dual_->set_multipliers(multipliers);
  }

  void meet(const std::vector<int>& labels) {
    if (labels.empty()) return;
    const auto known = std::find(pool_.begin(), pool_.end(), labels);
    if (known != pool_.end()) {
      std::rotate(known, known + 1, pool_.end());
      return;
    }
    if (pool_.size() == kPoolSize) pool_.erase(pool_.begin());
    pool_.push_back(labels);
  }

  Combination combine_pool(const std::map<int, double>& prices) {
    meet(state_.best);
    double work = 0;
    const Parts parts = split_into_parts(all_, like_, pool_.back(), pool_, work);
    budget_.add(work);
    Combination mix = combine(parts, all_.capacity, prices, rows_, state_.cutoff, budget_);
    if (!mix.variants.empty() && mix.cost < state_.cutoff) {
      state_.take(labels_of(parts, mix.variants), exact_ || all_.nodes.size() < kManyNodes);
    }
    return mix;
  }

  // The whole at these prices: a bound, and what is favoured.
  void price_whole(const std::map<int, double>& by_row, Prices& prices) {
    Prices now;
    if (net_ == nullptr || !near_rows(by_row, now)) {
      build();
      now.clear();
      for (const auto& [row, price] : by_row) now[all_.row_time[at(row)]] = price;
    }
    if (net_->impossible) return state_.raise(state_.cutoff);
    set_prices(now);
    settle();
    if (dual_->exhausted()) return state_.raise(state_.cutoff);
    if (dual_->bound() > state_.bound) prices = std::move(now);
    state_.raise(dual_->bound());
    std::vector<int> labels = dual_->decode();
    dual_->improve(labels);
    meet(state_.labels_of(lift(*net_, labels)));
  }

  // The same prices at times of the network: a row's price goes to the nearest. False where that is
  // not near, and the row not one that the network has done without.
  bool near_rows(const std::map<int, double>& by_row, Prices& prices) const {
    const int near = exact_ ? 0 : problem_.horizon / kNear;
    for (const auto& [row, price] : by_row) {
      const int time = all_.row_time[at(row)];
      const auto behind = std::lower_bound(net_->row_time.begin(), net_->row_time.end(), time);
      int nearest = behind == net_->row_time.end() ? problem_.horizon + time : *behind;
      if (behind != net_->row_time.begin() && time - *(behind - 1) < nearest - time) {
        nearest = *(behind - 1);
      }
      if (std::abs(nearest - time) > near && times_.count(time) == 0) return false;
      prices[nearest] += price;
    }
    return true;
  }

  void build() {
    for (int row : rows_) times_.insert(all_.row_time[at(row)]);
    for (int row : full_rows_) times_.insert(all_.row_time[at(row)]);
    dual_.reset();
    net_ = build_network(problem_, std::vector<int>(times_.begin(), times_.end()));
    const double before = net_->algebra.work();
    reduce(*net_);
    budget_.add(kReducingPart * (net_->algebra.work() - before));
    forget_unused(*net_);
    dual_.emplace(*net_);
  }

  void settle() {
    double before = -kInfinity;
    for (int pass = 1; pass <= kPasses && !dual_->exhausted(); ++pass) {
      dual_->pass(kInfinity);
      budget_.add(dual_->work_per_pass());
      if (budget_.over()) return;
      if (pass % kFewPasses != 0) continue;
      const double missing = state_.cutoff < kInfinity ? std::abs(state_.cutoff - dual_->bound())
                                                       : std::abs(dual_->bound());
      if (dual_->bound() - before < kSettled * missing) return;
      before = dual_->bound();
    }
  }

  const Problem& problem_;
  const Network& all_;
  const Fold like_;
  std::vector<std::vector<int>> pool_;  // the latest last
  Budget& budget_;
  const SiftState& state_;
  std::vector<int> rows_;       // of the linear program
  bool exact_ = false;          // rows' prices do not go to other times
  std::vector<int> full_rows_;  // of the mix
  std::set<int> times_;         // of the network
  std::unique_ptr<Network> net_;
  std::optional<Dual> dual_;
};

}  // namespace

void sift(const Problem& problem, const Network& all, std::vector<std::vector<int>> pool,
          Prices& prices, Budget& budget, const SiftState& state) {
  Sift(problem, all, std::move(pool), budget, state).run(prices);
}

}  // namespace autopar::solver
