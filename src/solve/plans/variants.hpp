// Parts of a network that can choose apart: labellings that were met differ in some nodes only, and
// these fall into parts without edges between them.
//
//   pool: every layer keeps its weights, or none does
//   parts: one per layer; its variants: keeps, keeps not
//
// What is met in one layer is a variant of the like layers too.
#pragma once

#include <vector>

#include "solve/bound/fold.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

// What is used during rows [begin, end).
struct Amount {
  int begin = 0;
  int end = 0;
  double bytes = 0;
};

struct Variant {
  Labels labels;  // of the part's nodes
  double cost = 0;
  std::vector<Amount> uses = {};  // ascending, apart; above what all variants of the part use
};

struct Part {
  std::vector<int> nodes = {};
  std::vector<Variant> variants = {};  // no two alike; the first has the base's labels
};

// Choices of one variant per part cost `cost` + theirs, and use of a row `used` + theirs.
struct Parts {
  std::vector<int> base = {};  // labels of the nodes that are in no part
  double cost = 0;
  Vector used = {};
  std::vector<Part> parts = {};
};

// The pool's labellings have a finite value. Differences that would make a large part of the whole
// one part stay out. Adds the numbers it looked at to `work`. `net` has no multipliers.
Parts split_into_parts(const Network& net, const Fold& like, const std::vector<int>& base,
                       const std::vector<std::vector<int>>& pool, double& work);

// The labelling in which each part has the given variant.
std::vector<int> labels_of(const Parts& parts, const std::vector<int>& variants);

}  // namespace autopar::solver
