// Gradients of padding and cropping: what was cut off is zero, and what stands in several places is
// their sum.
#include <algorithm>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// Before which and after which every dimension is padded; negative: cut off.
struct Pads {
  std::vector<std::int64_t> before, after;
};

std::vector<std::int64_t> negated(std::vector<std::int64_t> values) {
  for (std::int64_t& value : values) value = -value;
  return values;
}

// The place of the input that place `i`, counted from its begin, shows.
std::int64_t source_of(const std::string& mode, std::int64_t i, std::int64_t extent) {
  if (mode == "edge") return std::clamp<std::int64_t>(i, 0, extent - 1);
  const auto modulo = [](std::int64_t a, std::int64_t n) { return ((a % n) + n) % n; };
  if (mode == "wrap") return modulo(i, extent);
  if (extent == 1) return 0;
  const std::int64_t turned = modulo(i, 2 * (extent - 1));
  return turned < extent ? turned : 2 * (extent - 1) - turned;
}

// The sum, along one dimension, of the runs of places that show the input forwards, backwards, or
// one place of it again and again. What is cut off is so before the rest is padded.
ValueId folded(GraphBuilder& to, ValueId grad, std::size_t d, std::int64_t before,
               std::int64_t after, std::int64_t extent, const std::string& mode) {
  const std::int64_t count = to.shape(grad)[d];
  const std::int64_t cut = std::max<std::int64_t>(-before, 0);
  const std::int64_t left_over = extent - cut - std::max<std::int64_t>(-after, 0);
  before = std::max<std::int64_t>(before, 0);
  std::vector<std::int64_t> sources;
  for (std::int64_t j = 0; j < count; ++j) {
    sources.push_back(cut + source_of(mode, j - before, left_over));
  }
  ValueId sum;
  for (std::size_t begin = 0; begin < sources.size();) {
    std::size_t end = begin + 1;
    const std::int64_t step = end < sources.size() ? sources[end] - sources[begin] : 1;
    const bool run = step >= -1 && step <= 1;
    while (run && end < sources.size() && sources[end] - sources[end - 1] == step) ++end;
    ValueId part =
        to.slice(grad, d, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
    std::int64_t first = sources[begin];
    if (run && step == 0) {
      part = to.reduce("ReduceSum", part, {d});
    } else if (run && step == -1) {
      const ValueId dims = to.ints({static_cast<std::int64_t>(d)});
      part = to.add("Slice", {part, to.ints({-1}), to.ints({INT64_MIN}), dims, to.ints({-1})},
                    to.dtype(part), to.shape(part));
      first = sources[end - 1];
    }
    std::vector<std::int64_t> left(to.rank(part)), right(to.rank(part));
    left[d] = first;
    right[d] = extent - first - to.shape(part)[d];
    part = to.pad(part, left, right);
    sum = sum.valid() ? to.pointwise("Add", {sum, part}) : part;
    begin = end;
  }
  return sum.valid() ? sum : to.filled(to.dtype(grad), to.shape(grad), 0);
}

}  // namespace

Result<InputGrads> pad_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(context.op.inputs.size());
  const ValueId g = context.grad();
  if (!g.valid()) return grads;
  const Shape from = context.in_shape(0);
  const auto pads = context.ints(1), axes = context.ints(3);
  if (!pads || (context.op.has_input(3) && !axes)) {
    return no_gradient(context, "where its pads are not constant");
  }
  Pads all{std::vector<std::int64_t>(from.size()), std::vector<std::int64_t>(from.size())};
  const std::size_t count = pads->size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t d = axes ? (*axes)[i] : static_cast<std::int64_t>(i);
    if (d < 0) d += static_cast<std::int64_t>(from.size());
    all.before[static_cast<std::size_t>(d)] = (*pads)[i];
    all.after[static_cast<std::size_t>(d)] = (*pads)[i + count];
  }
  const std::string mode = context.op.string_attribute("mode", "constant");
  if (mode != "constant") {
    ValueId grad = g;
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (all.before[d] == 0 && all.after[d] == 0) continue;
      grad = folded(to, grad, d, all.before[d], all.after[d], from[d], mode);
    }
    return only_input(context, 0, grad);
  }
  if (context.wants(0)) grads[0] = to.pad(g, negated(all.before), negated(all.after));
  if (!context.wants(2)) return grads;
  // The constant stands everywhere but where the input does.
  std::vector<std::size_t> dims;
  std::vector<std::int64_t> before, after, none(from.size());
  ValueId inside = g;
  for (std::size_t d = 0; d < from.size(); ++d) {
    dims.push_back(d);
    const std::int64_t begin = std::max<std::int64_t>(all.before[d], 0);
    const std::int64_t end = context.out_shape(0)[d] - std::max<std::int64_t>(all.after[d], 0);
    inside = to.slice(inside, d, begin, end);
  }
  const auto sum = [&](ValueId value) {
    return to.reshape(to.reduce("ReduceSum", value, dims, false), context.in_shape(2));
  };
  grads[2] = to.pointwise("Sub", {sum(g), sum(inside)});
  return grads;
}

Result<InputGrads> center_crop_pad_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  const Shape from = context.in_shape(0), into = context.out_shape(0);
  std::vector<std::int64_t> before, after;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::int64_t more = from[d] - into[d];
    before.push_back(more / 2);
    after.push_back(more - more / 2);
  }
  return only_input(context, 0, context.to.pad(context.grad(), before, after));
}

}  // namespace autopar
