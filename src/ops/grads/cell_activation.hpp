// The activations of recurrent cells, named by attributes of LSTM, GRU and RNN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/builder.hpp"

namespace autopar {

struct CellActivation {
  std::string type;  // lower case
  double alpha = 0, beta = 0;

  ValueId value(GraphBuilder& to, ValueId x) const;
  // The derivative; `y` is the value at `x`.
  ValueId slope(GraphBuilder& to, ValueId x, ValueId y) const;
};

// All that the op names, direction by direction; `defaults` are those of one direction. Nothing
// where one is not known.
std::optional<std::vector<CellActivation>> cell_activations(
    const Op& op, const std::vector<std::string>& defaults, std::size_t directions);

}  // namespace autopar
