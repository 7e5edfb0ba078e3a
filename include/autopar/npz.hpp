// NumPy's .npz files: named arrays in a zip archive (deflated or stored).
//
//   auto arrays = read_npz("io.npz");       // {"in.X": Tensor, "out.Y": Tensor}
//   write_npz("copy.npz", *arrays);
//
// Types: float16, float32, float64, bool and the integers of 8 to 64 bits; bfloat16 is what
// NumPy's extension types write, a two-byte void ("V2"). Arrays in big-endian or Fortran order are
// brought to little-endian row-major order.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "autopar/ir.hpp"

namespace autopar {

// Names are without the ".npy" of the archive's entries. Errors (kInput) name the file and the
// array: no zip archive, damaged or truncated data, a type that has no counterpart, two arrays of
// one name.
Result<std::map<std::string, Tensor>> read_npz(const std::string& path);
// One array, the others unread; nothing where the file has none of that name.
Result<std::optional<Tensor>> read_npz_array(const std::string& path, const std::string& name);

// Writes the arrays uncompressed, by name; the same arrays give the same bytes. The file is
// complete or not there, its folder is made. At least one array.
Status write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays);

}  // namespace autopar
