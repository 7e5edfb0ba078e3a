// The search without the memory limit: what it finds fits, or says where the limit matters; its
// bound is one of the limited problem too.
#pragma once

#include <memory>
#include <optional>

#include "solve/bound/like_parts.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// Fold, bound, explore: like parts are bounded as one; near that bound few labels are left, and
// among these the search is exact. Where nothing repeats, or the bound leaves many labels, the
// network is reduced and bounded node by node first.
class FreeSearch {
 public:
  explicit FreeSearch(Race& race) : race_(race) {}

  // A first bound and, where like parts are one, a first labelling.
  void look();
  // A better bound, and the proof where that is easy; with a look before it, or without; once.
  void tighten_bound();
  bool open() const { return bound_ < cutoff_ && !net_->impossible; }
  // The rest, with what was not done of the others before it.
  void close();
  // Of the best labelling without the limit; empty: none is below the cutoff.
  const std::vector<int>& choices() const { return best_; }
  // Of the reduced network, once its messages have settled.
  const std::shared_ptr<const CarriedMessages>& messages() const { return settled_; }

 private:
  void begin(int rounds);
  void settle_like_parts(const Patience& patience);
  void close_like_parts();
  void narrow();
  void prepare();
  bool settle_alone();
  bool few_left() const;
  bool set_within_limit(const Incumbent& best) const;
  bool shrink();
  void keep(std::vector<int> labels, Incumbent& best);
  bool mix();
  bool wide() const;
  double closing_work() const;
  void take(const Incumbent& best);
  void take(Found found);
  void raise(double bound);

  Race& race_;
  std::unique_ptr<Network> net_;
  std::unique_ptr<LikeParts> like_;
  int like_rounds_ = 0;                // of telling them apart
  std::optional<Dual> dual_;           // of the reduced network, once there is one
  std::vector<std::vector<int>> met_;  // labellings of it that its messages favoured
  std::vector<int> best_met_;
  std::shared_ptr<const CarriedMessages> settled_;
  double bound_ = 0, cutoff_ = kInfinity;
  bool tightened_ = false;
  std::vector<int> best_;
};

}  // namespace autopar::solver
