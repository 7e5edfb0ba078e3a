// Gradient of Resize. Interpolation is linear, one dimension at a time: the output is the image
// times a matrix of weights that only the extents tell, and the way back is that matrix transposed.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// One dimension and how its rows are read.
struct Resampling {
  std::int64_t input = 1, output = 1;
  float scale = 1;
  float roi_begin = 0, roi_end = 1;
};

// What all dimensions share.
struct Interpolation {
  std::string mode, transformation, nearest;
  bool exclude_outside = false, antialias = false;
  double cubic = -0.75;
};

// The row of the image that an output row stands at; in float, as runtimes do, so that nearest rows
// are the same ones.
float source(const std::string& transformation, const Resampling& r, std::int64_t row) {
  const auto x = static_cast<float>(row);
  const auto input = static_cast<float>(r.input), output = static_cast<float>(r.output);
  if (transformation == "asymmetric") return x / r.scale;
  if (transformation == "tf_half_pixel_for_nn") return (x + 0.5F) / r.scale;
  if (transformation == "align_corners") {
    return r.output == 1 ? 0 : x * (input - 1) / (output - 1);
  }
  if (transformation == "tf_crop_and_resize") {
    if (r.output == 1) return 0.5F * (r.roi_begin + r.roi_end) * (input - 1);
    return r.roi_begin * (input - 1) + x * (r.roi_end - r.roi_begin) * (input - 1) / (output - 1);
  }
  const float centre = (x + 0.5F) / r.scale - 0.5F;
  if (transformation == "pytorch_half_pixel") return r.output > 1 ? centre : 0;
  if (transformation == "half_pixel_symmetric") {
    return centre + input / 2 * (1 - output / (r.scale * input));
  }
  return centre;
}

std::int64_t nearest_row(const std::string& how, float x) {
  if (how == "floor") return static_cast<std::int64_t>(std::floor(x));
  if (how == "ceil") return static_cast<std::int64_t>(std::ceil(x));
  const float half = how == "round_prefer_ceil" ? std::floor(x + 0.5F) : std::ceil(x - 0.5F);
  return static_cast<std::int64_t>(half);
}

// Keys, "Cubic convolution interpolation for digital image processing", 1981.
double cubic_weight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Of one output row by every row of the image.
std::vector<double> weights(const Interpolation& how, const Resampling& r, std::int64_t row) {
  std::vector<double> weights(static_cast<std::size_t>(r.input));
  const float x = source(how.transformation, r, row);
  const auto at = [&](std::int64_t i) -> double& {
    return weights[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, r.input - 1))];
  };
  const bool crops = how.transformation == "tf_crop_and_resize";
  if (crops && (x < 0 || x > static_cast<float>(r.input - 1))) return weights;
  if (how.mode == "nearest") {
    at(nearest_row(how.nearest, x)) = 1;
    return weights;
  }
  // Images that shrink may be read through a wider kernel.
  const double narrow = how.antialias ? std::min<double>(r.scale, 1) : 1;
  const double radius = how.mode == "cubic" ? 2 : 1;
  const auto first = static_cast<std::int64_t>(std::floor(-radius / narrow)) + 1;
  const auto left = static_cast<std::int64_t>(std::ceil(x)) - 1;
  double sum = 0;
  std::vector<std::pair<std::int64_t, double>> taps;
  for (std::int64_t i = left + first; i < left + 2 - first; ++i) {
    if (how.exclude_outside && (i < 0 || i >= r.input)) continue;
    const double distance = (static_cast<double>(i) - x) * narrow;
    const double weight = how.mode == "cubic" ? cubic_weight(distance, how.cubic)
                                              : std::max(1 - std::abs(distance), 0.0);
    taps.emplace_back(i, weight);
    sum += weight;
  }
  const bool normed = (how.antialias || how.exclude_outside) && sum != 0;
  for (const auto& [i, weight] : taps) at(i) += normed ? weight / sum : weight;
  return weights;
}

std::optional<std::vector<double>> numbers(const GradContext& context, std::size_t port) {
  if (!context.in(port).valid()) return std::vector<double>();
  const Tensor* tensor = context.to.value(context.in(port)).tensor();
  if (tensor == nullptr) return std::nullopt;
  std::vector<double> numbers(static_cast<std::size_t>(element_count(tensor->shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    float single = 0;
    if (tensor->dtype == DType::kFloat64) {
      std::memcpy(&numbers[i], tensor->bytes.data() + 8 * i, 8);
    } else if (tensor->dtype == DType::kFloat32) {
      std::memcpy(&single, tensor->bytes.data() + 4 * i, 4);
      numbers[i] = static_cast<double>(single);
    } else {
      return std::nullopt;
    }
  }
  return numbers;
}

// Per dimension; those that `axes` does not name stay.
Result<std::vector<Resampling>> resamplings(const GradContext& context) {
  const Shape input = context.in_shape(0), output = context.out_shape(0);
  std::vector<Resampling> all(input.size());
  for (std::size_t d = 0; d < all.size(); ++d) all[d] = {input[d], output[d]};
  std::vector<std::int64_t> axes = context.op.ints_attribute("axes");
  if (axes.empty()) {
    for (std::size_t d = 0; d < all.size(); ++d) axes.push_back(static_cast<std::int64_t>(d));
  }
  const auto roi = numbers(context, 1), scales = numbers(context, 2);
  const auto sizes = context.ints(3);
  const std::string policy = context.op.string_attribute("keep_aspect_ratio_policy", "stretch");
  if (!roi || !scales) return no_gradient(context, "where its scales or its roi are not constant");
  float common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto rank = static_cast<std::int64_t>(all.size());
    Resampling& r = all[static_cast<std::size_t>(axes[i] < 0 ? axes[i] + rank : axes[i])];
    if (i < scales->size()) {
      r.scale = static_cast<float>((*scales)[i]);
    } else {
      const std::int64_t size = sizes && i < sizes->size() ? (*sizes)[i] : r.output;
      r.scale = static_cast<float>(size) / static_cast<float>(r.input);
    }
    if (i == 0) common = r.scale;
    common = policy == "not_larger" ? std::min(common, r.scale) : std::max(common, r.scale);
    if (i + axes.size() < roi->size()) {
      r.roi_begin = static_cast<float>((*roi)[i]);
      r.roi_end = static_cast<float>((*roi)[i + axes.size()]);
    }
  }
  if (policy == "stretch" || !scales->empty()) return all;
  if (!sizes) return no_gradient(context, "where its sizes are not constant");
  for (std::int64_t axis : axes) {
    const auto rank = static_cast<std::int64_t>(all.size());
    all[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)].scale = common;
  }
  return all;
}

// The gradient times the weights, along one dimension.
ValueId undone(GraphBuilder& to, ValueId g, std::size_t dim, const Resampling& r,
               const std::vector<std::vector<double>>& rows) {
  Shape shape = to.shape(g);
  const std::int64_t times = r.output / r.input;
  const auto is_unit = [&](std::size_t row, std::int64_t input) {
    return input < r.input && rows[row][static_cast<std::size_t>(input)] == 1 &&
           std::count(rows[row].begin(), rows[row].end(), 0) == r.input - 1;
  };
  bool same = r.input == r.output, repeats = times > 1 && r.input * times == r.output;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    same = same && is_unit(row, at);
    repeats = repeats && is_unit(row, at / times);
  }
  if (same) return g;
  if (repeats) {
    shape[dim] = r.input;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, times);
    return to.reduce("ReduceSum", to.reshape(g, shape), {dim + 1}, false);
  }
  Tensor matrix{to.dtype(g), {r.output, r.input}, {}};
  for (const std::vector<double>& row : rows) {
    for (double weight : row) matrix.bytes += scalar_tensor(matrix.dtype, weight).bytes;
  }
  std::string letters;
  for (std::size_t d = 0; d < shape.size(); ++d) letters += static_cast<char>('a' + d);
  std::string target = letters;
  target[dim] = 'z';
  const std::string pair = {letters[dim], 'z'};
  shape[dim] = r.input;
  return to.einsum(letters + "," + pair + "->" + target, {g, to.constant(matrix)}, shape);
}

}  // namespace

Result<InputGrads> resize_grad(const GradContext& context) {
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(context.op.inputs.size());
  const Op& op = context.op;
  Interpolation how;
  how.mode = op.string_attribute("mode", "nearest");
  how.transformation = op.string_attribute("coordinate_transformation_mode", "half_pixel");
  how.nearest = op.string_attribute("nearest_mode", "round_prefer_floor");
  how.exclude_outside = op.int_attribute("exclude_outside", 0) != 0;
  how.antialias = op.int_attribute("antialias", 0) != 0;
  how.cubic = op.float_attribute("cubic_coeff_a", -0.75);
  AUTOPAR_TRY(all, resamplings(context));
  ValueId grad = context.grad();
  for (std::size_t d = all.size(); d-- > 0;) {
    std::vector<std::vector<double>> rows;
    const bool stays = all[d].input == all[d].output && all[d].scale == 1 &&
                       all[d].roi_begin == 0 && all[d].roi_end == 1;
    for (std::int64_t row = 0; row < all[d].output && !stays; ++row) {
      rows.push_back(weights(how, all[d], row));
    }
    if (!stays) grad = undone(context.to, grad, d, all[d], rows);
  }
  return only_input(context, 0, grad);
}

}  // namespace autopar
