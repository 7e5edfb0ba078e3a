#include "ops/halo.hpp"

#include <algorithm>

namespace autopar {
namespace {

// For every part the places of its halo among the gathered rows: each part has `after` rows of its
// beginning and `before` rows of its end there. The rows of the border come last.
Tensor halo_places(std::int64_t parts, const Halo& halo) {
  const std::int64_t rows = halo.before + halo.after;
  std::vector<std::int64_t> places;
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t i = 0; i < halo.before; ++i) {
      places.push_back(part > 0 ? (part - 1) * rows + halo.after + i : parts * rows);
    }
    for (std::int64_t i = 0; i < halo.after; ++i) {
      places.push_back(part + 1 < parts ? (part + 1) * rows + i : parts * rows);
    }
  }
  return int64_tensor({parts * rows}, places);
}

// The halos before and after a rank's part of dimension `dim`, one after the other.
ValueId exchanged(Emitter& emitter, ValueId part, std::size_t dim, const std::vector<int>& axes,
                  const Halo& halo, double border) {
  const Value own = emitter.value(part);
  const std::int64_t extent = own.shape[dim];
  std::vector<ValueId> sent;
  if (halo.after > 0) sent.push_back(emitter.slice(part, dim, 0, halo.after));
  if (halo.before > 0) sent.push_back(emitter.slice(part, dim, extent - halo.before, extent));
  const ValueId gathered = emitter.all_gather(emitter.concat(sent, dim), axes, dim);
  Shape row = own.shape;
  row[dim] = 1;
  const ValueId outside =
      emitter.add("Expand", {emitter.scalar(own.dtype, border), emitter.ints(row)}, own.dtype, row);
  const ValueId rows = emitter.concat({gathered, outside}, dim);
  const ValueId places =
      emitter.own_part(emitter.constant(halo_places(emitter.parts(axes), halo)), axes, 0);
  Shape shape = own.shape;
  shape[dim] = halo.before + halo.after;
  return emitter.add("Gather", {rows, places}, own.dtype, shape,
                     {{"axis", static_cast<std::int64_t>(dim)}});
}

}  // namespace

Extended with_halos(Emitter& emitter, const LocalContext& context,
                    const std::vector<Window>& windows, double border) {
  Extended extended{emitter.input(0), {}};
  for (std::size_t d = 0; d < windows.size(); ++d) {
    const std::size_t dim = d + 2;
    const std::vector<int> axes = emitter.axes_of_input(0, dim);
    if (axes.empty()) continue;
    const auto& factor =
        context.rule.factors[static_cast<std::size_t>(context.rule.inputs[0][dim].front())];
    if (factor.kind != FactorKind::kHalo) continue;
    const Halo halo{factor.halo_before, factor.halo_after};
    const ValueId rows = exchanged(emitter, extended.image, dim, axes, halo, border);
    std::vector<ValueId> pieces;
    if (halo.before > 0) pieces.push_back(emitter.slice(rows, dim, 0, halo.before));
    pieces.push_back(extended.image);
    if (halo.after > 0) {
      pieces.push_back(emitter.slice(rows, dim, halo.before, halo.before + halo.after));
    }
    extended.image = emitter.concat(pieces, dim);
    extended.dims.push_back(d);
  }
  return extended;
}

Attributes without_halo_padding(const LocalContext& context, const std::vector<Window>& windows,
                                const Extended& extended) {
  Attributes attributes = context.op.attributes;
  const std::size_t dims = windows.size();
  std::vector<std::int64_t> pads(2 * dims), output_padding(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    const Window& window = windows[d];
    const bool has_halo =
        std::find(extended.dims.begin(), extended.dims.end(), d) != extended.dims.end();
    const std::int64_t input = context.program.value(context.inputs[0]).shape[d + 2];
    const LocalPadding padding =
        has_halo ? local_padding(window, *halo_of(window), input)
                 : LocalPadding{window.before, window.after, window.output_padding};
    pads[d] = padding.before;
    pads[d + dims] = padding.after;
    output_padding[d] = padding.output_padding;
  }
  attributes.erase("auto_pad");
  attributes["pads"] = pads;
  if (windows[0].transposed) attributes["output_padding"] = output_padding;
  return attributes;
}

}  // namespace autopar
