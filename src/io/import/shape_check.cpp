#include "io/import/shape_check.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "io/import/shape_families.hpp"
#include "ops/equation.hpp"
#include "ops/table.hpp"

namespace autopar {

Status match_all(ShapeCheck& check, const std::vector<std::string>& patterns) {
  for (std::size_t port = 0; port < patterns.size(); ++port) {
    if (!patterns[port].empty()) AUTOPAR_RETURN_IF_ERROR(check.match(port, patterns[port]));
  }
  return Ok{};
}

Result<std::size_t> axis_in_range(const ShapeCheck& check, std::int64_t otherwise) {
  const Shape data = check.shape(0).value_or(Shape{});
  const std::int64_t axis = int_of(check.node(), "axis", otherwise);
  if (const auto d = normal_axis(axis, data.size())) return *d;
  const std::int64_t rank = static_cast<std::int64_t>(data.size());
  return input_error("attribute 'axis' is " + std::to_string(axis) + "; expected " +
                     std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", since its " +
                     check.name_of_input(0) + " is " + to_text(data));
}

namespace {

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

Status check_axis(ShapeCheck& check) {
  AUTOPAR_TRY(axis, axis_in_range(check, -1));
  static_cast<void>(axis);
  return Ok{};
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

Status check_prelu(ShapeCheck& check) {
  const auto data = check.shape(0), slope = check.shape(1);
  if (!data || !slope) return Ok{};
  return match_all(check, {"d...", broadcast_to(numbered("d", data->size()), slope->size())});
}

Status check_group_normalisation(ShapeCheck& check) {
  const std::string scale = check.version() < 21 ? "num_groups" : "num_groups*width";
  return match_all(check, {"batch num_groups*width ...", "# " + scale, "# " + scale});
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

const ShapeChecks& checks_of_ops() {
  static const ShapeChecks checks = {
      {"Attention", check_attention},
      {"DequantizeLinear", check_scales},
      {"Einsum", check_einsum},
      {"GRU", check_gru},
      {"Gemm", check_gemm},
      {"GroupNormalization", check_group_normalisation},
      {"LSTM", check_lstm},
      {"LayerNormalization", check_layer},
      {"LpNormalization", check_axis},
      {"MatMulInteger", check_integer_product},
      {"PRelu", check_prelu},
      {"QLinearMatMul", check_quantised_product},
      {"QuantizeLinear", check_scales},
      {"RMSNormalization", check_layer},
      {"RNN", check_rnn},
      {"RotaryEmbedding", check_rotary},
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
  for (const ShapeChecks* checks : {&checks_of_ops(), &image_checks(), &indexing_checks()}) {
    const auto found = checks->find(node.op_type());
    if (found != checks->end()) return found->second(check);
  }
  return Ok{};
}

}  // namespace autopar
