#include "solve/windows/row_plan.hpp"

#include <algorithm>
#include <map>

namespace autopar::solver {
namespace {

struct Classes {
  std::vector<int> of_row;
  int count = 0;
};

// Splits the classes by what covers their rows. Returns, per class, the class that it was part of
// and the uses that cover it.
struct Refined {
  std::vector<int> parent;
  std::vector<std::vector<int>> uses;
};
Refined refine(Classes& classes, const std::vector<RowsUsed>& uses) {
  Refined result;
  result.parent.resize(at(classes.count));
  for (int c = 0; c < classes.count; ++c) result.parent[at(c)] = c;
  result.uses.resize(at(classes.count));
  for (std::size_t u = 0; u < uses.size(); ++u) {
    std::vector<int> inside(at(classes.count), 0), outside(at(classes.count), 0);
    std::vector<char> used(classes.of_row.size(), 0);
    for (const auto& [begin, end] : uses[u].rows) {
      for (int r = begin; r < end; ++r) used[at(r)] = 1;
    }
    for (std::size_t r = 0; r < used.size(); ++r) {
      (used[r] ? inside : outside)[at(classes.of_row[r])] = 1;
    }
    std::vector<int> covered(at(classes.count), -1);  // the class of the rows inside
    for (int c = 0, before = classes.count; c < before; ++c) {
      if (!inside[at(c)]) continue;
      covered[at(c)] = c;
      if (outside[at(c)]) {
        covered[at(c)] = classes.count++;
        result.parent.push_back(result.parent[at(c)]);
        result.uses.push_back(result.uses[at(c)]);
      }
      result.uses[at(covered[at(c)])].push_back(static_cast<int>(u));
    }
    for (std::size_t r = 0; r < used.size(); ++r) {
      if (used[r]) classes.of_row[r] = covered[at(classes.of_row[r])];
    }
  }
  return result;
}

// What is known of the classes before the first step, as if it were known after one.
RowPlan::Step at_first(const Classes& classes, const Vector& capacity, const Vector& multiplier) {
  RowPlan::Step first;
  first.variable_of.assign(at(classes.count), 0);
  first.offset.assign(at(classes.count), kInfinity);
  first.price.assign(at(classes.count), 0.0);
  for (std::size_t r = 0; r < capacity.size(); ++r) {
    const std::size_t c = at(classes.of_row[r]);
    first.offset[c] = std::min(first.offset[c], capacity[r]);
    first.price[c] += multiplier[r];
  }
  if (capacity.empty()) first.offset.assign(1, 0.0);
  return first;
}

RowPlan::Step next_step(const Refined& refined, int classes_after, const RowPlan::Step& before) {
  RowPlan::Step step;
  std::map<std::pair<int, std::vector<int>>, int> parts;
  for (std::size_t c = 0; c < refined.parent.size(); ++c) {
    const auto [part, added] =
        parts.emplace(std::pair(before.variable_of[c], refined.uses[c]), step.parts.size());
    if (added) step.parts.push_back({before.variable_of[c], refined.uses[c]});
    step.part_of.push_back(part->second);
  }
  step.class_after = refined.parent;
  step.price.assign(at(classes_after), 0.0);
  std::vector<std::map<int, double>> least(at(classes_after));  // offset by part
  for (std::size_t c = 0; c < refined.parent.size(); ++c) {
    const std::size_t after = at(refined.parent[c]);
    const auto [offset, added] = least[after].emplace(step.part_of[c], before.offset[c]);
    if (!added) offset->second = std::min(offset->second, before.offset[c]);
    step.price[after] += before.price[c];
  }
  // Classes whose variables would differ by a constant share one.
  std::map<std::vector<std::pair<int, double>>, int> variables;
  for (const std::map<int, double>& parts_of : least) {
    RowPlan::Variable variable;
    const double offset = parts_of.begin()->second;
    for (const auto& [part, its] : parts_of) variable.least_of.emplace_back(part, its - offset);
    const auto [known, added] = variables.emplace(variable.least_of, step.variables.size());
    if (added) step.variables.push_back(std::move(variable));
    step.variable_of.push_back(known->second);
    step.offset.push_back(offset);
  }
  return step;
}

}  // namespace

RowPlan plan_rows(const std::vector<std::vector<RowsUsed>>& uses, const Vector& capacity,
                  const Vector& multiplier) {
  Classes classes = {std::vector<int>(capacity.size(), 0), 1};
  std::vector<Refined> refined(uses.size());
  std::vector<int> count_after(uses.size());
  for (std::size_t i = uses.size(); i-- > 0;) {
    count_after[i] = classes.count;
    refined[i] = refine(classes, uses[i]);
  }
  RowPlan plan;
  const RowPlan::Step first = at_first(classes, capacity, multiplier);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const RowPlan::Step& before = i == 0 ? first : plan.steps.back();
    plan.steps.push_back(next_step(refined[i], count_after[i], before));
  }
  return plan;
}

}  // namespace autopar::solver
