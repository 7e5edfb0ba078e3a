// What each mesh axis of a plan does, by the products that it splits, and which products do not
// keep to it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frameworks/layers.hpp"

namespace autopar {

enum class AxisRole : std::uint8_t {
  kData,     // the batch of products with weights
  kContext,  // their rows that are no batch: the sequence, also inside attention
  kTensor,   // columns or rows of the weights
};

struct AxisUse {
  AxisRole role = AxisRole::kData;
  bool is_expert = false;       // it splits groups of weights as well
  bool splits_experts = false;  // columns or rows of each of them
  std::int64_t size = 1;
};

struct Degrees {
  std::int64_t data = 1, tensor = 1, context = 1, expert = 1;
  std::int64_t expert_tensor = 1;  // of those of tensor parallelism, over which experts are split
  bool operator==(const Degrees&) const = default;
};

class AxisRoles {
 public:
  AxisRoles(const SaidPlan& plan, std::size_t stage);

  const AxisUse* of(const std::string& axis) const;  // null: no axis of the stage
  Degrees degrees() const;
  // Axes over which most products do the same everywhere.
  const std::vector<std::string>& idle() const { return idle_; }

 private:
  std::map<std::string, AxisUse> uses_;
  std::vector<std::string> idle_;
};

// Sentences about products that are split otherwise than those of their kind in other layers, or
// than columns and rows in turn. `roles`: by stage.
std::vector<std::string> product_deviations(const SaidPlan& plan, const Layers& layers,
                                            const std::vector<AxisRoles>& roles);

// Whether what is added to residuals is split over the devices of tensor parallelism along the
// sequence; and what does otherwise than most.
struct SequenceUse {
  bool is_split = false;
  std::vector<std::string> deviations;
};
SequenceUse sequence_use(const SaidPlan& plan, const std::vector<AxisRoles>& roles);

// "a, b, c and 4 more".
std::string listed_names(const std::vector<std::string>& names);
std::size_t stage_of_chunk(const SaidPlan& plan, std::size_t chunk);
std::string split_counts_text(const SplitCounts& counts);  // "[[8,1,1],[1,8]]"

}  // namespace autopar
