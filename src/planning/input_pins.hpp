// What a strategy file pins, on the graph that is searched.
#pragma once

#include <string>

#include "planning/inputs.hpp"

namespace autopar {

// "data_parallel", "replicate" or "search".
Result<Fill> parse_fill(const std::string& name);

// Pins of a strategy file, by the names of the graph; the mesh of the file, where it has one,
// becomes the request's unless --mesh says otherwise. Errors (kInput): a mesh that the cluster does
// not have; an op that was removed at import, of another type, or a Gemm that cannot be cut so.
Status add_pins(const StrategyFile& file, const Inputs& inputs, SearchRequest& request);

// Of what is made when a step, or a part of it, is planned, repeated ops, those that hand on hubs,
// and their values, the name of what it is made of ("fc1.again": "fc1", "norm.again.mean": "norm");
// else the name.
std::string base_of(const std::string& name);
// Leaves out pins of such as the graph does not have.
void drop_unmade(const Graph& graph, Pins& pins);

// Pins what a complete file does not say of a tensor, since it is as what it says: its hub is its
// spec, and an output leaves as its hub, unless --outputs says how. After the hub ops of the file
// are there.
void complete_pins(const StrategyFile& file, SearchRequest& request);

// The error of a search that pins cannot be kept in, with the name of their file.
Error with_pin_file(Error error, const std::string& path);

}  // namespace autopar
