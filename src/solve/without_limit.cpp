#include "solve/without_limit.hpp"

#include <algorithm>
#include <utility>

#include "solve/bound/settle.hpp"
#include "solve/branch/explore.hpp"
#include "solve/close.hpp"
#include "solve/effort.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {

using namespace effort::without_limit;
using namespace effort::work;

void FreeSearch::begin(int rounds) {
  net_ = build_network(race_.problem, {});
  cutoff_ = race_.cutoff;
  if (net_->impossible) return raise(kInfinity);
  if (race_.runs(SolveStage::kFold)) like_ = LikeParts::of(*net_, rounds);
  like_rounds_ = rounds;
  if (like_ == nullptr) return prepare();
  settle_like_parts(kLikeLook);
}

void FreeSearch::look() {
  begin(kLikeRounds);
  if (!dual_) return;
  const BudgetShare share(race_.budget, kLookPart);
  Incumbent best;
  tighten(*net_, *dual_, cutoff_, best, race_.budget, kLook);
  take(best);
  raise(dual_->exhausted() ? cutoff_ : dual_->bound());
}

void FreeSearch::tighten_bound() {
  if (tightened_) return;
  tightened_ = true;
  if (net_ == nullptr) begin(effort::fold::kFoldRounds);
  cutoff_ = std::min(cutoff_, race_.cutoff);
  if (like_ != nullptr && open()) {
    close_like_parts();
    if (open()) {
      narrow();
      prepare();
    }
  }
  if (!dual_ || !open()) return;
  const BudgetShare share(race_.budget, kRootPart);
  while (!settle_alone() && shrink()) {
  }
  if (dual_ && race_.problem.use_limit < kInfinity) {
    settled_ = std::make_shared<const CarriedMessages>(dual_->carried());
  }
}

// False where few labels are left, which may go on alone.
bool FreeSearch::settle_alone() {
  Incumbent best;
  bool few = false;
  const auto shrinks = [&] { return few = few_left() && set_within_limit(best); };
  settle(
      *dual_, effort::settle::kThorough, cutoff_, true, race_.budget,
      [&] { keep(dual_->decode_and_improve(), best); }, shrinks);
  take(best);
  raise(dual_->exhausted() ? cutoff_ : dual_->bound());
  return !few || !open() || race_.budget.over();
}

bool FreeSearch::few_left() const {
  return dual_->labels_alive() <= kShrinking * dual_->labels_total();
}

// Whether what set the cutoff fits: if not, labels count again under the limit that are too dear
// without it.
bool FreeSearch::set_within_limit(const Incumbent& best) const {
  if (race_.problem.use_limit == kInfinity) return true;
  if (best.value == kInfinity) return race_.below() <= cutoff_;
  return evaluate(race_.problem, lift(*net_, best.labels)).peak_use <= race_.problem.use_limit;
}

// The network is reduced to the labels that are left below the cutoff, and messages go on from
// where they were. False where nothing is open.
bool FreeSearch::shrink() {
  const CarriedMessages messages = dual_->carried();
  for (std::size_t n = 0; n < net_->nodes.size() && !net_->impossible; ++n) {
    const int node = static_cast<int>(n);
    if (!net_->nodes[n].gone) keep_labels(*net_, node, dual_->left(node));
  }
  dual_.reset();
  // In the numbers of the labels before.
  met_.clear();
  best_met_.clear();
  race_.budget.add(kReducingPart * reduce(*net_));
  if (net_->impossible || net_->constant >= cutoff_) {
    raise(cutoff_);
    return false;
  }
  forget_unused(*net_);
  dual_.emplace(*net_);
  dual_->begin_from(messages);
  return true;
}

void FreeSearch::keep(std::vector<int> labels, Incumbent& best) {
  if (met_.size() == kMostMixed) met_.erase(met_.begin());
  met_.push_back(labels);
  const double before = cutoff_;
  keep_if_better(*net_, std::move(labels), cutoff_, best);
  if (cutoff_ < before) best_met_ = best.labels;
}

// Where much is open, only what closes it soon is worth trying.
double FreeSearch::closing_work() const {
  return wide() && !race_.budget.patient ? race_.budget.effort * kWideClosingWork : kInfinity;
}

bool FreeSearch::wide() const { return cutoff_ - bound_ > kWide * cutoff_; }

// Of the best labelling and some of the latest, then of more, as long as all of these mixes can be
// looked through; if not, false.
bool FreeSearch::mix() {
  if (!race_.runs(SolveStage::kMix) || met_.empty()) return true;
  if (cutoff_ - bound_ < kWorthMixing * cutoff_) return true;
  const Noted noted(race_, "mix");
  const Fold like = fold_or_alone(*net_, kMixedRounds);
  for (std::size_t latest = kFirstMixed; open(); latest *= 2) {
    const std::size_t count = std::min(met_.size(), latest);
    std::vector<std::vector<int>> mixed(met_.end() - static_cast<std::ptrdiff_t>(count),
                                        met_.end());
    if (!best_met_.empty()) mixed.push_back(best_met_);
    const BudgetShare share(race_.budget, kMixWork);
    Found found = explore_restricted(*net_, met_labels(like, mixed), cutoff_, race_.budget);
    const bool through = found.bound >= std::min(found.value, cutoff_);
    if (found.value < kInfinity) {
      dual_->improve(found.labels);
      Incumbent best;
      keep(std::move(found.labels), best);
      take(best);
    } else if (!through) {
      return false;
    }
    if (latest >= kMostMixed || count < latest) return through;
  }
  return true;
}

void FreeSearch::close() {
  tighten_bound();
  cutoff_ = std::min(cutoff_, race_.cutoff);
  const bool through = !dual_ || mix() || !wide() || race_.budget.patient;
  if (dual_ && open()) {
    const BudgetShare most(race_.budget, BudgetShare::Most{closing_work()});
    if (through) take(close_gap(*net_, *dual_, bound_, cutoff_, race_.budget, UseWindows::kNever));
  } else if (!race_.budget.over() || bound_ >= cutoff_) {
    raise(cutoff_);
  }
  dual_.reset();
  met_.clear();
  like_ = nullptr;
  net_ = nullptr;
}

void FreeSearch::settle_like_parts(const Patience& patience) {
  Incumbent best;
  like_->settle_quickly(patience, cutoff_, &best, race_.budget);
  take(best);
  raise(like_->settle_exactly(cutoff_, race_.budget));
}

// The ends of chains are told from their middle further in; then cutoffs so near the bound that
// few labels are left.
void FreeSearch::close_like_parts() {
  if (like_rounds_ < effort::fold::kFoldRounds) {
    if (std::unique_ptr<LikeParts> finer = LikeParts::of(*net_, effort::fold::kFoldRounds)) {
      finer->take_over(*like_);
      like_ = std::move(finer);
    }
  }
  settle_like_parts(kLikeClosing);
  for (const double part : kLikeParts) {
    if (!open() || race_.budget.over()) return;
    const double step = std::max(kLikeStep * bound_, part * (cutoff_ - bound_));
    const double below = std::min(cutoff_, bound_ + step);
    const BudgetShare share(race_.budget, kLikeWork);
    const auto kept = like_->alive_below(below, race_.budget);
    if (!kept) continue;
    Found found = explore_restricted(*net_, *kept, below, race_.budget);
    found.bound = std::min(below, found.bound);
    if (found.value < kInfinity) found.labels = lift(*net_, std::move(found.labels));
    take(std::move(found));
  }
}

// Leaves what can be part of something below the cutoff, unless that is most of it.
void FreeSearch::narrow() {
  if (like_->part_alive() <= kMostAlive) {
    const std::vector<Labels> kept = like_->alive();
    for (std::size_t n = 0; n < kept.size() && !net_->impossible; ++n) {
      if (!net_->nodes[n].gone) keep_labels(*net_, static_cast<int>(n), kept[n]);
    }
  }
  like_ = nullptr;
}

void FreeSearch::prepare() {
  race_.budget.add(kReducingPart * reduce(*net_));
  if (net_->impossible || net_->constant >= cutoff_) return raise(cutoff_);
  raise(net_->constant);
  forget_unused(*net_);
  dual_.emplace(*net_);
  if (!race_.runs(SolveStage::kFold)) return;
  const double bound =
      settle_folded(*net_, *dual_, cutoff_, race_.budget, [&](std::vector<int> labels) {
        Incumbent best;
        keep(std::move(labels), best);
        take(best);
      });
  raise(bound);
}

void FreeSearch::take(const Incumbent& best) {
  if (best.value < kInfinity) take(Found{.value = best.value, .labels = lift(*net_, best.labels)});
}

void FreeSearch::take(Found found) {
  if (found.value < kInfinity) {
    cutoff_ = std::min(cutoff_, strictly_below(found.value));
    best_ = std::move(found.labels);
    race_.offer(best_);
  }
  raise(found.bound);
}

void FreeSearch::raise(double bound) {
  bound_ = std::max(bound_, std::min(bound, cutoff_));
  race_.raise(bound_);
}

}  // namespace autopar::solver
