// Checks of the shapes that ops read, by family, and what the families share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/import/shape_patterns.hpp"

namespace autopar {

// By op type.
using ShapeChecks = std::map<std::string_view, Status (*)(ShapeCheck&)>;

// The families: convolutions, pooling and other ops that take kernels or blocks of an image; ops
// that move elements or look them up. shape_check.cpp has all others.
const ShapeChecks& image_checks();
const ShapeChecks& indexing_checks();

// Inputs in order; an empty pattern is that of an input that nothing is said of.
Status match_all(ShapeCheck& check, const std::vector<std::string>& patterns);

// Where an op's axis lies, for ops whose axis ONNX takes as it is.
Result<std::size_t> axis_in_range(const ShapeCheck& check, std::int64_t otherwise);

}  // namespace autopar
