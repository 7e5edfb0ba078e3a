#include "io/import/shape_check.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "io/import/shape_patterns.hpp"
#include "ops/equation.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

Status match_all(ShapeCheck& check, const std::vector<std::string>& patterns) {
  for (std::size_t port = 0; port < patterns.size(); ++port) {
    if (!patterns[port].empty()) AUTOPAR_RETURN_IF_ERROR(check.match(port, patterns[port]));
  }
  return Ok{};
}

// The last `rank` of the words, each of which may be 1: what broadcasts to them.
std::string broadcast_to(const std::vector<std::string>& words, std::size_t rank) {
  std::string pattern;
  for (std::size_t d = words.size() - std::min(rank, words.size()); d < words.size(); ++d) {
    pattern += (pattern.empty() ? "" : " ") + words[d] + "?";
  }
  return pattern;
}

std::vector<std::string> numbered(const std::string& word, std::size_t count) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < count; ++i) words.push_back(word + std::to_string(i));
  return words;
}

// Where an op's axis lies, for ops whose axis ONNX takes as it is.
Result<std::size_t> axis_in_range(const ShapeCheck& check, std::int64_t otherwise) {
  const Shape data = check.shape(0).value_or(Shape{});
  const std::int64_t axis = int_of(check.node(), "axis", otherwise);
  if (const auto d = normal_axis(axis, data.size())) return *d;
  const std::int64_t rank = static_cast<std::int64_t>(data.size());
  return input_error("attribute 'axis' is " + std::to_string(axis) + "; expected " +
                     std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", since its " +
                     check.name_of_input(0) + " is " + to_text(data));
}

Status check_axis(ShapeCheck& check) {
  AUTOPAR_TRY(axis, axis_in_range(check, -1));
  static_cast<void>(axis);
  return Ok{};
}

// Kernels have the extents that the attribute says, where it is there, and fit into the image.
Status check_kernel(ShapeCheck& check, std::size_t image,
                    const std::vector<std::string>& patterns) {
  const auto kernel = ints_of(check.node(), "kernel_shape");
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    check.set("kernel" + std::to_string(i), kernel[i], "kernel_shape is " + to_text(kernel));
  }
  const auto shape = check.shape(image), output = check.output();
  if (shape && shape->size() > 2) check.set_rest("kernel", shape->size() - 2);
  AUTOPAR_RETURN_IF_ERROR(match_all(check, patterns));
  if (!shape || !output || element_count(*shape) == 0) return Ok{};
  for (std::size_t d = 2; d < output->size(); ++d) {
    if ((*output)[d] > 0) continue;
    return input_error("dimension " + std::to_string(d) + " of its " + check.name_of_input(image) +
                       " is " + std::to_string((*shape)[d]) +
                       "; expected, with the padding, at least the extent of the kernel");
  }
  return Ok{};
}

Status check_conv(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "group*features"});
}

// Where the padding is told to make the output as large as the strides say, runtimes make it so,
// and ONNX's inference adds what `output_padding` says.
Status check_conv_transpose(ShapeCheck& check) {
  const std::vector<std::int64_t> added = ints_of(check.node(), "output_padding");
  const bool adds = std::any_of(added.begin(), added.end(), [](std::int64_t n) { return n != 0; });
  for (const auto& attribute : check.node().attribute()) {
    if (!adds || attribute.name() != "auto_pad" || attribute.s().rfind("SAME", 0) != 0) continue;
    return input_error("attribute 'auto_pad' is " + attribute.s() + " and 'output_padding' " +
                       to_text(added) +
                       "; expected one of them, since runtimes disagree on both; say 'pads'");
  }
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*channels features kernel...", "group*features"});
}

Status check_conv_integer(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "#", "# group*features"});
}

Status check_quantised_conv(ShapeCheck& check) {
  return check_kernel(check, 0,
                      {"batch group*channels ...", "#", "#", "group*features channels kernel...",
                       "# group*features", "# group*features", "#", "#", "group*features"});
}

Status check_deformable(ShapeCheck& check) {
  const auto output = check.output();
  if (output && output->size() == 4) {
    check.set("rows", (*output)[2], "its output is " + to_text(*output));
    check.set("columns", (*output)[3], "its output is " + to_text(*output));
  }
  return check_kernel(check, 0,
                      {"batch group*channels height width", "group*features channels kernel...",
                       "batch offset_group*2*kernel0*kernel1 rows columns", "group*features",
                       "batch offset_group*kernel0*kernel1 rows columns"});
}

Status check_recurrent(ShapeCheck& check, const std::string& gates) {
  bool both = false;
  for (const auto& attribute : check.node().attribute()) {
    both = both || (attribute.name() == "direction" && attribute.s() == "bidirectional");
  }
  check.set("directions", both ? 2 : 1, both ? "it is bidirectional" : "it has one direction");
  const bool batch_first = int_of(check.node(), "layout", 0) != 0;
  const std::string state =
      batch_first ? "batch directions hidden_size" : "directions batch hidden_size";
  return match_all(check, {batch_first ? "batch time inputs" : "time batch inputs",
                           "directions " + gates + "*hidden_size inputs",
                           "directions " + gates + "*hidden_size hidden_size",
                           "directions 2*" + gates + "*hidden_size", "batch", state, state,
                           "directions 3*hidden_size"});
}

Status check_rnn(ShapeCheck& check) { return check_recurrent(check, "1"); }
Status check_gru(ShapeCheck& check) { return check_recurrent(check, "3"); }
Status check_lstm(ShapeCheck& check) { return check_recurrent(check, "4"); }

// Scale and bias broadcast to the dimensions that they are aligned with.
Status check_layer(ShapeCheck& check) {
  const auto data = check.shape(0);
  if (!data) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(check_axis(check));
  AUTOPAR_RETURN_IF_ERROR(check.match(0, "d..."));
  for (const std::size_t port : {std::size_t{1}, std::size_t{2}}) {
    const auto shape = check.shape(port);
    if (!shape) continue;
    AUTOPAR_RETURN_IF_ERROR(
        check.match(port, broadcast_to(numbered("d", data->size()), shape->size())));
  }
  return Ok{};
}

Status check_gemm(ShapeCheck& check) {
  const bool a = int_of(check.node(), "transA", 0) != 0, b = int_of(check.node(), "transB", 0) != 0;
  const auto c = check.shape(2);
  return match_all(check, {a ? "inner rows" : "rows inner", b ? "columns inner" : "inner columns",
                           c ? broadcast_to({"rows", "columns"}, c->size()) : ""});
}

// The mask broadcasts to [batch, heads, queries, total]; since opset 24 it may end earlier.
Status check_attention_mask(ShapeCheck& check, std::int64_t keys) {
  const auto mask = check.shape(3);
  if (!mask) return Ok{};
  const auto past = check.shape(4);
  const std::int64_t total = keys + (past && past->size() == 4 ? (*past)[2] : 0);
  check.set("total", total, "there are " + std::to_string(total) + " keys with those of the past");
  std::vector<std::string> words = {"batch", "q_num_heads", "queries", "total"};
  std::string pattern = broadcast_to(words, mask->size());
  if (check.version() >= 24 && !mask->empty() && mask->back() < total) {
    pattern = pattern.substr(0, pattern.size() - std::string("total?").size()) + "_";
  }
  return check.match(3, pattern);
}

Status check_attention(ShapeCheck& check) {
  const auto query = check.shape(0), key = check.shape(1);
  if (!query || !key) return Ok{};
  const bool flat = query->size() == 3;
  const std::size_t token_dim = flat ? 1 : 2;
  if (flat) {
    AUTOPAR_RETURN_IF_ERROR(
        match_all(check, {"batch queries q_num_heads*head", "batch keys kv_num_heads*head",
                          "batch keys kv_num_heads*value"}));
  } else {
    AUTOPAR_RETURN_IF_ERROR(match_all(
        check,
        {"batch heads queries head", "batch kv_heads keys head", "batch kv_heads keys value"}));
  }
  const std::int64_t heads = flat ? int_of(check.node(), "q_num_heads", 0) : (*query)[1];
  const std::int64_t groups = flat ? int_of(check.node(), "kv_num_heads", 0) : (*key)[1];
  if (heads < 1 || groups < 1 || heads % groups != 0) {
    return input_error("its queries have " + std::to_string(heads) +
                       " heads; expected a multiple of the " + std::to_string(groups) +
                       " heads of its keys and values");
  }
  check.set("q_num_heads", heads, "its queries have " + std::to_string(heads) + " heads");
  check.set("kv_heads", groups, "its keys have " + std::to_string(groups) + " heads");
  AUTOPAR_RETURN_IF_ERROR(match_all(
      check, {"", "", "", "", "batch kv_heads past head", "batch kv_heads past value", "batch"}));
  return check_attention_mask(check, (*key)[token_dim]);
}

// Caches are looked up by the position of a token, or have a row for each.
Status check_rotary(ShapeCheck& check) {
  const auto data = check.shape(0);
  if (!data || data->empty()) return Ok{};
  const std::int64_t turned = int_of(check.node(), "rotary_embedding_dim", 0);
  std::string head = "2*half";
  if (turned != 0) {
    check.set("half", turned / 2, "rotary_embedding_dim is " + std::to_string(turned));
    head = "head";
  }
  const bool flat = data->size() == 3;
  if (!flat && turned > data->back()) {
    return input_error("attribute 'rotary_embedding_dim' is " + std::to_string(turned) +
                       "; expected at most dimension 3 of its " + check.name_of_input(0) + ", " +
                       std::to_string(data->back()));
  }
  if (flat && int_of(check.node(), "num_heads", 0) < 1) {
    return input_error("attribute 'num_heads' is out of range: expected at least 1, since its " +
                       check.name_of_input(0) + " has 3 dimensions");
  }
  const std::string cache = check.shape(3) ? "positions half" : "batch tokens half";
  return match_all(check, {flat ? "batch tokens num_heads*" + head : "batch heads tokens " + head,
                           cache, cache, "batch tokens"});
}

// A scale for the whole tensor, for each slice of one axis, or for each block along it.
Status check_scales(ShapeCheck& check) {
  const auto data = check.shape(0), scale = check.shape(1);
  if (!data || !scale) return Ok{};
  const std::int64_t block = int_of(check.node(), "block_size", 0);
  const bool one = scale->size() <= 1 && element_count(*scale) == 1;
  if (block == 0 && one) return check.match(2, "#");
  AUTOPAR_TRY(axis, axis_in_range(check, 1));
  const std::string along = "d" + std::to_string(axis);
  AUTOPAR_RETURN_IF_ERROR(check.match(0, "d..."));
  if (block == 0) return match_all(check, {"", along, along});
  if (block < 0) return input_error("attribute 'block_size' is out of range: expected at least 0");
  const std::int64_t blocks = (*data)[axis] / block + ((*data)[axis] % block != 0 ? 1 : 0);
  check.set(along, blocks,
            "there are " + std::to_string(blocks) + " blocks of " + std::to_string(block) +
                " in dimension " + std::to_string(axis));
  return match_all(check, {"", "d...", "d..."});
}

// Every letter is of one size wherever it stands; 1 is broadcast.
Status check_einsum(ShapeCheck& check) {
  std::string text;
  for (const auto& attribute : check.node().attribute()) {
    if (attribute.name() == "equation") text = attribute.s();
  }
  const std::size_t count = static_cast<std::size_t>(check.node().input_size());
  const auto equation = parse_equation(text, count);
  if (!equation || equation->inputs.size() != count) return Ok{};  // as ONNX finds it
  for (std::size_t port = 0; port < count; ++port) {
    const auto shape = check.shape(port);
    const std::string& letters = equation->inputs[port];
    const std::size_t gap = letters.find('.');
    if (!shape || (gap == std::string::npos && letters.size() != shape->size()) ||
        letters.size() > shape->size() + 1) {
      continue;
    }
    std::string pattern;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (i == gap) {
        for (std::size_t d = letters.size() - 1; d < shape->size(); ++d) pattern += " _";
      } else {
        pattern += std::string(" ") + letters[i] + "?";
      }
    }
    AUTOPAR_RETURN_IF_ERROR(check.match(port, pattern.empty() ? pattern : pattern.substr(1)));
  }
  return Ok{};
}

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

Status check_prelu(ShapeCheck& check) {
  const auto data = check.shape(0), slope = check.shape(1);
  if (!data || !slope) return Ok{};
  return match_all(check, {"d...", broadcast_to(numbered("d", data->size()), slope->size())});
}

Status check_group_normalisation(ShapeCheck& check) {
  const std::string scale = check.version() < 21 ? "num_groups" : "num_groups*width";
  return match_all(check, {"batch num_groups*width ...", "# " + scale, "# " + scale});
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

// Zero points and scales of products: one number, or one for each row of A or column of B.
Status check_product(ShapeCheck& check, std::size_t b, const std::vector<std::size_t>& of_a,
                     const std::vector<std::size_t>& of_b) {
  const auto left = check.shape(0), right = check.shape(b);
  if (!left || !right || left->size() < 2 || right->size() < 2) return Ok{};
  const auto match_vectors = [&](const std::vector<std::size_t>& ports, const char* word,
                                 std::int64_t extent, std::size_t of) -> Status {
    check.set(word, extent, "its " + check.name_of_input(of) + " has " + std::to_string(extent));
    for (const std::size_t port : ports) {
      const auto shape = check.shape(port);
      if (!shape || shape->size() > 1) continue;
      AUTOPAR_RETURN_IF_ERROR(check.match(port, std::string("# ") + word));
    }
    return Ok{};
  };
  AUTOPAR_RETURN_IF_ERROR(match_vectors(of_a, "rows", (*left)[left->size() - 2], 0));
  return match_vectors(of_b, "columns", right->back(), b);
}

Status check_integer_product(ShapeCheck& check) { return check_product(check, 1, {2}, {3}); }

Status check_quantised_product(ShapeCheck& check) {
  return check_product(check, 3, {1, 2, 6, 7}, {4, 5});
}

// One affine matrix for each image of the size that is given: [N, C, H, W] or [N, C, D, H, W].
Status check_affine(ShapeCheck& check) {
  const auto size = check.ints(1);
  if (!size || (size->size() != 4 && size->size() != 5)) return check.match(1, "_");
  check.set("batch", size->front(), "size is " + to_text(*size));
  return check.match(0, size->size() == 4 ? "batch 2 3" : "batch 3 4");
}

// Columns are the places of a block in the padded image.
Status check_columns(ShapeCheck& check) {
  const auto image = check.ints(1), block = check.ints(2);
  if (!image || !block || image->size() != block->size()) return Ok{};
  const std::size_t dims = image->size();
  const auto of_dims = [&](const char* name, std::size_t count, std::int64_t otherwise) {
    auto numbers = ints_of(check.node(), name);
    return numbers.size() == count ? numbers : std::vector<std::int64_t>(count, otherwise);
  };
  const auto strides = of_dims("strides", dims, 1), dilations = of_dims("dilations", dims, 1);
  const auto pads = of_dims("pads", 2 * dims, 0);
  std::int64_t elements = 1, places = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::array numbers = {(*image)[d], (*block)[d], pads[d], pads[d + dims], dilations[d]};
    const bool possible = std::all_of(numbers.begin(), numbers.end(), [](std::int64_t number) {
      return number >= 0 && number < (std::int64_t{1} << 30);
    });
    const std::int64_t span = possible ? dilations[d] * ((*block)[d] - 1) + 1 : 0;
    const std::int64_t room = possible ? (*image)[d] + pads[d] + pads[d + dims] - span : -1;
    if (room < 0 || (*block)[d] < 1) {
      return input_error("its block_shape is " + to_text(*block) +
                         "; expected one that fits into the padded image of image_shape " +
                         to_text(*image));
    }
    elements = bounded_product(elements, (*block)[d]);
    places = bounded_product(places, room / strides[d] + 1);
  }
  check.set("block", elements, "block_shape is " + to_text(*block));
  check.set("places", places,
            "image_shape is " + to_text(*image) + ", block_shape " + to_text(*block));
  return check.match(0, "batch block*channels places");
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

// A window that lies in the padding alone has no elements.
Status check_pool(ShapeCheck& check) {
  const auto kernel = ints_of(check.node(), "kernel_shape"), pads = ints_of(check.node(), "pads");
  for (std::size_t i = 0; i < pads.size() && !kernel.empty(); ++i) {
    if (pads[i] < kernel[i % kernel.size()]) continue;
    return input_error("attribute 'pads' is " + to_text(pads) +
                       "; expected less than kernel_shape " + to_text(kernel) + " everywhere");
  }
  return Ok{};
}

using CheckFunction = Status (*)(ShapeCheck&);

// What ONNX's inference does not compare. Ops whose inputs have one pattern each need no function.
const std::map<std::string_view, std::vector<std::string>>& patterns_of_ops() {
  static const std::map<std::string_view, std::vector<std::string>> patterns = {
      {"BatchNormalization",
       {"batch channels ...", "channels", "channels", "channels", "channels"}},
      {"CenterCropPad", {"...", "_"}},
      {"Clip", {"...", "#", "#"}},
      {"DepthToSpace", {"batch blocksize*blocksize*channels height width"}},
      {"InstanceNormalization", {"batch channels _ ...", "channels", "channels"}},
      {"MaxRoiPool", {"batch channels height width", "regions 5"}},
      {"MaxUnpool", {"d...", "d..."}},
      {"NegativeLogLikelihoodLoss", {"batch classes d...", "batch d...", "classes"}},
      {"ReduceL1", {"...", "_"}},
      {"ReduceL2", {"...", "_"}},
      {"ReduceLogSum", {"...", "_"}},
      {"ReduceLogSumExp", {"...", "_"}},
      {"ReduceMax", {"...", "_"}},
      {"ReduceMean", {"...", "_"}},
      {"ReduceMin", {"...", "_"}},
      {"ReduceProd", {"...", "_"}},
      {"ReduceSum", {"...", "_"}},
      {"ReduceSumSquare", {"...", "_"}},
      {"Slice", {"...", "slices", "slices", "slices", "slices"}},
      {"SoftmaxCrossEntropyLoss", {"batch classes d...", "batch d...", "classes"}},
      {"SpaceToDepth", {"batch channels blocksize*height blocksize*width"}},
      {"Squeeze", {"...", "_"}},
      {"Trilu", {"...", "#"}},
      {"Unsqueeze", {"...", "# _"}},
  };
  return patterns;
}

const std::map<std::string_view, CheckFunction>& checks_of_ops() {
  static const std::map<std::string_view, CheckFunction> checks = {
      {"AffineGrid", check_affine},
      {"Attention", check_attention},
      {"AveragePool", check_pool},
      {"Col2Im", check_columns},
      {"Conv", check_conv},
      {"ConvInteger", check_conv_integer},
      {"ConvTranspose", check_conv_transpose},
      {"CumProd", check_cumulative},
      {"CumSum", check_cumulative},
      {"DeformConv", check_deformable},
      {"DequantizeLinear", check_scales},
      {"Einsum", check_einsum},
      {"GRU", check_gru},
      {"GatherElements", check_elements},
      {"GatherND", check_gather_nd},
      {"Gemm", check_gemm},
      {"GroupNormalization", check_group_normalisation},
      {"LSTM", check_lstm},
      {"LayerNormalization", check_layer},
      {"LpNormalization", check_axis},
      {"LpPool", check_pool},
      {"MatMulInteger", check_integer_product},
      {"MaxPool", check_pool},
      {"PRelu", check_prelu},
      {"Pad", check_pad},
      {"QLinearConv", check_quantised_conv},
      {"QLinearMatMul", check_quantised_product},
      {"QuantizeLinear", check_scales},
      {"RMSNormalization", check_layer},
      {"RNN", check_rnn},
      {"Reshape", check_reshape},
      {"ReverseSequence", check_reversed},
      {"RotaryEmbedding", check_rotary},
      {"ScatterElements", check_scatter_elements},
      {"ScatterND", check_scatter_nd},
      {"Split", check_split},
      {"TensorScatter", check_tensor_scatter},
      {"Transpose", check_transpose},
  };
  return checks;
}

}  // namespace

Status check_shapes(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                    const std::vector<NodeInput>& inputs,
                    const std::vector<onnx::TypeProto>& outputs) {
  if (!schema.domain().empty()) return Ok{};
  ShapeCheck check(schema, node, inputs, outputs);
  if (const auto found = patterns_of_ops().find(node.op_type()); found != patterns_of_ops().end()) {
    return match_all(check, found->second);
  }
  const auto found = checks_of_ops().find(node.op_type());
  return found == checks_of_ops().end() ? Status(Ok{}) : found->second(check);
}

}  // namespace autopar
