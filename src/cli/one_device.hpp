// A program on one device is its own local program: nothing is split, values lie whole.
#pragma once

#include "autopar/strategy.hpp"

namespace autopar::cli {

Mesh one_device();
Strategy unsharded_strategy(const Graph& graph);

struct OnOneDevice {
  GraphRules rules;
  Strategy strategy;
};

OnOneDevice on_one_device(const Graph& program);

}  // namespace autopar::cli
