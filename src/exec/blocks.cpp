#include "exec/blocks.hpp"

#include <cstring>

namespace autopar {

namespace {

std::vector<std::size_t> byte_strides(const Shape& shape, std::size_t element_size) {
  std::vector<std::size_t> strides(shape.size());
  std::size_t stride = element_size;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<std::size_t>(shape[d]);
  }
  return strides;
}

std::size_t start_of(const Placement& place, const std::vector<std::size_t>& strides) {
  std::size_t start = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    start += static_cast<std::size_t>(place.offset[d]) * strides[d];
  }
  return start;
}

// The first dimension from which on the block is one run of bytes in a tensor of this shape.
std::size_t run_begin(const Shape& extent, const Shape& shape) {
  std::size_t d = shape.size();
  while (d > 0 && extent[d - 1] == shape[d - 1]) --d;
  return d > 0 ? d - 1 : 0;
}

}  // namespace

void copy_block(const Shape& extent, std::size_t element_size, const void* from,
                const Placement& from_place, void* to, const Placement& to_place) {
  if (element_count(extent) == 0) return;
  const auto from_strides = byte_strides(from_place.shape, element_size);
  const auto to_strides = byte_strides(to_place.shape, element_size);
  const char* source = static_cast<const char*>(from) + start_of(from_place, from_strides);
  char* target = static_cast<char*>(to) + start_of(to_place, to_strides);

  const std::size_t outer =
      std::max(run_begin(extent, from_place.shape), run_begin(extent, to_place.shape));
  std::size_t run = element_size;
  for (std::size_t d = outer; d < extent.size(); ++d) run *= static_cast<std::size_t>(extent[d]);

  Shape index(outer, 0);
  while (true) {
    std::memcpy(target, source, run);
    std::size_t d = outer;
    while (d > 0) {
      --d;
      source += from_strides[d];
      target += to_strides[d];
      if (++index[d] < extent[d]) break;
      source -= from_strides[d] * static_cast<std::size_t>(extent[d]);
      target -= to_strides[d] * static_cast<std::size_t>(extent[d]);
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

Slice::Slice(const Tensor& whole, const Spec& spec, const Mesh& mesh, std::int64_t rank)
    : Slice(whole, whole.shape, spec, mesh, rank) {}

Slice::Slice(const Tensor& whole, const Shape& shape, const Spec& spec, const Mesh& mesh,
             std::int64_t rank)
    : shape_(local_shape(spec, shape, mesh)) {
  const auto element_size = static_cast<std::size_t>(size_of(whole.dtype));
  size_ = static_cast<std::size_t>(element_count(shape_)) * element_size;
  const Shape offset = slice_offsets(spec, shape, mesh, rank);
  const std::size_t run = run_begin(shape_, shape);
  bool contiguous = true;
  for (std::size_t d = 0; d < run; ++d) contiguous = contiguous && shape_[d] == 1;
  if (contiguous) {
    view_ = whole.bytes.data() + start_of({shape, offset}, byte_strides(shape, element_size));
    return;
  }
  copy_.resize(size_);
  copy_block(shape_, element_size, whole.bytes.data(), {shape, offset}, copy_.data(),
             {shape_, Shape(shape_.size(), 0)});
}

void put_slice(const void* slice, const Spec& spec, const Mesh& mesh, std::int64_t rank,
               Tensor& whole) {
  const Shape extent = local_shape(spec, whole.shape, mesh);
  copy_block(extent, static_cast<std::size_t>(size_of(whole.dtype)), slice,
             {extent, Shape(extent.size(), 0)}, whole.bytes.data(),
             {whole.shape, slice_offsets(spec, whole.shape, mesh, rank)});
}

}  // namespace autopar
