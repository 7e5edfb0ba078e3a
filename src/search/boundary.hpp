// What --inputs, --outputs and tensor pins leave free of a value's specs.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// `is_input`: a graph input, not a parameter that the model's file holds.
// `only_reader`: nobody else reads the value, so that its hub is its output.
// Each narrows `specs`; errors (kInput) where nothing is left, naming the value and the wish.
Status restrict_source(const SearchRequest& request, const Value& value, bool is_input,
                       const Mesh& mesh, std::vector<Spec>& specs);
Status restrict_hub(const SearchRequest& request, const Value& value, const Mesh& mesh,
                    std::vector<Spec>& specs);
Status restrict_output(const SearchRequest& request, const Value& value, bool only_reader,
                       const Mesh& mesh, std::vector<Spec>& specs);

}  // namespace autopar
