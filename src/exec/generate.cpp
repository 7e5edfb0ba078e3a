#include "exec/generate.hpp"

#include <algorithm>
#include <cstring>

#include "ir/half.hpp"

namespace autopar {

namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Sums of integers below 2^20, so every step is exact.
double normal(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t sum = 0;
  for (std::uint64_t k = 1; k <= 3; ++k) {
    const std::uint64_t bits = mix(stream + (3 * index + k) * kGolden);
    sum += (bits & 0xffffu) + ((bits >> 16) & 0xffffu) + ((bits >> 32) & 0xffffu) + (bits >> 48);
  }
  return (static_cast<double>(sum) - 6.0 * 65535.0) / 65536.0;
}

// The elements of a block of a row-major tensor, row by row.
struct TensorBlock {
  const Shape& whole;
  const Shape& offset;
  const Shape& extent;
};

// Calls use(first, count) for every row of the block: the index of its first element in the whole
// tensor, and how many there are.
template <class Use>
void for_each_row(const TensorBlock& block, Use use) {
  const std::size_t dims = block.whole.size();
  if (element_count(block.extent) == 0) return;
  const std::int64_t count = dims == 0 ? 1 : block.extent.back();
  Shape index(dims, 0);
  while (true) {
    std::int64_t first = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      first = first * block.whole[d] + block.offset[d] + index[d];
    }
    use(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    std::size_t d = dims == 0 ? 0 : dims - 1;
    while (d > 0 && ++index[d - 1] == block.extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

template <class T, class Element>
void fill(std::string& bytes, const TensorBlock& block, Element element) {
  char* to = bytes.data();
  for_each_row(block, [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i, to += sizeof(T)) {
      const T value = static_cast<T>(element(i));
      std::memcpy(to, &value, sizeof(T));
    }
  });
}

}  // namespace

Tensor generate(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed,
                const Distribution& distribution) {
  return generate_block(name, dtype, shape, seed, distribution, Shape(shape.size(), 0), shape);
}

Tensor generate_block(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed,
                      const Distribution& distribution, const Shape& offset, const Shape& extent) {
  const TensorBlock block{shape, offset, extent};
  Tensor tensor{dtype, extent, {}};
  tensor.bytes.resize(static_cast<std::size_t>(element_count(extent) * size_of(dtype)));
  const std::uint64_t stream = mix(mix(seed + kGolden) ^ fnv1a(name));
  const auto real = [&](std::size_t i) {
    return distribution.mean + distribution.deviation * normal(stream, i);
  };
  const auto lowest = static_cast<std::uint64_t>(distribution.mean);
  // The upper half of the product with a 32-bit fraction; of two indices its first bit.
  const auto index = [&](std::size_t i, std::uint64_t most) {
    const auto count = std::min(static_cast<std::uint64_t>(distribution.indices), most - lowest);
    return lowest + (((mix(stream + (i + 1) * kGolden) >> 32) * count) >> 32);
  };
  switch (dtype) {
    case DType::kFloat32:
      fill<float>(tensor.bytes, block, [&](std::size_t i) { return static_cast<float>(real(i)); });
      break;
    case DType::kFloat64:
      fill<double>(tensor.bytes, block, real);
      break;
    case DType::kFloat16:
      fill<std::uint16_t>(tensor.bytes, block, [&](std::size_t i) {
        return float16_of_float(static_cast<float>(real(i)));
      });
      break;
    case DType::kBFloat16:
      fill<std::uint16_t>(tensor.bytes, block, [&](std::size_t i) {
        return bfloat16_of_float(static_cast<float>(real(i)));
      });
      break;
    case DType::kBool:
      fill<std::uint8_t>(tensor.bytes, block, [&](std::size_t i) { return index(i, 2); });
      break;
    case DType::kInt8:
    case DType::kUInt8:
      fill<std::uint8_t>(tensor.bytes, block, [&](std::size_t i) { return index(i, 1 << 7); });
      break;
    case DType::kInt16:
    case DType::kUInt16:
      fill<std::uint16_t>(tensor.bytes, block, [&](std::size_t i) { return index(i, 1 << 15); });
      break;
    case DType::kInt32:
    case DType::kUInt32:
      fill<std::uint32_t>(tensor.bytes, block, [&](std::size_t i) { return index(i, 1u << 31); });
      break;
    case DType::kInt64:
    case DType::kUInt64:
      fill<std::uint64_t>(tensor.bytes, block, [&](std::size_t i) { return index(i, 1u << 31); });
      break;
  }
  return tensor;
}

}  // namespace autopar
