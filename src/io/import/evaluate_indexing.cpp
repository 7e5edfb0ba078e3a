// Ops that read or write at computed indices.
#include <map>
#include <string>

#include "io/import/arrays.hpp"
#include "io/import/evaluate.hpp"

namespace autopar {
namespace {

std::int64_t product(const Shape& shape, std::size_t from, std::size_t to) {
  std::int64_t result = 1;
  for (std::size_t i = from; i < to; ++i) result *= shape[i];
  return result;
}

// In [0, extent) after counting negatives from the end; nothing where outside.
std::optional<std::int64_t> wrap(std::int64_t index, std::int64_t extent) {
  if (index < -extent || index >= extent) return std::nullopt;
  return index < 0 ? index + extent : index;
}

std::optional<Tensors> gather(const OpEvaluation& e) {
  const Tensor& x = *e.inputs[0];
  const auto indices = int_values(*e.inputs[1]);
  const auto axis = axis_of(e.op.int_attribute("axis", 0), x.shape.size());
  if (!indices || !axis) return std::nullopt;
  const std::int64_t outer = product(x.shape, 0, *axis);
  const std::int64_t inner = product(x.shape, *axis + 1, x.shape.size());
  const std::int64_t extent = x.shape[*axis];
  Shape shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(*axis));
  shape.insert(shape.end(), e.inputs[1]->shape.begin(), e.inputs[1]->shape.end());
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(*axis) + 1,
               x.shape.end());
  Ints at;
  at.reserve(static_cast<std::size_t>(element_count(shape)));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const std::int64_t raw : *indices) {
      const auto index = wrap(raw, extent);
      if (!index) return std::nullopt;
      for (std::int64_t i = 0; i < inner; ++i) at.push_back((o * extent + *index) * inner + i);
    }
  }
  return Tensors{take(x, shape, at)};
}

// For GatherElements and ScatterElements: where in `data` each element of `indices` points.
std::optional<Ints> element_positions(const Shape& data, const Tensor& indices, std::int64_t raw) {
  const auto values = int_values(indices);
  const auto axis = axis_of(raw, data.size());
  if (!values || !axis || indices.shape.size() != data.size()) return std::nullopt;
  for (std::size_t d = 0; d < data.size(); ++d) {
    if (d != *axis && indices.shape[d] > data[d]) return std::nullopt;
  }
  Ints strides = strides_of(data);
  const std::int64_t stride = strides[*axis];
  strides[*axis] = 0;
  Ints at = positions(indices.shape, strides);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto index = wrap((*values)[i], data[*axis]);
    if (!index) return std::nullopt;
    at[i] += *index * stride;
  }
  return at;
}

std::optional<Tensors> gather_elements(const OpEvaluation& e) {
  const auto at =
      element_positions(e.inputs[0]->shape, *e.inputs[1], e.op.int_attribute("axis", 0));
  if (!at) return std::nullopt;
  return Tensors{take(*e.inputs[0], e.inputs[1]->shape, *at)};
}

std::optional<Tensors> scatter(const Tensor& data, const Tensor& updates, const Ints& at) {
  if (updates.dtype != data.dtype ||
      element_count(updates.shape) != static_cast<std::int64_t>(at.size())) {
    return std::nullopt;
  }
  Tensor result = data;
  const auto size = static_cast<std::size_t>(size_of(data.dtype));
  for (std::size_t i = 0; i < at.size(); ++i) {
    result.bytes.replace(static_cast<std::size_t>(at[i]) * size, size, updates.bytes, i * size,
                         size);
  }
  return Tensors{std::move(result)};
}

std::optional<Tensors> scatter_elements(const OpEvaluation& e) {
  if (!e.has_input(2) || e.op.string_attribute("reduction", "none") != "none") return std::nullopt;
  const auto at =
      element_positions(e.inputs[0]->shape, *e.inputs[1], e.op.int_attribute("axis", 0));
  if (!at) return std::nullopt;
  return scatter(*e.inputs[0], *e.inputs[2], *at);
}

// For GatherND and ScatterND: the positions of the slices that the index tuples name, in order.
// `batch` leading dimensions are shared. `slice` receives the shape of one slice.
std::optional<Ints> tuple_positions(const Shape& data, const Tensor& indices, std::size_t batch,
                                    Shape& slice) {
  const auto values = int_values(indices);
  if (!values || indices.shape.empty() || indices.shape.back() < 0) return std::nullopt;
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  if (batch >= indices.shape.size() || batch + depth > data.size()) return std::nullopt;
  for (std::size_t d = 0; d < batch; ++d) {
    if (indices.shape[d] != data[d]) return std::nullopt;
  }
  const Ints strides = strides_of(data);
  slice.assign(data.begin() + static_cast<std::ptrdiff_t>(batch + depth), data.end());
  const std::int64_t inner = element_count(slice);
  const std::int64_t tuples = product(indices.shape, 0, indices.shape.size() - 1);
  const std::int64_t batches = product(data, 0, batch);
  const std::int64_t batch_elements = product(data, batch, data.size());
  Ints at;
  for (std::int64_t t = 0; t < tuples; ++t) {
    std::int64_t start = batches > 0 ? t / (tuples / batches) * batch_elements : 0;
    for (std::size_t k = 0; k < depth; ++k) {
      const auto raw = (*values)[static_cast<std::size_t>(t) * depth + k];
      const auto index = wrap(raw, data[batch + k]);
      if (!index) return std::nullopt;
      start += *index * strides[batch + k];
    }
    for (std::int64_t i = 0; i < inner; ++i) at.push_back(start + i);
  }
  return at;
}

std::optional<Tensors> gather_nd(const OpEvaluation& e) {
  const std::int64_t batch = e.op.int_attribute("batch_dims", 0);
  if (batch < 0) return std::nullopt;
  Shape slice;
  const auto at =
      tuple_positions(e.inputs[0]->shape, *e.inputs[1], static_cast<std::size_t>(batch), slice);
  if (!at) return std::nullopt;
  Shape shape(e.inputs[1]->shape.begin(), e.inputs[1]->shape.end() - 1);
  shape.insert(shape.end(), slice.begin(), slice.end());
  return Tensors{take(*e.inputs[0], shape, *at)};
}

std::optional<Tensors> scatter_nd(const OpEvaluation& e) {
  if (!e.has_input(2) || e.op.string_attribute("reduction", "none") != "none") return std::nullopt;
  Shape slice;
  const auto at = tuple_positions(e.inputs[0]->shape, *e.inputs[1], 0, slice);
  if (!at) return std::nullopt;
  return scatter(*e.inputs[0], *e.inputs[2], *at);
}

// Row d of the result: the index along dimension d of every non-zero element.
std::optional<Tensors> non_zero(const OpEvaluation& e) {
  const Tensor& x = *e.inputs[0];
  const Doubles values = doubles_of(x);
  const Ints strides = strides_of(x.shape);
  Ints found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) found.push_back(static_cast<std::int64_t>(i));
  }
  Ints result;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    for (const std::int64_t at : found) result.push_back(at / strides[d] % x.shape[d]);
  }
  const Shape shape = {static_cast<std::int64_t>(x.shape.size()),
                       static_cast<std::int64_t>(found.size())};
  return Tensors{tensor_of(DType::kInt64, shape, result)};
}

}  // namespace

std::optional<Tensors> evaluate_indexing(const OpEvaluation& e) {
  if (!e.has_input(0)) return std::nullopt;
  if (e.op.type == "NonZero") return non_zero(e);
  using Function = std::optional<Tensors> (*)(const OpEvaluation&);
  static const std::map<std::string, Function> kTable = {{"Gather", gather},
                                                         {"GatherElements", gather_elements},
                                                         {"GatherND", gather_nd},
                                                         {"ScatterElements", scatter_elements},
                                                         {"ScatterND", scatter_nd}};
  const auto found = kTable.find(e.op.type);
  return found == kTable.end() || !e.has_input(1) ? std::nullopt : found->second(e);
}

}  // namespace autopar
