// Blocks of dense row-major tensors: what a rank holds of a whole tensor, and copies of blocks.
#pragma once

#include <cstddef>
#include <string>

#include "autopar/layout.hpp"

namespace autopar {

// Where a block of `extent` elements per dimension lies in a tensor.
struct Placement {
  Shape shape;   // of the tensor
  Shape offset;  // first index of the block per dimension
};

// Copies a block from one tensor to another. Precondition: it lies within both.
void copy_block(const Shape& extent, std::size_t element_size, const void* from,
                const Placement& from_place, void* to, const Placement& to_place);

// A rank's slice of a whole tensor: a view where the slice is contiguous, else a copy.
class Slice {
 public:
  Slice(const Tensor& whole, const Spec& spec, const Mesh& mesh, std::int64_t rank);
  // The same of a tensor whose bytes are taken as of this shape.
  Slice(const Tensor& whole, const Shape& shape, const Spec& spec, const Mesh& mesh,
        std::int64_t rank);
  const Shape& shape() const { return shape_; }
  const void* data() const { return view_ != nullptr ? view_ : copy_.data(); }
  std::size_t size() const { return size_; }  // bytes

 private:
  Shape shape_;
  const char* view_ = nullptr;
  std::string copy_;
  std::size_t size_ = 0;
};

// Writes a rank's slice into the whole tensor.
void put_slice(const void* slice, const Spec& spec, const Mesh& mesh, std::int64_t rank,
               Tensor& whole);

}  // namespace autopar
