// From the pieces of a tensor to other pieces of it, block by block.
//
// A block is a range of one dimension, all of the dimensions after it and one index of those
// before: contiguous in every box, and of every piece a contiguous range of rows. All boxes' blocks
// at one place are made before the next place, in the order of the boxes' offsets, so a piece is
// read from its start to its end, once where its rows pass by once. Pieces and boxes meet dimension
// by dimension, as in Prylli and Tourancheau, "Fast runtime block cyclic data redistribution on
// multiprocessors" (1997). Time: bytes of the boxes + boxes * pieces * dimensions.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "ir/half.hpp"
#include "weights/tensors.hpp"

namespace autopar {
namespace {

constexpr Bytes kLeastBlock = Bytes{64} << 10;
constexpr Bytes kMostBlock = Bytes{8} << 20;

Shape strides_of(const Shape& extent) {
  Shape strides(extent.size(), 1);
  for (std::size_t d = extent.size(); d-- > 1;) strides[d - 1] = strides[d] * extent[d];
  return strides;
}

std::int64_t dot(const Shape& a, const Shape& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), std::int64_t{0});
}

// Nothing where they do not meet.
std::optional<Box> meet(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) return std::nullopt;
    both.offset[d] = begin;
    both.extent[d] = end - begin;
  }
  return both;
}

Shape minus(const Shape& a, const Shape& b) {
  Shape result = a;
  for (std::size_t d = 0; d < a.size(); ++d) result[d] -= b[d];
  return result;
}

// A copy of a block between two dense arrays; strides in bytes.
struct StridedCopy {
  Shape extent, from_strides, to_strides;
  std::size_t outer = 0;  // dimensions before those that are one run in both
  Bytes run = 0;

  StridedCopy(const Shape& block, const Shape& from, const Shape& to, Bytes element)
      : extent(block), from_strides(from), to_strides(to), outer(block.size()), run(element) {
    for (std::size_t d = 0; d < block.size(); ++d) {
      from_strides[d] *= element;
      to_strides[d] *= element;
    }
    while (outer > 0 && (extent[outer - 1] == 1 ||
                         (from_strides[outer - 1] == run && to_strides[outer - 1] == run))) {
      run *= extent[--outer];
    }
  }
  void copy(const char* from, char* to, std::size_t d = 0) const {
    if (d == outer) {
      std::memcpy(to, from, static_cast<std::size_t>(run));
      return;
    }
    for (std::int64_t i = 0; i < extent[d]; ++i) {
      copy(from + i * from_strides[d], to + i * to_strides[d], d + 1);
    }
  }
};

// A piece and what of it is in memory.
class Source {
 public:
  explicit Source(const Piece& piece)
      : box(piece.box), strides(strides_of(box.extent)), place_(piece.places[0]) {}

  // The bytes from `begin` to `end` of the piece.
  Result<const char*> view(Bytes begin, Bytes end) {
    if (place_.memory != nullptr) return place_.memory + place_.offset + begin;
    if (begin < begin_ || end > begin_ + static_cast<Bytes>(window_.size())) {
      window_.resize(static_cast<std::size_t>(end - begin));
      begin_ = begin;
      if (Status read = read_bytes(place_.path, place_.offset + begin, window_.data(), end - begin);
          !read) {
        window_.clear();
        return read.error();
      }
    }
    return window_.data() + (begin - begin_);
  }

  Box box;
  Shape strides;

 private:
  Place place_;
  Bytes begin_ = 0;
  std::vector<char> window_;
};

class Cutter {
 public:
  Cutter(const StoredTensor& tensor, const std::vector<Box>& boxes, const Sink& sink,
         Bytes buffer_bytes)
      : tensor_(tensor), boxes_(boxes), sink_(sink), element_(size_of(tensor.dtype)) {
    for (const Piece& piece : tensor.pieces) sources_.emplace_back(piece);
    if (tensor.shape.empty()) {  // a scalar is a vector of one element
      for (Source& source : sources_) source.box = {{0}, {1}}, source.strides = {1};
      for (Box& box : boxes_) box = {{0}, {1}};
    }
    order_.resize(boxes_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return boxes_[a].offset < boxes_[b].offset;
    });
    extent_ = boxes_[0].extent;
    strides_ = strides_of(extent_);
    meeting_.resize(boxes_.size());
    for (std::size_t b = 0; b < boxes_.size(); ++b) {
      AUTOPAR_CHECK(boxes_[b].extent == extent_, "boxes of one extent");
      for (std::size_t s = 0; s < sources_.size(); ++s) {
        if (meet(boxes_[b], sources_[s].box)) meeting_[b].push_back(s);
      }
    }
    choose_blocks(buffer_bytes);
  }

  Status run() {
    Box block{Shape(extent_.size(), 0), Shape(extent_.size(), 1)};
    for (std::size_t d = cut_ + 1; d < extent_.size(); ++d) block.extent[d] = extent_[d];
    while (true) {
      for (std::int64_t at = 0; at < extent_[cut_]; at += rows_) {
        block.offset[cut_] = at;
        block.extent[cut_] = std::min(rows_, extent_[cut_] - at);
        for (std::size_t b : order_) AUTOPAR_RETURN_IF_ERROR(make(b, block));
      }
      block.offset[cut_] = 0;
      std::size_t d = cut_;
      while (d > 0 && ++block.offset[d - 1] == extent_[d - 1]) block.offset[--d] = 0;
      if (d == 0) return Ok{};
    }
  }

 private:
  // The outermost dimension of which one index is small enough, and how many of them are.
  void choose_blocks(Bytes buffer_bytes) {
    const auto pieces = static_cast<Bytes>(sources_.size()) + 1;
    const Bytes limit =
        std::clamp(buffer_bytes / pieces, std::min(kLeastBlock, buffer_bytes), kMostBlock);
    for (cut_ = 0;; ++cut_) {
      std::int64_t unit = strides_[cut_];
      for (const Source& source : sources_) unit = std::max(unit, source.strides[cut_]);
      rows_ = limit / (unit * element_);
      if (rows_ > 0) return;
      AUTOPAR_CHECK(cut_ + 1 < extent_.size(), "an element is smaller than a block");
    }
  }

  // `block` counts from the start of a box.
  Status make(std::size_t b, const Box& block) {
    buffer_.resize(static_cast<std::size_t>(element_count(block.extent) * element_));
    Box wanted = block;
    for (std::size_t d = 0; d < wanted.offset.size(); ++d) wanted.offset[d] += boxes_[b].offset[d];
    std::int64_t found = 0;
    for (std::size_t s : meeting_[b]) {
      const std::optional<Box> both = meet(wanted, sources_[s].box);
      if (!both) continue;
      found += element_count(both->extent);
      AUTOPAR_RETURN_IF_ERROR(fill(sources_[s], *both, wanted));
    }
    if (found != element_count(block.extent)) {
      return input_error("weight '" + tensor_.name + "' " + to_text(tensor_.shape) +
                         ": its slices do not cover it");
    }
    return sink_(b, dot(block.offset, strides_) * element_, {buffer_.data(), buffer_.size()});
  }

  // Reads whole rows, so that what other boxes need of them is there.
  Status fill(Source& source, const Box& both, const Box& wanted) {
    const Shape within = minus(both.offset, source.box.offset);
    Bytes begin = 0;
    for (std::size_t d = 0; d <= cut_; ++d) begin += within[d] * source.strides[d] * element_;
    const Bytes end = begin + both.extent[cut_] * source.strides[cut_] * element_;
    AUTOPAR_TRY(rows, source.view(begin, end));
    const char* from = rows + (dot(within, source.strides) * element_ - begin);
    const Shape to_strides = strides_of(wanted.extent);
    char* to = buffer_.data() + dot(minus(both.offset, wanted.offset), to_strides) * element_;
    StridedCopy(both.extent, source.strides, to_strides, element_).copy(from, to);
    return Ok{};
  }

  const StoredTensor& tensor_;
  std::vector<Box> boxes_;
  const Sink& sink_;
  const Bytes element_;
  std::vector<Source> sources_;
  std::vector<std::size_t> order_;                 // of the boxes, by offset
  std::vector<std::vector<std::size_t>> meeting_;  // by box: the sources
  Shape extent_, strides_;                         // of every box
  std::size_t cut_ = 0;
  std::int64_t rows_ = 1;
  std::vector<char> buffer_;
};

}  // namespace

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

Box box_of(const BoundaryValue& value, const Mesh& mesh, std::int64_t rank) {
  return {slice_offsets(value.spec, value.shape, mesh, rank),
          local_shape(value.spec, value.shape, mesh)};
}

Status cut(const StoredTensor& tensor, const std::vector<Box>& boxes, const Sink& sink,
           Bytes buffer_bytes) {
  if (tensor.bytes() == 0 || boxes.empty()) return Ok{};
  return Cutter(tensor, boxes, sink, buffer_bytes).run();
}

Status cut_as_read(const StoredTensor& tensor, const std::vector<Box>& boxes, const Sink& sink) {
  if (!tensor.narrow) return cut(tensor, boxes, sink);
  return cut(tensor, boxes, [&](std::size_t box, Bytes at, std::string_view bytes) {
    return sink(box, at / 2, rounded(bytes, *tensor.narrow));
  });
}

Result<Tensor> read_tensor(const StoredTensor& tensor) {
  Tensor result{tensor.dtype, tensor.shape,
                std::string(static_cast<std::size_t>(tensor.bytes()), '\0')};
  AUTOPAR_RETURN_IF_ERROR(cut(tensor, {whole_box(tensor.shape)},
                              [&](std::size_t, Bytes at, std::string_view bytes) -> Status {
                                std::copy(bytes.begin(), bytes.end(), result.bytes.begin() + at);
                                return Ok{};
                              }));
  return result;
}

Status check_places(const StoredTensor& tensor) {
  std::vector<char> first, other;
  for (const Piece& piece : tensor.pieces) {
    const Bytes size = element_count(piece.box.extent) * size_of(tensor.dtype);
    for (std::size_t p = 1; p < piece.places.size(); ++p) {
      const Place& a = piece.places[0];
      const Place& b = piece.places[p];
      for (Bytes at = 0; at < size; at += kMostBlock) {
        const Bytes part = std::min(kMostBlock, size - at);
        first.resize(static_cast<std::size_t>(part));
        other.resize(static_cast<std::size_t>(part));
        AUTOPAR_RETURN_IF_ERROR(read_bytes(a.path, a.offset + at, first.data(), part));
        AUTOPAR_RETURN_IF_ERROR(read_bytes(b.path, b.offset + at, other.data(), part));
        if (first == other) continue;
        const auto differs = std::mismatch(first.begin(), first.end(), other.begin()).first;
        const Bytes index = (at + (differs - first.begin())) / size_of(tensor.dtype);
        return Error{ErrorCode::kComparison,
                     "weight '" + tensor.name + "': ranks " + std::to_string(a.rank) + " and " +
                         std::to_string(b.rank) +
                         " hold the same slice, but differ from its element " +
                         std::to_string(index) + " on; the state of the ranks has diverged"};
      }
    }
  }
  return Ok{};
}

}  // namespace autopar
