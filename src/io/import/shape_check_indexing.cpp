// Ops that move elements or look them up: places that there are, as many as there are.
#include <algorithm>

#include "io/import/shape_families.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// Indices that look up one element each: of the data's rank, and no larger beside the axis.
Status check_elements(ShapeCheck& check) {
  const auto data = check.shape(0), indices = check.shape(1);
  if (!data || !indices) return Ok{};
  AUTOPAR_TRY(axis, axis_in_range(check, 0));
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"d...", ""}));
  if (indices->size() != data->size()) return check.match(1, "d...");
  for (std::size_t d = 0; d < data->size(); ++d) {
    if (d == axis || (*indices)[d] <= (*data)[d]) continue;
    return input_error("dimension " + std::to_string(d) + " of its " + check.name_of_input(1) +
                       " is " + std::to_string((*indices)[d]) + "; expected at most " +
                       std::to_string((*data)[d]) + ", since its " + check.name_of_input(0) +
                       " is " + to_text(*data));
  }
  return Ok{};
}

// ONNX looks at the data of a scatter alone.
Status check_updates(const ShapeCheck& check, const Shape& expected) {
  const auto updates = check.shape(2);
  if (!updates || *updates == expected) return Ok{};
  return input_error("its updates are " + to_text(*updates) + "; for " +
                     to_text(check.shape(0).value_or(Shape{})) + " and indices " +
                     to_text(check.shape(1).value_or(Shape{})) + " expected " + to_text(expected));
}

Status check_scatter_elements(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(check_elements(check));
  const auto data = check.shape(0), indices = check.shape(1);
  return data && indices ? check_updates(check, *indices) : Status(Ok{});
}

// Each row of indices is of a place, or of the part of the data that it leaves open.
Status check_scatter_nd(ShapeCheck& check) {
  const auto data = check.shape(0), indices = check.shape(1);
  if (!data || !indices || !check.shape(2)) return Ok{};
  const std::int64_t depth = indices->empty() ? 0 : indices->back();
  if (depth < 1 || depth > static_cast<std::int64_t>(data->size())) {
    return input_error("its indices " + to_text(*indices) + " into " + to_text(*data) +
                       " expect 1 to " + std::to_string(data->size()) +
                       " numbers in their last dimension");
  }
  Shape expected(indices->begin(), indices->end() - 1);
  expected.insert(expected.end(), data->begin() + depth, data->end());
  return check_updates(check, expected);
}

// ONNX lets a Reshape pass whose constant target holds another number of elements.
Status check_reshape(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"...", "_"}));
  const auto from = check.shape(0), to = check.output();
  if (!from || !to || element_count(*from) == element_count(*to)) return Ok{};
  return input_error("cannot give " + to_text(*from) + " the shape " + to_text(*to) +
                     ", which has another number of elements");
}

Status check_gather_nd(ShapeCheck& check) {
  const auto data = check.shape(0);
  const std::int64_t count = int_of(check.node(), "batch_dims", 0);
  if (!data) return Ok{};
  if (count < 0 || count >= static_cast<std::int64_t>(data->size())) {
    return input_error("attribute 'batch_dims' is " + std::to_string(count) +
                       "; expected 0 or more, and less than the " + std::to_string(data->size()) +
                       " dimensions of its " + check.name_of_input(0));
  }
  std::string batches;
  for (std::int64_t d = 0; d < count; ++d) {
    batches += "batch" + std::to_string(d) + " ";
  }
  return match_all(check, {batches + "...", batches + "..."});
}

Status check_reversed(ShapeCheck& check) {
  const bool batch_first = int_of(check.node(), "batch_axis", 1) == 0;
  return match_all(check, {batch_first ? "batch time ..." : "time batch ...", "batch"});
}

// ONNX lets the numbers of an axis order more or fewer axes than there are.
Status check_transpose(ShapeCheck& check) {
  const auto data = check.shape(0);
  const auto order = ints_of(check.node(), "perm");
  if (!data || order.empty() || order.size() == data->size()) return Ok{};
  return input_error("attribute 'perm' is " + to_text(order) + "; expected " +
                     std::to_string(data->size()) + " numbers, since its " +
                     check.name_of_input(0) + " is " + to_text(*data));
}

// Equal parts of which the last one may be smaller, but is there.
Status check_split(ShapeCheck& check) {
  const auto data = check.shape(0);
  const std::int64_t parts = int_of(check.node(), "num_outputs", 0);
  if (!data || parts < 1) return check.match(1, "parts");
  AUTOPAR_TRY(axis, axis_in_range(check, 0));
  const std::int64_t outputs = check.node().output_size();
  if (parts < outputs) {
    return input_error("attribute 'num_outputs' is " + std::to_string(parts) +
                       "; expected its number of outputs, " + std::to_string(outputs));
  }
  const std::int64_t extent = (*data)[axis], part = (extent + parts - 1) / parts;
  if (extent == 0 || (parts <= extent && part * (outputs - 1) < extent)) return Ok{};
  return input_error("attribute 'num_outputs' is " + std::to_string(parts) + ", and dimension " +
                     std::to_string(axis) + " of its " + check.name_of_input(0) + " is " +
                     std::to_string(extent) + ", which does not make so many parts of " +
                     std::to_string(part));
}

Status check_cumulative(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"_ ...", "#"}));
  const auto data = check.shape(0);
  const auto axis = check.ints(1);
  if (!data || !axis || axis->size() != 1 || normal_axis(axis->front(), data->size())) return Ok{};
  return input_error("its " + check.name_of_input(1) + " is " + std::to_string(axis->front()) +
                     "; expected a dimension of its " + check.name_of_input(0) + ", " +
                     to_text(*data));
}

// A reflection has what is inside, without the edge.
Status check_pad(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"...", "_", "#", "_"}));
  const auto data = check.shape(0);
  const auto pads = check.ints(1);
  if (!data || !pads || check.shape(3) || pads->size() != 2 * data->size()) return Ok{};
  bool reflects = false;
  for (const auto& attribute : check.node().attribute()) {
    reflects = reflects || (attribute.name() == "mode" && attribute.s() == "reflect");
  }
  for (std::size_t i = 0; i < pads->size() && reflects; ++i) {
    const std::int64_t extent = (*data)[i % data->size()];
    if ((*pads)[i] < std::max<std::int64_t>(extent, 1)) continue;
    return input_error("its " + check.name_of_input(1) + " is " + to_text(*pads) +
                       "; expected less than dimension " + std::to_string(i % data->size()) +
                       " of its " + check.name_of_input(0) + ", " + std::to_string(extent) +
                       ", which is reflected");
  }
  return Ok{};
}

// No more is written than there is room for.
Status check_tensor_scatter(ShapeCheck& check) {
  const auto cache = check.shape(0), update = check.shape(1);
  if (!cache || !update || cache->size() != update->size()) return Ok{};
  AUTOPAR_TRY(axis, axis_in_range(check, -2));
  if ((*update)[axis] <= (*cache)[axis]) return Ok{};
  return input_error("dimension " + std::to_string(axis) + " of its " + check.name_of_input(1) +
                     " is " + std::to_string((*update)[axis]) + "; expected at most " +
                     std::to_string((*cache)[axis]) + ", since its " + check.name_of_input(0) +
                     " is " + to_text(*cache));
}

}  // namespace

const ShapeChecks& indexing_checks() {
  static const ShapeChecks checks = {
      {"CumProd", check_cumulative},
      {"CumSum", check_cumulative},
      {"GatherElements", check_elements},
      {"GatherND", check_gather_nd},
      {"Pad", check_pad},
      {"Reshape", check_reshape},
      {"ReverseSequence", check_reversed},
      {"ScatterElements", check_scatter_elements},
      {"ScatterND", check_scatter_nd},
      {"Split", check_split},
      {"TensorScatter", check_tensor_scatter},
      {"Transpose", check_transpose},
  };
  return checks;
}

}  // namespace autopar
