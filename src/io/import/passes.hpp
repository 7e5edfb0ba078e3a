// Normalisation: passes over the graph, in the order in which normalise() runs them. Each leaves a
// graph that verify() accepts, except that dead values stay until remove_dead_code().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// What a pass needs to add to a graph: fresh names and a place for warnings.
struct Normalisation {
  Graph& graph;
  Names value_names;
  Names op_names;
  std::vector<std::string> warnings;

  ValueId add_constant(Tensor tensor, const std::string& stem);
  // A value that an op of the new list produces.
  ValueId add_activation(DType dtype, Shape shape, const std::string& stem);
};

// Every graph output is produced by an op: an Identity where it is an input or a constant.
void produce_outputs(Normalisation& n);
// Identity, inference-mode Dropout, and reshapes, casts, ... that change nothing. A graph output
// keeps its name.
void remove_identities(Normalisation& n);
// Gemm -> Gemm [Mul] [Add]: the product alone, with the operands as the user stores them, then what
// is added. The product has the user's name; the others are "<name>/scale", "<name>/add".
void split_gemms(Normalisation& n);
// Einsums whose operands have one size, or all 1, at each letter: dimensions of 1 that are
// broadcast leave their operand by a Reshape before it.
void squeeze_einsums(Normalisation& n);
// What an Einsum of any operands makes, broadcasting as runtimes do. Nothing where they do not fit
// the equation.
std::optional<Shape> einsum_shape(const std::string& equation, const std::vector<Shape>& operands);
// Squeeze, Unsqueeze, Flatten and Reshape -> Reshape; its target and that of Expand are constants
// without 0 or -1.
void make_shapes_explicit(Normalisation& n);
// Axes, permutations, split sizes and slice bounds are there and not negative.
void make_operands_explicit(Normalisation& n);
// One value per distinct constant.
void merge_constants(Normalisation& n);
// Drops what no graph output needs, and renumbers. Graph inputs stay.
void remove_dead_code(Normalisation& n);

// All of the above. Returns warnings.
std::vector<std::string> normalise(Graph& graph);

// Replaces the list of ops and sets the producers anew.
void replace_ops(Graph& graph, std::vector<Op> ops);

}  // namespace autopar
