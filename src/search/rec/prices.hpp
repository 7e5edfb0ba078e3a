// What it costs on one axis to get a value from one role to another.
#pragma once

#include <map>

#include "autopar/cost.hpp"
#include "search/rec/level.hpp"

namespace autopar::rec {

// The role of a value on one axis.
inline constexpr int kWhole = 0;
inline constexpr int kPartial = 1;
inline constexpr int kSplit = 2;  // + the dimension
int role_on(const Spec& spec, int axis);

// From role to role, and what is priced: a number that tells tables apart.
struct RoleTable {
  int id = -1;
  std::vector<Row> from;
  const Row& operator[](std::size_t role) const { return from[role]; }
  std::size_t size() const { return from.size(); }
};

// Only the kind of a move and the size of the value matter on one axis, so a square stands for
// every shape: prices are asked once per size.
class RolePrices {
 public:
  // `model` prices a mesh of one axis.
  explicit RolePrices(CostModel& model) : model_(model) {}
  // `elements`: of the part of the value that the earlier cuts left.
  // Stays where it is.
  const RoleTable& table(std::size_t rank, DType dtype, double elements);

 private:
  CostModel& model_;
  std::map<std::tuple<double, std::size_t, DType>, RoleTable> tables_;
};

}  // namespace autopar::rec
