// One NumPy array file (.npy), the entries of an .npz archive. Format: NumPy's NEP 1.
#pragma once

#include <string>
#include <string_view>

#include "autopar/ir.hpp"

namespace autopar {

// Errors say what is wrong with the bytes, not where they come from.
Result<Tensor> parse_npy(std::string_view bytes);
std::string npy_bytes(const Tensor& tensor);

}  // namespace autopar
