// Tensors in pieces that lie in files, and how their bytes get from some pieces to others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/weights.hpp"

namespace autopar {

// A block of a tensor: first index and number of elements per dimension.
struct Box {
  Shape offset;
  Shape extent;
  auto operator<=>(const Box&) const = default;
};
Box whole_box(const Shape& shape);
// What a rank holds.
Box box_of(const BoundaryValue& value, const Mesh& mesh, std::int64_t rank);

// Dense row-major bytes: in a file, or in memory where there is no path.
struct Place {
  std::string path = {};
  Bytes offset = 0;
  const char* memory = nullptr;
  std::int64_t rank = 0;  // whose it is; of whole tensors 0
};
struct Piece {
  Box box;
  std::vector<Place> places;  // that hold the same, never empty
};
// The pieces cover the tensor; their boxes differ.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<Piece> pieces = {};
  std::shared_ptr<const std::string> held = {};  // what a place in memory points into
  std::optional<DType> narrow = {};  // a step reads the float32 values in 16 bits of that type

  Bytes bytes() const { return element_count(shape) * size_of(dtype); }
};
using StoredTensors = std::map<std::string, StoredTensor>;

// Gets some bytes of box number `box`, `at` bytes from its start.
using Sink = std::function<Status(std::size_t box, Bytes at, std::string_view bytes)>;
// Cuts a tensor anew: gives the bytes of all boxes, which have one extent, in blocks. Rows that
// several boxes have parts of are read once. Memory: `buffer_bytes`, but 128 KiB per piece at least
// (less where the buffer is less). Errors: a file that cannot be read, boxes that the pieces do not
// cover.
Status cut(const StoredTensor& tensor, const std::vector<Box>& boxes, const Sink& sink,
           Bytes buffer_bytes = kWeightBufferBytes);

// The same in the type in which a step reads the tensor.
Status cut_as_read(const StoredTensor& tensor, const std::vector<Box>& boxes, const Sink& sink);

// The whole tensor in memory.
Result<Tensor> read_tensor(const StoredTensor& tensor);

// Whether all places of each piece hold the same. Error (kComparison): tensor and ranks.
Status check_places(const StoredTensor& tensor);

// Reads exactly `bytes.size()` bytes.
Status read_bytes(const std::string& path, Bytes offset, char* bytes, Bytes size);
Status write_bytes(const std::string& path, Bytes offset, std::string_view bytes);
// A new file of that size; its blocks are reserved, where the file system can do that, so that a
// full disk shows now.
Status reserve_file(const std::string& path, Bytes size);

}  // namespace autopar
