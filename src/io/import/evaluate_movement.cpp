// Ops that copy elements to other places: reshapes, views, joins, fills.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "io/import/arrays.hpp"
#include "io/import/evaluate.hpp"

namespace autopar {
namespace {

std::optional<Ints> ints_at(const OpEvaluation& e, std::size_t i) {
  return e.has_input(i) ? int_values(*e.inputs[i]) : std::nullopt;
}

const Shape* output_shape(const OpEvaluation& e) {
  return e.outputs[0].shape ? &*e.outputs[0].shape : nullptr;
}

// The same bytes under the inferred shape.
std::optional<Tensors> reshape(const OpEvaluation& e) {
  const Shape* shape = output_shape(e);
  if (!e.has_input(0) || !shape || element_count(*shape) != element_count(e.inputs[0]->shape)) {
    return std::nullopt;
  }
  return Tensors{{e.inputs[0]->dtype, *shape, e.inputs[0]->bytes}};
}

std::optional<Tensors> transpose(const OpEvaluation& e) {
  if (!e.has_input(0)) return std::nullopt;
  const Tensor& x = *e.inputs[0];
  const std::size_t rank = x.shape.size();
  Ints perm = e.op.ints_attribute("perm");
  if (perm.empty()) {
    for (std::size_t i = rank; i-- > 0;) perm.push_back(static_cast<std::int64_t>(i));
  }
  if (perm.size() != rank) return std::nullopt;
  const Ints own = strides_of(x.shape);
  Shape shape;
  Ints strides;
  for (const std::int64_t from : perm) {
    const auto axis = axis_of(from, rank);
    if (!axis) return std::nullopt;
    shape.push_back(x.shape[*axis]);
    strides.push_back(own[*axis]);
  }
  return Tensors{take(x, shape, positions(shape, strides))};
}

std::optional<Tensors> expand(const OpEvaluation& e) {
  const Shape* shape = output_shape(e);
  if (!e.has_input(0) || !shape) return std::nullopt;
  const auto strides = broadcast_strides(e.inputs[0]->shape, *shape);
  if (!strides) return std::nullopt;
  return Tensors{take(*e.inputs[0], *shape, positions(*shape, *strides))};
}

// A view of [r0, d0, r1, d1, ...] with stride 0 along the repeats.
std::optional<Tensors> tile(const OpEvaluation& e) {
  const Shape* shape = output_shape(e);
  const auto repeats = ints_at(e, 1);
  if (!e.has_input(0) || !shape || !repeats) return std::nullopt;
  const Tensor& x = *e.inputs[0];
  if (repeats->size() != x.shape.size()) return std::nullopt;
  const Ints own = strides_of(x.shape);
  Shape view;
  Ints strides;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    view.insert(view.end(), {(*repeats)[d], x.shape[d]});
    strides.insert(strides.end(), {0, own[d]});
  }
  if (element_count(view) != element_count(*shape)) return std::nullopt;
  return Tensors{take(x, *shape, positions(view, strides))};
}

std::optional<Tensors> slice(const OpEvaluation& e) {
  const auto starts = ints_at(e, 1);
  const auto ends = ints_at(e, 2);
  if (!e.has_input(0) || !starts || !ends) return std::nullopt;
  const Tensor& x = *e.inputs[0];
  const std::size_t count = starts->size();
  Ints axes(count);
  for (std::size_t i = 0; i < count; ++i) axes[i] = static_cast<std::int64_t>(i);
  if (e.has_input(3)) axes = ints_at(e, 3).value_or(Ints{});
  const Ints steps = e.has_input(4) ? ints_at(e, 4).value_or(Ints{}) : Ints(count, 1);
  if (ends->size() != count || axes.size() != count || steps.size() != count) return std::nullopt;
  Shape shape = x.shape;
  Ints strides = strides_of(x.shape);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto axis = axis_of(axes[i], x.shape.size());
    const std::int64_t step = steps[i];
    if (!axis || step == 0 || std::abs(static_cast<double>(step)) > 1e15) return std::nullopt;
    const std::int64_t extent = x.shape[*axis];
    const auto clamp = [&](std::int64_t at, std::int64_t low, std::int64_t high) {
      return std::clamp(at < 0 ? at + extent : at, low, high);
    };
    // Going down, `end` may lie one before the first element.
    const std::int64_t start = step > 0
                                   ? clamp((*starts)[i], 0, extent)
                                   : clamp((*starts)[i], 0, std::max<std::int64_t>(extent - 1, 0));
    const std::int64_t end = step > 0
                                 ? clamp((*ends)[i], 0, extent)
                                 : clamp((*ends)[i], -1, std::max<std::int64_t>(extent - 1, 0));
    const std::int64_t span = step > 0 ? end - start : start - end;
    const std::int64_t size = std::abs(step);
    shape[*axis] = extent == 0 || span <= 0 ? 0 : (span + size - 1) / size;
    offset += start * strides[*axis];
    strides[*axis] *= step;
  }
  if (element_count(shape) == 0) return Tensors{{x.dtype, shape, {}}};
  return Tensors{take(x, shape, positions(shape, strides, offset))};
}

std::optional<Tensors> concat(const OpEvaluation& e) {
  if (!e.has_input(0)) return std::nullopt;
  Shape shape = e.inputs[0]->shape;
  const auto axis = axis_of(e.op.int_attribute("axis", 0), shape.size());
  if (!axis) return std::nullopt;
  std::size_t outer = 1;
  for (std::size_t d = 0; d < *axis; ++d) outer *= static_cast<std::size_t>(shape[d]);
  std::int64_t total = 0;
  for (const Tensor* input : e.inputs) {
    if (!input || input->shape.size() != shape.size()) return std::nullopt;
    Shape other = input->shape;
    total += other[*axis];
    other[*axis] = shape[*axis];
    if (other != shape) return std::nullopt;
  }
  shape[*axis] = total;
  Tensor result{e.inputs[0]->dtype, shape, {}};
  for (std::size_t o = 0; o < outer; ++o) {
    for (const Tensor* input : e.inputs) {
      const std::size_t block = input->bytes.size() / outer;
      result.bytes.append(input->bytes, o * block, block);
    }
  }
  return Tensors{std::move(result)};
}

std::optional<Tensors> split(const OpEvaluation& e) {
  if (!e.has_input(0)) return std::nullopt;
  const Tensor& x = *e.inputs[0];
  const auto axis = axis_of(e.op.int_attribute("axis", 0), x.shape.size());
  if (!axis) return std::nullopt;
  const Ints strides = strides_of(x.shape);
  Tensors parts;
  std::int64_t start = 0;
  for (const OutputType& output : e.outputs) {
    if (!output.shape || output.shape->size() != x.shape.size()) return std::nullopt;
    Shape other = *output.shape;
    other[*axis] = x.shape[*axis];
    if (other != x.shape || start + (*output.shape)[*axis] > x.shape[*axis]) return std::nullopt;
    parts.push_back(
        take(x, *output.shape, positions(*output.shape, strides, start * strides[*axis])));
    start += (*output.shape)[*axis];
  }
  return parts;
}

// Constant padding; negative pads (cropping) stay an op.
std::optional<Tensors> pad(const OpEvaluation& e) {
  const auto pads = ints_at(e, 1);
  if (!e.has_input(0) || !pads || e.op.string_attribute("mode", "constant") != "constant") {
    return std::nullopt;
  }
  const Tensor& x = *e.inputs[0];
  const std::size_t rank = x.shape.size();
  Ints axes;
  for (std::size_t i = 0; i < rank; ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (e.has_input(3)) axes = ints_at(e, 3).value_or(Ints{});
  if (pads->size() != 2 * axes.size()) return std::nullopt;
  const Shape* shape = output_shape(e);
  if (!shape || shape->size() != rank) return std::nullopt;
  Ints before(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = axis_of(axes[i], rank);
    const std::int64_t low = (*pads)[i];
    const std::int64_t high = (*pads)[i + axes.size()];
    if (!axis || low < 0 || high < 0 || x.shape[*axis] + low + high != (*shape)[*axis]) {
      return std::nullopt;
    }
    before[*axis] = low;
  }
  const Tensor fill = e.has_input(2) ? *e.inputs[2] : scalar_tensor(x.dtype, 0);
  if (fill.dtype != x.dtype || element_count(fill.shape) != 1) return std::nullopt;
  Tensor result = take(fill, *shape, Ints(static_cast<std::size_t>(element_count(*shape)), 0));
  const Ints strides = strides_of(*shape);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < rank; ++d) offset += before[d] * strides[d];
  const auto size = static_cast<std::size_t>(size_of(x.dtype));
  const Ints to = positions(x.shape, strides, offset);
  for (std::size_t i = 0; i < to.size(); ++i) {
    result.bytes.replace(static_cast<std::size_t>(to[i]) * size, size, x.bytes, i * size, size);
  }
  return Tensors{std::move(result)};
}

std::optional<Tensors> trilu(const OpEvaluation& e) {
  if (!e.has_input(0) || e.inputs[0]->shape.size() < 2) return std::nullopt;
  Tensor result = *e.inputs[0];
  std::int64_t k = 0;
  if (e.has_input(1)) {
    const auto value = ints_at(e, 1);
    if (!value || value->size() != 1) return std::nullopt;
    k = (*value)[0];
  }
  const std::int64_t rows = result.shape[result.shape.size() - 2];
  const std::int64_t columns = result.shape.back();
  const bool upper = e.op.int_attribute("upper", 1) != 0;
  const auto size = static_cast<std::size_t>(size_of(result.dtype));
  const std::int64_t count = element_count(result.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i / columns % rows;
    const std::int64_t above = i % columns - row;
    if (upper ? above < k : above > k) {
      result.bytes.replace(static_cast<std::size_t>(i) * size, size, size, '\0');
    }
  }
  return Tensors{std::move(result)};
}

std::optional<Tensors> constant_of_shape(const OpEvaluation& e) {
  const Shape* shape = output_shape(e);
  if (!shape) return std::nullopt;
  Tensor fill = scalar_tensor(e.outputs[0].dtype, 0);
  if (auto found = e.op.attributes.find("value"); found != e.op.attributes.end()) {
    const auto* value = std::get_if<Tensor>(&found->second);
    if (!value || element_count(value->shape) != 1) return std::nullopt;
    fill = *value;
  }
  return Tensors{take(fill, *shape, Ints(static_cast<std::size_t>(element_count(*shape)), 0))};
}

std::optional<Tensors> range(const OpEvaluation& e) {
  const Shape* shape = output_shape(e);
  if (!shape || !e.has_input(0) || !e.has_input(1) || !e.has_input(2)) return std::nullopt;
  const DType dtype = e.inputs[0]->dtype;
  const auto count = static_cast<std::size_t>(element_count(*shape));
  if (is_floating(dtype)) {
    const Doubles start = doubles_of(*e.inputs[0]);
    const Doubles step = doubles_of(*e.inputs[2]);
    if (start.size() != 1 || step.size() != 1) return std::nullopt;
    Doubles values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = start[0] + static_cast<double>(i) * step[0];
    return Tensors{tensor_of(dtype, *shape, values)};
  }
  const auto start = ints_at(e, 0);
  const auto step = ints_at(e, 2);
  if (!start || !step || start->size() != 1 || step->size() != 1) return std::nullopt;
  Ints values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = (*start)[0] + static_cast<std::int64_t>(i) * (*step)[0];
  }
  return Tensors{tensor_of(dtype, *shape, values)};
}

}  // namespace

std::optional<Tensors> evaluate_movement(const OpEvaluation& e) {
  using Function = std::optional<Tensors> (*)(const OpEvaluation&);
  static const std::map<std::string, Function> kTable = {
      {"Concat", concat},       {"ConstantOfShape", constant_of_shape},
      {"Expand", expand},       {"Flatten", reshape},
      {"Identity", reshape},    {"Pad", pad},
      {"Range", range},         {"Reshape", reshape},
      {"Slice", slice},         {"Split", split},
      {"Squeeze", reshape},     {"Tile", tile},
      {"Transpose", transpose}, {"Trilu", trilu},
      {"Unsqueeze", reshape}};
  const auto found = kTable.find(e.op.type);
  return found == kTable.end() ? std::nullopt : found->second(e);
}

}  // namespace autopar
