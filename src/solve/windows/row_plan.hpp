// Which rows need to be told apart while the nodes are taken one after the other.
//
// Rows that the uses still to come cover alike stay apart by no more than their least room, so they
// are one *class* from then on. Rows that all uses so far covered alike differ by a constant, so
// their classes share one *variable*. Parameters use all rows and activations a few near their
// time: in an order that follows time two or three variables are left, however many rows there are.
#pragma once

#include <utility>
#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// What is used in some rows, the same in each.
struct RowsUsed {
  std::vector<std::pair<int, int>> rows = {};  // [begin, end); apart
};

// Room is what is left of a row's capacity. A class's room is its offset plus its variable.
struct RowPlan {
  struct Part {    // what a variable becomes by the uses of a step that cover the same rows
    int from = 0;  // variable before
    std::vector<int> uses;  // of the step, to be taken off
  };
  struct Variable {                                     // after the step: the least of these
    std::vector<std::pair<int, double>> least_of = {};  // part, offset
  };
  struct Step {
    std::vector<Part> parts = {};
    std::vector<Variable> variables = {};
    std::vector<int> part_of = {};      // per class before
    std::vector<int> class_after = {};  // per class before
    // Per class after.
    std::vector<int> variable_of = {};
    Vector offset = {}, price = {};
  };
  std::vector<Step> steps;
};

// The uses of the steps. At first there is one variable, which is 0.
// Source: partition refinement from the last step to the first; O(uses x rows).
RowPlan plan_rows(const std::vector<std::vector<RowsUsed>>& uses, const Vector& capacity,
                  const Vector& multiplier);

}  // namespace autopar::solver
