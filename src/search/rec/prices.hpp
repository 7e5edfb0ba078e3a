// What it costs on one axis to get a value from one role to another.
#pragma once

#include <map>
#include <memory>

#include "autopar/cost.hpp"
#include "search/rec/level.hpp"

namespace autopar::rec {

// The role of a value on one axis.
inline constexpr int kWhole = 0;
inline constexpr int kPartial = 1;
inline constexpr int kSplit = 2;  // + the dimension
int role_on(const Spec& spec, int axis);

// Stands for a price that is infinite: dearer than anything, and still a number to calculate with.
inline constexpr double kNever = 1e18;

// From role to role.
using RoleTable = std::vector<Row>;

// Only the kind of a move and the size of the value matter on one axis, so a square stands for
// every shape: prices are asked once per size.
class RolePrices {
 public:
  // `model` prices a mesh of one axis.
  explicit RolePrices(CostModel& model) : model_(model) {}
  // `elements`: of the part of the value that the earlier cuts left.
  std::shared_ptr<const RoleTable> table(std::size_t rank, DType dtype, double elements);

 private:
  CostModel& model_;
  std::map<std::tuple<std::size_t, DType, double>, std::shared_ptr<const RoleTable>> tables_;
};

}  // namespace autopar::rec
