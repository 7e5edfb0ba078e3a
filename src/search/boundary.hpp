// What --inputs, --outputs and tensor pins leave free of a value's specs.
#pragma once

#include "search/pins.hpp"

namespace autopar {

// Whether the layout, not the search, says how an input (or output) lies. One for all inputs is
// about data: parameters lie as is best.
bool is_fixed_input(const BoundaryLayout& layout, const Value& value);
bool is_fixed_output(const BoundaryLayout& layout, const Value& value);

// `is_input`: a graph input, not a parameter that the model's file holds.
// Each narrows `specs`; errors (kInput) where nothing is left, naming the value and the wish.
Status restrict_source(const SearchRequest& request, const KeptPins& pins, ValueId value,
                       bool is_input, const Mesh& mesh, std::vector<Spec>& specs);
void restrict_hub(const KeptPins& pins, ValueId value, std::vector<Spec>& specs);
Status restrict_output(const SearchRequest& request, const KeptPins& pins, ValueId value,
                       const Mesh& mesh, std::vector<Spec>& specs);

}  // namespace autopar
