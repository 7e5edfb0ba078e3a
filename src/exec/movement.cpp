#include "exec/movement.hpp"

#include <algorithm>
#include <map>

#include "exec/blocks.hpp"

namespace autopar {

namespace {

// What two blocks share; an empty extent: nothing.
Block common(const Block& a, const Block& b) {
  Block shared = a;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    shared.offset[d] = begin;
    shared.extent[d] = std::max<std::int64_t>(0, end - begin);
  }
  return shared;
}

Shape difference(const Shape& a, const Shape& b) {
  Shape result = a;
  for (std::size_t d = 0; d < a.size(); ++d) result[d] -= b[d];
  return result;
}

}  // namespace

std::int64_t rank_at(const RunProgram& program, std::int64_t position) {
  return program.ranks.empty() ? position : program.ranks[static_cast<std::size_t>(position)];
}

Block block_of(const BoundaryValue& value, const RunProgram& program, std::int64_t position) {
  return {slice_offsets(value.spec, value.shape, program.mesh, position),
          local_shape(value.spec, value.shape, program.mesh)};
}

bool Movement::is_needed() const {
  return std::any_of(pieces.begin(), pieces.end(), [](const auto& list) { return !list.empty(); });
}

Movement movement_of(const BoundaryValue& made, const RunProgram& maker, const BoundaryValue& read,
                     const RunProgram& reader) {
  std::map<Shape, std::vector<std::int64_t>> holders;  // ranks by the offset of what they hold
  std::map<std::int64_t, Shape> own;                   // offset by rank
  Shape extent;
  for (std::int64_t p = 0; p < maker.mesh.size(); ++p) {
    const Block block = block_of(made, maker, p);
    holders[block.offset].push_back(rank_at(maker, p));
    own[rank_at(maker, p)] = block.offset;
    extent = block.extent;
  }
  Movement movement;
  // How often each slice was given, but by the rank of the same place.
  std::map<Shape, std::size_t> given;
  for (std::int64_t p = 0; p < reader.mesh.size(); ++p) {
    std::vector<MovedPiece>& pieces = movement.pieces.emplace_back();
    const Block wanted = block_of(read, reader, p);
    const std::int64_t rank = rank_at(reader, p);
    const auto held = own.find(rank);
    if (held != own.end() && Block{held->second, extent} == wanted) continue;
    for (const auto& [offset, ranks] : holders) {
      const Block shared = common({offset, extent}, wanted);
      if (element_count(shared.extent) == 0 && element_count(wanted.extent) != 0) continue;
      const bool is_own = held != own.end() && held->second == offset;
      const auto same = own.find(p < maker.mesh.size() ? rank_at(maker, p) : -1);
      std::int64_t from = rank;
      if (!is_own) {
        const bool at_same = same != own.end() && same->second == offset;
        from = at_same ? same->first : ranks[given[offset]++ % ranks.size()];
      }
      pieces.push_back({from, shared});
    }
  }
  return movement;
}

void pack_piece(const Block& piece, std::size_t element_size, const Block& slice, const void* from,
                char* to) {
  copy_block(piece.extent, element_size, from,
             {slice.extent, difference(piece.offset, slice.offset)}, to,
             {piece.extent, Shape(piece.extent.size(), 0)});
}

void unpack_piece(const Block& piece, std::size_t element_size, const char* from,
                  const Block& slice, void* to) {
  copy_block(piece.extent, element_size, from, {piece.extent, Shape(piece.extent.size(), 0)}, to,
             {slice.extent, difference(piece.offset, slice.offset)});
}

}  // namespace autopar
