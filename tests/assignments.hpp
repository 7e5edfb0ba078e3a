// For tests: assignments by the names of factors, and the specs that they give as text.
#pragma once

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ops.hpp"

namespace autopar::testing {

inline Assignment assigned(const Rule& rule, const std::vector<std::string>& factors) {
  Assignment assignment;
  for (const std::string& name : factors) {
    assignment.factor_of_axis.push_back(name.empty() ? -1 : rule.factor_index(name));
    REQUIRE((name.empty() || assignment.factor_of_axis.back() >= 0));
  }
  return assignment;
}

inline std::string specs_text(const std::optional<OpSpecs>& specs, const Mesh& mesh) {
  if (!specs) return "not valid";
  std::string text;
  for (const Spec& spec : specs->inputs) text += to_text(spec, mesh) + " ";
  text += "->";
  for (const Spec& spec : specs->outputs) text += " " + to_text(spec, mesh);
  return text;
}

}  // namespace autopar::testing
