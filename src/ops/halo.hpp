// Halos: what a rank reads next to its own part of a spatial dimension.
//
//   own part -> its first and last rows -> AllGather -> those of the neighbours -> Concat with the
//   own part -> the op, without the padding of that dimension
//
// Where the windows of the ranks do not begin at the same rows of their parts, a rank picks the
// rows of its windows from its part and what was gathered (Window::drift). At the border of the
// image the rows are those of the op's padding.
#pragma once

#include "ops/emitter.hpp"
#include "ops/window.hpp"

namespace autopar {

// The part that a rank has, extended by its halo in every dimension in which it has one; one
// dimension after the other, so that the corners come along.
struct Extended {
  ValueId image;
  std::vector<std::size_t> dims;  // spatial dimensions, counted from 0, that have a halo
};
Extended with_halos(Emitter& emitter, const LocalContext& context,
                    const std::vector<Window>& windows, double border);

// The attributes of the op for extended parts.
Attributes without_halo_padding(const LocalContext& context, const std::vector<Window>& windows,
                                const Extended& extended);

}  // namespace autopar
