// How the slices of a value become those of another layout on other ranks: which rank gives which
// block. Nothing is computed, only copied.
#pragma once

#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// A block of the whole tensor that a rank holds.
struct Block {
  Shape offset;
  Shape extent;
  bool operator==(const Block&) const = default;
};
Block block_of(const BoundaryValue& value, const RunProgram& program, std::int64_t position);

// One block that a reader gets from a rank (of the world, perhaps itself).
struct MovedPiece {
  std::int64_t from = 0;
  Block block;
};
struct Movement {
  // By the reader's position. Empty: the rank holds just this slice itself.
  std::vector<std::vector<MovedPiece>> pieces;
  bool is_needed() const;
};
// Every block comes from the reading rank itself where it can, else from the rank of the same place
// among the maker's, else from those that hold it in turn: so all send about as much. Precondition:
// both have the same whole shape, and neither is a partial sum. O(readers * distinct slices of the
// maker).
Movement movement_of(const BoundaryValue& made, const RunProgram& maker, const BoundaryValue& read,
                     const RunProgram& reader);

// Blocks of a slice, one after the other, and the inverse.
void pack_piece(const Block& piece, std::size_t element_size, const Block& slice, const void* from,
                char* to);
void unpack_piece(const Block& piece, std::size_t element_size, const char* from,
                  const Block& slice, void* to);

// Of a rank of a program; ranks are numbered 0, 1, ... where the program lists none.
std::int64_t rank_at(const RunProgram& program, std::int64_t position);

}  // namespace autopar
