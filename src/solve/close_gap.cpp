#include "solve/close_gap.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "solve/bound/cuts.hpp"
#include "solve/bound/fold.hpp"
#include "solve/bound/like_parts.hpp"
#include "solve/bound/multipliers.hpp"
#include "solve/network/reduce.hpp"
#include "solve/windows/windows.hpp"

namespace autopar::solver {
namespace {

constexpr double kReducingPart = 0.25;  // of its work counts: what it leaves must be looked at too
constexpr int kRootPasses = 100;
constexpr int kRootSteps = 1000;
constexpr int kLookPasses = 8;      // of a first look
constexpr double kLookPart = 0.05;  // of the work that is left, for that
constexpr int kLikeRounds = 5;      // of telling like parts apart, for that
constexpr Patience kLikeLook = {64, 0.1, 2e-3};
constexpr Patience kLikeClosing = {256, 0.01, 1e-6};  // where the gap has to be closed
constexpr double kLikeParts[] = {0, 1.0 / 256, 1.0 / 64,
                                 1.0 / 16};  // of the gap, looked at before the rest
constexpr double kLikeWork = 0.1;            // of the work that is left, for each of them
constexpr double kLikeStep = 1e-6;           // of the bound, at least
constexpr double kMostAlive = 0.7;           // of the labels, and the others are worth taking out
constexpr int kFoldedRounds = 4;
constexpr int kFoldedPasses = 64;       // of a round
constexpr double kFoldedTrial = 0.2;    // of the work that is left, for exploring after a round
constexpr double kFoldedGap = 1e-3;     // less than this is left to the whole network
constexpr double kSettled = 0.005;      // eight passes gain less than this part of what is missing
constexpr double kFoldedPart = 0.7;     // of the work that is left
constexpr double kFoldedPricing = 0.6;  // of that, for multipliers
constexpr StepReach kFoldedReach = {0.05, 1e-5};
constexpr int kPassesBeforeMix = 4;
constexpr int kPassesAfterFolding = 2;
constexpr int kMostBeforeMix = 24;  // where the bound to be reached is known
// How far above the bound the first trial looks, as a part of the gap; the next ones look further
// or less far, as it went.
constexpr double kFirstPart = 1.0 / 16;
constexpr double kLeastPart = 1.0 / 512;
constexpr double kGuesses[] = {1.0 / 64, 1.0 / 16, 1.0 / 4};
constexpr double kGuessWork = 0.05;
constexpr double kWindowsWork = 0.7;
constexpr double kTrialWork = 0.3;  // of the work that is left, for a trial
// A gap below this part of the value is worth only so much work.
struct SmallGap {
  double gap, work;
};
constexpr SmallGap kSmallGaps[] = {{1e-5, 3e7}, {1e-4, 5e7}, {5e-3, 1e8}};
constexpr int kSettlingPasses = 40;
constexpr StepReach kReaches[] = {{0.05, 1e-3}, {1e-3, 1e-6}};
constexpr double kManyPasses = 600;  // over the whole network, of the work that is left
constexpr double kNews = 1e-3;       // a bound so much better is worth the passes
constexpr double kExact = 2e-5;      // of the bound
constexpr double kRowsPart = 0.2;    // of the work that is left, for the steps of a reach
// A gap below this part of the value is left, unless it took less than that work.
constexpr double kCloseEnough = 1e-4;
constexpr double kCheapWork = 3e7;

double most_finite(const Vector& values) {
  double most = 0;
  for (double value : values) {
    if (value < kInfinity) most = std::max(most, value);
  }
  return most;
}

// No labelling that is allowed has a greater one.
double most_value(const Network& net) {
  double sum = net.constant;
  for (const Node& node : net.nodes) {
    if (!node.gone) sum += most_finite(net.algebra.vector(node.cost));
  }
  for (const Edge& edge : net.edges) {
    if (!edge.gone) sum += most_finite(net.algebra.core(edge.table.core).values);
  }
  return sum;
}

class GapClosing {
 public:
  GapClosing(Network& net, double cutoff, Budget& budget, Report report, GapOptions options)
      : net_(net),
        cutoff_(cutoff),
        budget_(budget),
        report_(std::move(report)),
        options_(std::move(options)) {}

  Found run() {
    if (!look_at_like_parts(kFoldRounds)) prepare();
    return finish(cutoff_);
  }

  // A first bound and, where like parts are one, a first labelling.
  void look() {
    if (look_at_like_parts(kLikeRounds)) return;
    prepare();
    if (!dual_) return;
    const BudgetShare share(budget_, kLookPart);
    if (folded_ != nullptr) {
      folded_->closing->settle(folded_->messages, kLookPasses);
      take_unfolded(folded_->like, folded_->closing->best_);
      dual_->take_over(folded_->messages, folded_->like.edge_of, folded_->like.edges_in);
    }
    for (int pass = 0; pass < kPassesAfterFolding && !budget_.over(); ++pass) pass_over(*dual_);
    if (folded_ == nullptr) settle(*dual_, kLookPasses);
    raise(dual_->exhausted() ? cutoff_ : dual_->bound());
    // Much memory for what the folded network's messages are as good for.
    if (folded_ != nullptr && !dual_->exhausted()) dual_.reset();
  }

  // What is left to do below the cutoff.
  Found finish(double cutoff) {
    cutoff_ = std::min(cutoff_, cutoff);
    if (like_ != nullptr && bound_ < cutoff_) {
      close_like_parts();
      if (bound_ < cutoff_) {
        narrow();
        prepare();
      }
    }
    if (folded_ != nullptr && !dual_ && bound_ < cutoff_) dual_.emplace(net_);
    if (!dual_ || bound_ >= cutoff_) {
      raise(cutoff_);
      return found();
    }
    Dual& dual = *dual_;
    if (folded_ != nullptr && close_folded(dual)) return found();
    if (tighten_root(dual)) return found();
    return close(dual);
  }

  // Explores below cutoffs that approach the incumbent.
  Found close(const Dual& dual) {
    raise(dual.exhausted() ? cutoff_ : dual.bound());
    const double limit = budget_.work_limit;
    if (options_.windows && !net_.capacity.empty()) look_in_windows(dual);
    for (double part : kGuesses) {
      limit_small_gap(limit);
      if (bound_ < cutoff_ && cutoff_ < kInfinity) guess(dual, part);
    }
    double part = cutoff_ < kInfinity ? kFirstPart : 1.0;
    while (bound_ < cutoff_ && !budget_.over() && part >= kLeastPart) {
      limit_small_gap(limit);
      const bool was_free = cutoff_ == kInfinity;
      const bool closed = attempt(dual, part);
      part = was_free && cutoff_ < kInfinity ? kFirstPart
             : closed                        ? std::min(1.0, 2 * part)
                                             : part / 8;
    }
    budget_.work_limit = limit;
    return found();
  }

 private:
  // The network in which like parts are one.
  struct Folded {
    Folded(GapClosing& whole, Fold parts)
        : like(std::move(parts)),
          net(folded_network(whole.net_, like)),
          messages(*net, like.edges_in),
          closing(std::make_unique<GapClosing>(
              *net, whole.cutoff_, whole.budget_, [](double, const std::vector<int>&) {},
              GapOptions{.windows = false})) {}
    Fold like;
    std::unique_ptr<Network> net;
    Dual messages;
    std::unique_ptr<GapClosing> closing;
  };

  // A bound and a labelling without any reduction, where that can be done once for many parts.
  bool look_at_like_parts(int rounds) {
    if (!options_.fold || !net_.capacity.empty() || net_.impossible) return false;
    like_ = LikeParts::of(net_, rounds);
    like_rounds_ = rounds;
    if (like_ != nullptr) settle_like_parts(kLikeLook);
    return like_ != nullptr;
  }

  void settle_like_parts(const Patience& patience) {
    Incumbent best;
    like_->settle(patience, cutoff_, best, budget_);
    take(best);
    raise(like_->bound());
  }

  // The ends of chains are told from their middle further in; then cutoffs so near the bound that
  // few labels are left.
  void close_like_parts() {
    if (like_rounds_ < kFoldRounds) {
      if (std::unique_ptr<LikeParts> finer = LikeParts::of(net_, kFoldRounds)) {
        finer->take_over(*like_);
        like_ = std::move(finer);
      }
    }
    settle_like_parts(kLikeClosing);
    for (const double part : kLikeParts) {
      if (!(bound_ < cutoff_) || budget_.over()) return;
      const double step = std::max(kLikeStep * bound_, part * (cutoff_ - bound_));
      const double below = std::min(cutoff_, bound_ + step);
      const BudgetShare share(budget_, kLikeWork);
      const Found found = like_->explore(below, budget_);
      take(found);
      raise(std::min(below, found.bound));
    }
  }

  // Leaves what can be part of something below the cutoff, unless that is most of it.
  void narrow() {
    if (like_->part_alive() <= kMostAlive) {
      const std::vector<Labels> kept = like_->alive();
      for (std::size_t n = 0; n < kept.size() && !net_.impossible; ++n) {
        if (!net_.nodes[n].gone) keep_labels(net_, static_cast<int>(n), kept[n]);
      }
    }
    like_ = nullptr;
  }

  void prepare() {
    const double before = net_.algebra.work();
    reduce(net_);
    budget_.add(kReducingPart * (net_.algebra.work() - before));
    if (net_.impossible || net_.constant >= cutoff_) {
      raise(cutoff_);
      return;
    }
    bound_ = std::max(bound_, net_.constant);
    report_(bound_, {});
    forget_unused(net_);
    dual_.emplace(net_);
    if (!options_.fold) return;
    Fold like = fold(net_);
    if (!like.first.empty()) folded_ = std::make_unique<Folded>(*this, std::move(like));
  }
  // From when a gap is first small, so much work is left.
  void limit_small_gap(double limit) {
    if (budget_.patient) return;
    for (const SmallGap& small : kSmallGaps) {
      if (cutoff_ - bound_ >= small.gap * cutoff_ || small_ <= small.gap) continue;
      budget_.work_limit =
          std::min({limit, budget_.work_limit, budget_.work + budget_.effort * small.work});
      small_ = small.gap;
      return;
    }
  }

  // The best labelling that treats like parts alike, and the messages to begin with. The folded
  // network is small, so both are cheap. True where the caller has seen enough.
  bool close_folded(Dual& dual) {
    const BudgetShare share(budget_, kFoldedPart);
    const Fold& like = folded_->like;
    Dual& messages = folded_->messages;
    GapClosing& closing = *folded_->closing;
    closing.cutoff_ = std::min(closing.cutoff_, cutoff_);
    if (!net_.capacity.empty()) {
      const Dual priced = price_folded(closing, like, messages);
      if (show_folded(like, priced, dual)) return true;
    }
    for (int round = 0; round < kFoldedRounds && !budget_.over(); ++round) {
      const bool settled = closing.settle(messages, kFoldedPasses);
      {
        const BudgetShare trial(budget_, kFoldedTrial);
        closing.close(messages);
      }
      if (settled || closing.cutoff_ - messages.bound() < kFoldedGap * closing.cutoff_) break;
    }
    dual.take_over(messages, like.edge_of, like.edges_in);
    take_unfolded(like, closing.best_);
    folded_ = nullptr;
    was_folded_ = true;
    return false;
  }

  // Where there is no work for many passes, the caller sees what is favoured where like parts
  // choose alike, before more is done about it; and the bound that was priced, if it is news.
  bool show_folded(const Fold& like, const Dual& priced, Dual& dual) {
    const Dual& messages = folded_->messages;
    if (options_.minimiser == nullptr || !options_.enough || messages.exhausted()) return false;
    const double passes = (budget_.work_limit - budget_.work) / dual.work_per_pass();
    if (passes > kManyPasses) return false;
    std::vector<int> labels = messages.decode();
    messages.improve(labels);
    *options_.minimiser = lift(net_, unfold(like, labels));
    if (options_.prices != nullptr) note_prices(messages);
    take_unfolded(like, folded_->closing->best_);
    if (!options_.enough()) return false;
    if (options_.met != nullptr) return true;
    if (priced.exhausted() || !(priced.bound() > bound_ * (1 + kNews))) return true;
    dual.take_over(priced, like.edge_of, like.edges_in);
    settle_known(dual, priced.bound());
    raise(dual.bound());
    return true;
  }

  // Until the bound is where the folded network's was.
  void settle_known(Dual& dual, double target) {
    for (int pass = 0; pass < kMostBeforeMix && !budget_.over(); ++pass) {
      const bool known = target < kInfinity && dual.bound() < target * (1 - kExact);
      if (pass >= kPassesBeforeMix && !known) break;
      pass_over(dual);
    }
  }

  // Multipliers for the folded network; labels that are too dear die on a copy only. What is met
  // on the way is there to be mixed. Returns what cutting planes found.
  Dual price_folded(GapClosing& closing, const Fold& like, Dual& messages) {
    const BudgetShare share(budget_, kFoldedPricing);
    if (options_.prices != nullptr) set_prices(messages);
    closing.settle(messages, kFoldedPasses);
    Dual priced = messages;
    std::vector<std::vector<int>> seen;
    // Treated alike, the parts need not fit at all: then no multipliers are high enough.
    const double most = most_value(closing.net_);
    const bool found =
        find_best_multipliers(closing.net_, priced, budget_, seen) && priced.bound() < most;
    if (found) {
      messages = priced;
      exact_ = priced.bound();
    }
    Dual result = priced;
    Incumbent best;
    Pool met;
    double cutoff = closing.cutoff_;
    tighten_rows(closing.net_, priced, cutoff, best, budget_, kRootSteps, kFoldedReach, &met);
    if (!found && priced.bound() < most) messages.set_multipliers(priced.multipliers());
    closing.take(best);
    for (const std::vector<int>& labels : met.met) pool_.add(unfold(like, labels));
    for (const std::vector<int>& labels : met.fitting) pool_.add_fitting(unfold(like, labels));
    for (const std::vector<int>& labels : met.met) {
      if (options_.met != nullptr) options_.met->push_back(lift(net_, unfold(like, labels)));
    }
    return result;
  }

  void take_unfolded(const Fold& like, const Found& found) {
    if (!(found.value < cutoff_)) return;
    Incumbent best;
    keep_if_better(net_, unfold(like, found.labels), budget_, cutoff_, best);
    if (best.value < kInfinity) offer(best.value, lift(net_, best.labels));
  }

  // Passes until they gain little, then true, or so many. No label dies: one that is too dear for
  // all layers at once may not be for one of them.
  bool settle(Dual& dual, int most_passes) {
    double before = -kInfinity;
    Incumbent best;
    for (int pass = 1; pass <= most_passes; ++pass) {
      if (budget_.over()) return true;
      pass_over(dual);
      if (pass % 8 != 0) continue;
      std::vector<int> labels = dual.decode();
      dual.improve(labels);
      budget_.add(dual.work_per_pass());
      keep_if_better(net_, std::move(labels), budget_, cutoff_, best);
      take(best);
      if (dual.bound() >= cutoff_) return true;
      const double missing = cutoff_ < kInfinity ? cutoff_ - dual.bound() : dual.bound();
      if (dual.bound() - before < kSettled * missing) return true;
      before = dual.bound();
    }
    return false;
  }

  void pass_over(Dual& dual) {
    dual.pass(kInfinity);
    budget_.add(dual.work_per_pass());
  }

  // True where the caller has seen enough.
  bool tighten_root(Dual& dual) {
    Incumbent best;
    const double limit = budget_.work_limit;
    limit_small_gap(limit);
    bool enough = false;
    if (net_.capacity.empty()) {
      const BudgetShare share(budget_, 0.5);
      tighten(net_, dual, cutoff_, best, budget_, kRootPasses);
    } else {
      if (was_folded_) mix_folded(dual, best);
      enough = (was_folded_ && show(dual, best)) || tighten_rows_and_mix(dual, best);
    }
    // Before the caller is asked: he may change what there is to spend.
    budget_.work_limit = limit;
    small_ = kInfinity;
    return enough || show(dual, best);
  }

  // Bound, the best so far and what is favoured now go to the caller, who may have enough of it.
  bool show(const Dual& dual, const Incumbent& best) {
    take(best);
    if (options_.minimiser != nullptr && !dual.exhausted()) {
      std::vector<int> labels = dual.decode();
      dual.improve(labels);
      *options_.minimiser = lift(net_, labels);
    }
    raise(dual.exhausted() ? cutoff_ : dual.bound());
    if (options_.prices != nullptr && !net_.capacity.empty()) note_prices(dual);
    return options_.enough && options_.enough();
  }

  void mix_folded(Dual& dual, Incumbent& best) {
    settle_known(dual, exact_);
    mix(dual, pool_, best);
  }

  // The messages settle before the multipliers move; and the last digits of the multipliers are for
  // those gaps that they can close, or where they cost nothing. A folded network's multipliers are
  // good to the last digits already. True where the caller has seen enough.
  bool tighten_rows_and_mix(Dual& dual, Incumbent& best) {
    if (options_.prices != nullptr && !was_folded_) set_prices(dual);
    const double before = budget_.work;
    for (const StepReach& reach : kReaches) {
      const double missing = (cutoff_ - dual.bound()) / cutoff_;
      const bool last = &reach != kReaches;
      if (!last && was_folded_) continue;
      if (dual.exhausted() || dual.bound() >= cutoff_) break;
      const bool dear = budget_.work - before > budget_.effort * kCheapWork;
      if (last && missing < kCloseEnough && dear) break;
      if (last && dual.bound() >= exact_ * (1 - kExact)) break;
      {
        const BudgetShare share(budget_, kRowsPart);
        if (!last) tighten(net_, dual, cutoff_, best, budget_, kSettlingPasses);
        tighten_rows(net_, dual, cutoff_, best, budget_, kRootSteps, reach, &pool_);
      }
      if (!last && show(dual, best)) return true;
      mix(dual, pool_, best);
    }
    return false;
  }

  void mix(const Dual& dual, const Pool& pool, Incumbent& best) {
    if (dual.exhausted() || dual.bound() >= cutoff_) return;
    Incumbent mixed = best_mix(net_, dual, pool, cutoff_, budget_);
    if (mixed.value < cutoff_) {
      cutoff_ = budget_.strictly_below(mixed.value);
      best = std::move(mixed);
    }
  }

  void set_prices(Dual& dual) const {
    Vector multipliers(net_.capacity.size(), 0.0);
    for (std::size_t r = 0; r < multipliers.size(); ++r) {
      const auto known = options_.prices->find(net_.row_time[r]);
      if (known != options_.prices->end()) multipliers[r] = known->second;
    }
    dual.set_multipliers(multipliers);
  }

  void note_prices(const Dual& dual) {
    options_.prices->clear();
    for (std::size_t r = 0; r < net_.capacity.size(); ++r) {
      if (dual.multipliers()[r] > 0) (*options_.prices)[net_.row_time[r]] = dual.multipliers()[r];
    }
  }

  // Exact where the network is narrow.
  void look_in_windows(const Dual& dual) {
    if (!(bound_ < cutoff_) || cutoff_ == kInfinity) return;
    const BudgetShare share(budget_, kWindowsWork);
    const Found found = search_windows(net_, dual, cutoff_, budget_);
    take(found);
    raise(found.bound);
  }

  // Looks for anything better among the labels that lie near the bound. Proves nothing.
  void guess(const Dual& dual, double part) {
    const BudgetShare share(budget_, kGuessWork);
    Dual narrowed = dual;
    narrowed.pass(bound_ + part * (cutoff_ - bound_));
    take(explore_survivors(net_, narrowed, cutoff_, budget_));
  }

  void take(const Incumbent& best) {
    if (best.value < best_.value) offer(best.value, lift(net_, best.labels));
  }

  void take(const Found& found) {
    if (!(found.value < cutoff_)) return;
    cutoff_ = budget_.strictly_below(found.value);
    offer(found.value, lift(net_, found.labels));
  }

  // Looks below a cutoff that is so far above the bound. False if the work was not enough.
  bool attempt(const Dual& dual, double part) {
    const double below = part < 1 ? bound_ + part * (cutoff_ - bound_) : cutoff_;
    const BudgetShare share(budget_, kTrialWork);
    Dual narrowed = dual;
    if (part < 1) narrowed.pass(below);
    const Found found = explore_survivors(net_, narrowed, below, budget_);
    take(found);
    raise(std::min(below, found.bound));
    return bound_ >= std::min(below, cutoff_);
  }

  void offer(double value, std::vector<int> labels) {
    if (!(value < best_.value)) return;
    best_.value = value;
    best_.labels = std::move(labels);
    report_(bound_, best_.labels);
  }

  void raise(double bound) {
    bound_ = std::max(bound_, std::min(bound, cutoff_));
    report_(bound_, {});
  }

  Found found() {
    best_.bound = bound_;
    return best_;
  }

  Network& net_;
  double cutoff_;
  Budget& budget_;
  const Report report_;
  const GapOptions options_;
  double bound_ = 0;
  double small_ = kInfinity;  // the gap that the work is limited for
  std::optional<Dual> dual_;  // none: nothing is below the cutoff, or it can be made again
  std::unique_ptr<LikeParts> like_;
  int like_rounds_ = 0;  // of telling them apart
  std::unique_ptr<Folded> folded_;
  bool was_folded_ = false;   // the dual began with a folded network's
  double exact_ = kInfinity;  // the best bound that multipliers give, where it is known
  Pool pool_;                 // of what was met there
  Found best_;
};

}  // namespace

RestOfClosing begin_closing(Network& net, double cutoff, Budget& budget, const Report& report,
                            const GapOptions& options) {
  const auto closing = std::make_shared<GapClosing>(net, cutoff, budget, report, options);
  closing->look();
  return [closing](double below) { return closing->finish(below); };
}

Found close_gap(Network& net, double cutoff, Budget& budget, const Report& report,
                const GapOptions& options) {
  return GapClosing(net, cutoff, budget, report, options).run();
}

}  // namespace autopar::solver
