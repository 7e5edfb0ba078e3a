// A network as it comes, its like parts seen as one: where there are many, a bound, labellings and
// often the proof, without any reduction.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "solve/bound/dual.hpp"
#include "solve/effort.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// Refers to the network, which must outlive it unchanged.
class LikeParts {
 public:
  // Null where the network has too few, or where like nodes are joined to each other. Parts are
  // told apart by what is so many edges away, and by which of `rows` (ascending) they use: only
  // those may have multipliers.
  static std::unique_ptr<LikeParts> of(const Network& net, int rounds,
                                       const std::vector<int>& rows = {});

  // Each node is a part.
  static std::unique_ptr<LikeParts> each_alone(const Network& net);

  // Goes on from what is known of parts that are told apart in another way.
  void take_over(const LikeParts& other);
  // Of another network of the same problem, in both of which each node is a part.
  CarriedMessages carried() const { return quick_.carried(); }
  void begin_from(const CarriedMessages& messages) { quick_.begin_from(messages); }
  void set_multipliers(const Vector& multipliers);
  // Quick messages as they are, with the multipliers that they are for, to begin from again.
  void keep_messages() { kept_ = {quick_.messages(), quick_.multipliers()}; }
  void return_to_kept();

  // Quick passes. Labellings on the way that are within the capacities are kept in `best`, where
  // there is one, and lower the cutoff.
  void settle_quickly(const Patience& patience, double& cutoff, Incumbent* best, Budget& budget);
  // From there exact passes, in which labels die. The bound; the cutoff, where nothing is below it.
  double settle_exactly(double cutoff, Budget& budget);
  double quick_bound() const { return quick_.bound(); }  // at the present multipliers, about

  // What the messages favour where like parts choose alike.
  std::vector<int> favoured() const { return unfold(fold_, quick_.decode_and_improve()); }
  double work_per_pass() const { return quick_.work_per_pass(); }

  // The labels that are left below a cutoff, per node of the network; nothing where they are many.
  std::optional<std::vector<Labels>> alive_below(double below, Budget& budget) const;
  // The labels that are left, per node of the network.
  std::vector<Labels> alive() const { return alive(exact_); }
  double part_alive() const { return exact_.labels_alive() / exact_.labels_total(); }

 private:
  LikeParts(const Network& net, Fold fold);
  std::vector<Labels> alive(const Dual& dual) const;

  const Network& net_;
  const Fold fold_;
  QuickDual quick_;
  struct Kept {
    std::vector<float> messages;
    Vector multipliers;
  };
  Kept kept_;  // empty: none are
  Dual exact_;
};

}  // namespace autopar::solver
