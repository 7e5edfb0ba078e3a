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

// The same for the rows of all windows of a part, among the part's own rows and the gathered ones.
Tensor window_places(std::int64_t parts, const Halo& halo, const Window& window) {
  const std::int64_t own = window.input / parts, made = window.output / parts;
  const std::int64_t rows = halo.before + halo.after;
  const std::int64_t length = (made - 1) * window.stride + window.span() + 1;
  std::vector<std::int64_t> places;
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t row = part * made * window.stride - window.before + i;
      const std::int64_t at = row - part * own;
      if (row < 0 || row >= window.input) {
        places.push_back(own + parts * rows);
      } else if (at < 0) {
        places.push_back(own + part * rows + at);
      } else {
        places.push_back(at < own ? at : own + (part + 1) * rows + at - own);
      }
    }
  }
  return int64_tensor({parts * length}, places);
}

// What is needed at most with so many parts.
Halo halo_with(std::int64_t parts, const Window& window) {
  const std::int64_t shift = window.drift() / parts;
  const std::int64_t last = parts - 1;
  const std::int64_t after = window.span() + 1 - window.stride - window.before - shift;
  // The first part needs nothing before it, the last one nothing after it.
  const std::int64_t before = std::max(window.before + shift, window.before + last * shift);
  return {std::max<std::int64_t>(before, 0),
          std::max<std::int64_t>({after, after - (last - 1) * shift, 0})};
}

class Exchange {
 public:
  Exchange(Emitter& emitter, std::size_t dim, const std::vector<int>& axes, double border)
      : emitter_(emitter), dim_(dim), axes_(axes), border_(border) {}

  // The part with its halos.
  ValueId extended(ValueId part, const Halo& halo) {
    const ValueId rows = emitter_.concat({gathered(part, halo), outside(part)}, dim_);
    const ValueId halos = picked(rows, halo_places(emitter_.parts(axes_), halo));
    std::vector<ValueId> pieces;
    if (halo.before > 0) pieces.push_back(emitter_.slice(halos, dim_, 0, halo.before));
    pieces.push_back(part);
    if (halo.after > 0) {
      pieces.push_back(emitter_.slice(halos, dim_, halo.before, halo.before + halo.after));
    }
    return emitter_.concat(pieces, dim_);
  }

  // The rows of the part's windows, which are not at the same places on all ranks.
  ValueId moved(ValueId part, const Window& window) {
    const std::int64_t parts = emitter_.parts(axes_);
    const Halo halo = halo_with(parts, window);
    std::vector<ValueId> rows = {part, outside(part)};
    if (halo.before + halo.after > 0) rows.insert(rows.begin() + 1, gathered(part, halo));
    return picked(emitter_.concat(rows, dim_), window_places(parts, halo, window));
  }

 private:
  // Of every part `after` rows of its beginning and `before` rows of its end.
  ValueId gathered(ValueId part, const Halo& halo) {
    const std::int64_t extent = emitter_.value(part).shape[dim_];
    std::vector<ValueId> sent;
    if (halo.after > 0) sent.push_back(emitter_.slice(part, dim_, 0, halo.after));
    if (halo.before > 0) sent.push_back(emitter_.slice(part, dim_, extent - halo.before, extent));
    return emitter_.all_gather(emitter_.concat(sent, dim_), axes_, dim_);
  }

  // One row of the border.
  ValueId outside(ValueId part) {
    Shape row = emitter_.value(part).shape;
    row[dim_] = 1;
    const DType dtype = emitter_.value(part).dtype;
    return emitter_.add("Expand", {emitter_.scalar(dtype, border_), emitter_.ints(row)}, dtype,
                        row);
  }

  // `places`: of all ranks, each its own.
  ValueId picked(ValueId rows, Tensor places) {
    const ValueId own = emitter_.own_part(emitter_.constant(std::move(places)), axes_, 0);
    Shape shape = emitter_.value(rows).shape;
    shape[dim_] = emitter_.value(own).shape[0];
    return emitter_.add("Gather", {rows, own}, emitter_.value(rows).dtype, shape,
                        {{"axis", static_cast<std::int64_t>(dim_)}});
  }

  Emitter& emitter_;
  std::size_t dim_;
  std::vector<int> axes_;
  double border_;
};

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
    Exchange exchange(emitter, dim, axes, border);
    extended.image = windows[d].drift() == 0
                         ? exchange.extended(extended.image, *halo_of(windows[d]))
                         : exchange.moved(extended.image, windows[d]);
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
