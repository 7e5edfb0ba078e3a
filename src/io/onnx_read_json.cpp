// graph.json (format "autopar-graph") -> onnx::ModelProto of the newest opset, so that both formats
// go the same way from there. Messages start with the place in the file: "ops[3].inputs[1]".
#include <onnx/defs/schema.h>

#include <cmath>
#include <limits>
#include <utility>

#include "io/import/arrays.hpp"
#include "io/import/proto_tensor.hpp"
#include "io/onnx_read.hpp"
#include "json/parse.hpp"

namespace autopar {
namespace {

using JsonValue = nlohmann::json;

constexpr int kOpset = 26;
constexpr std::int64_t kGraphVersion = 1;

Error expected(const std::string& where, const std::string& what, const JsonValue& found) {
  return input_error(where + ": expected " + what + ", found " +
                     (found.is_null() ? "nothing" : found.type_name()));
}

const JsonValue& member(const JsonValue& object, const char* key) {
  static const JsonValue kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Result<std::string> text_of(const JsonValue& json, const std::string& where) {
  if (!json.is_string()) return expected(where, "a string", json);
  return json.get<std::string>();
}

Result<std::int64_t> int_of(const JsonValue& json, const std::string& where) {
  if (json.is_boolean()) return std::int64_t{json.get<bool>()};
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) return expected(where, "a 64-bit integer", json);
  return json.get<std::int64_t>();
}

// JSON has no infinities; they are written as strings.
Result<double> number_of(const JsonValue& json, const std::string& where) {
  if (json.is_boolean()) return json.get<bool>() ? 1.0 : 0.0;
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  if (json == "nan") return std::nan("");
  if (!json.is_number()) return expected(where, "a number", json);
  return json.get<double>();
}

// The members of a list under `key`, each handed to `read` with its place; a missing list is empty.
template <class Read>
Status each(const JsonValue& object, const char* key, const std::string& where, Read read) {
  const JsonValue& list = member(object, key);
  if (list.is_null()) return Ok{};
  const std::string place = where.empty() ? key : where + "." + key;
  if (!list.is_array()) return expected(place, "a list", list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    AUTOPAR_RETURN_IF_ERROR(read(list[i], place + "[" + std::to_string(i) + "]"));
  }
  return Ok{};
}

Result<DType> dtype_of(const JsonValue& object, const std::string& where) {
  AUTOPAR_TRY(name, text_of(member(object, "dtype"), where + ".dtype"));
  const auto dtype = parse_dtype(name);
  if (!dtype) {
    return input_error(where + ".dtype: '" + name +
                       "' is not a type; expected one such as float32, bfloat16, int64, bool");
  }
  return *dtype;
}

// A dimension is a size, or a name that --dim gives a size.
Status read_value(const JsonValue& json, const std::string& where, onnx::ValueInfoProto& info) {
  if (!json.is_object()) return expected(where, "an object", json);
  AUTOPAR_TRY(name, text_of(member(json, "name"), where + ".name"));
  AUTOPAR_TRY(dtype, dtype_of(json, where));
  info.set_name(name);
  auto* type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx_dtype_of(dtype));
  auto* shape = type->mutable_shape();
  if (!member(json, "shape").is_array()) {
    return expected(where + ".shape", "a list", member(json, "shape"));
  }
  return each(json, "shape", where, [&](const JsonValue& dim, const std::string& place) -> Status {
    if (dim.is_string()) {
      shape->add_dim()->set_dim_param(dim.get<std::string>());
      return Ok{};
    }
    AUTOPAR_TRY(extent, int_of(dim, place));
    shape->add_dim()->set_dim_value(extent);
    return Ok{};
  });
}

Result<Tensor> read_tensor(const JsonValue& json, const std::string& where) {
  if (!json.is_object()) return expected(where, "an object with dtype, shape and data", json);
  AUTOPAR_TRY(dtype, dtype_of(json, where));
  Shape shape;
  Ints ints;
  Doubles doubles;
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "shape", where, [&](const JsonValue& dim, const std::string& place) -> Status {
        AUTOPAR_TRY(extent, int_of(dim, place));
        if (extent < 0) return input_error(place + ": a dimension cannot be negative");
        shape.push_back(extent);
        return Ok{};
      }));
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "data", where, [&](const JsonValue& element, const std::string& place) -> Status {
        if (is_floating(dtype)) {
          AUTOPAR_TRY(number, number_of(element, place));
          doubles.push_back(number);
        } else {
          AUTOPAR_TRY(number, int_of(element, place));
          ints.push_back(number);
        }
        return Ok{};
      }));
  const std::size_t found = is_floating(dtype) ? doubles.size() : ints.size();
  if (element_count(shape) != static_cast<std::int64_t>(found)) {
    return input_error(where + ".data: expected " + std::to_string(element_count(shape)) +
                       " numbers for the shape " + to_text(shape) + ", found " +
                       std::to_string(found));
  }
  return is_floating(dtype) ? tensor_of(dtype, shape, doubles) : tensor_of(dtype, shape, ints);
}

// What a JSON value is by itself; numbers without a fraction are integers.
onnx::AttributeProto::AttributeType natural_type(const JsonValue& json) {
  using Proto = onnx::AttributeProto;
  if (json.is_number_integer() || json.is_boolean()) return Proto::INT;
  if (json.is_number()) return Proto::FLOAT;
  if (json.is_string()) return Proto::STRING;
  if (json.is_object()) return Proto::TENSOR;
  if (!json.is_array()) return Proto::UNDEFINED;
  bool strings = !json.empty();
  bool ints = true;
  for (const JsonValue& element : json) {
    strings = strings && element.is_string();
    ints = ints && (element.is_number_integer() || element.is_boolean());
  }
  return strings ? Proto::STRINGS : (ints ? Proto::INTS : Proto::FLOATS);
}

// The op's schema has the last word, so that 1 can be written for 1.0 and [] for any list.
onnx::AttributeProto::AttributeType type_of(const JsonValue& json, const std::string& op_type,
                                            const std::string& name) {
  using Proto = onnx::AttributeProto;
  const auto natural = natural_type(json);
  const auto* schema = onnx::OpSchemaRegistry::Schema(op_type, kOpset);
  if (!schema) return natural;
  const auto found = schema->attributes().find(name);
  if (found == schema->attributes().end()) return natural;
  const auto wanted = found->second.type;
  const bool widens = (natural == Proto::INT && wanted == Proto::FLOAT) ||
                      (natural == Proto::INTS && wanted == Proto::FLOATS) ||
                      (json.is_array() && json.empty());
  return widens ? wanted : natural;
}

Status read_list_attribute(const JsonValue& json, const std::string& where,
                           onnx::AttributeProto& attribute) {
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (attribute.type() == onnx::AttributeProto::STRINGS) {
      AUTOPAR_TRY(text, text_of(json[i], place));
      attribute.add_strings(text);
    } else if (attribute.type() == onnx::AttributeProto::INTS) {
      AUTOPAR_TRY(number, int_of(json[i], place));
      attribute.add_ints(number);
    } else {
      AUTOPAR_TRY(number, number_of(json[i], place));
      attribute.add_floats(static_cast<float>(number));
    }
  }
  return Ok{};
}

Status read_attribute(const JsonValue& json, const std::string& where, const std::string& op_type,
                      onnx::AttributeProto& attribute) {
  using Proto = onnx::AttributeProto;
  const auto type = type_of(json, op_type, attribute.name());
  attribute.set_type(type);
  if (json.is_array()) return read_list_attribute(json, where, attribute);
  if (type == Proto::INT) {
    AUTOPAR_TRY(number, int_of(json, where));
    attribute.set_i(number);
  } else if (type == Proto::FLOAT) {
    AUTOPAR_TRY(number, number_of(json, where));
    attribute.set_f(static_cast<float>(number));
  } else if (type == Proto::STRING) {
    attribute.set_s(json.get<std::string>());
  } else if (type == Proto::TENSOR) {
    AUTOPAR_TRY(tensor, read_tensor(json, where));
    *attribute.mutable_t() = to_proto(tensor);
  } else {
    return expected(where, "a number, a string, a list of these or a tensor", json);
  }
  return Ok{};
}

Status read_op(const JsonValue& json, const std::string& where, onnx::NodeProto& node) {
  if (!json.is_object()) return expected(where, "an object", json);
  AUTOPAR_TRY(type, text_of(member(json, "type"), where + ".type"));
  node.set_op_type(type);
  if (!member(json, "name").is_null()) {
    AUTOPAR_TRY(name, text_of(member(json, "name"), where + ".name"));
    node.set_name(name);
  }
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "inputs", where, [&](const JsonValue& input, const std::string& place) -> Status {
        AUTOPAR_TRY(name, text_of(input, place));
        node.add_input(name);
        return Ok{};
      }));
  AUTOPAR_RETURN_IF_ERROR(each(json, "outputs", where,
                               [&](const JsonValue& output, const std::string& place) -> Status {
                                 AUTOPAR_TRY(name, text_of(output, place));
                                 node.add_output(name);
                                 return Ok{};
                               }));
  const JsonValue& attributes = member(json, "attributes");
  if (attributes.is_null()) return Ok{};
  if (!attributes.is_object()) return expected(where + ".attributes", "an object", attributes);
  for (const auto& [name, value] : attributes.items()) {
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    AUTOPAR_RETURN_IF_ERROR(read_attribute(value, where + ".attributes." + name, type, attribute));
  }
  return Ok{};
}

Status check_header(const JsonValue& json) {
  if (!json.is_object()) return expected("the file", "an object", json);
  if (member(json, "format") != "autopar-graph") {
    return input_error("format: expected \"autopar-graph\", found " +
                       found_text(member(json, "format")));
  }
  if (member(json, "version") != kGraphVersion) {
    return input_error("version: expected " + std::to_string(kGraphVersion) + ", found " +
                       found_text(member(json, "version")));
  }
  for (const char* key : {"inputs", "ops", "outputs"}) {
    if (!member(json, key).is_array()) return expected(key, "a list", member(json, key));
  }
  return Ok{};
}

Status read_constant(const JsonValue& json, const std::string& where, onnx::GraphProto& graph) {
  AUTOPAR_TRY(tensor, read_tensor(json, where));
  AUTOPAR_TRY(name, text_of(member(json, "name"), where + ".name"));
  auto& proto = *graph.add_initializer();
  proto = to_proto(tensor);
  proto.set_name(name);
  return Ok{};
}

Result<ModelFile> read_graph(const JsonValue& json) {
  AUTOPAR_RETURN_IF_ERROR(check_header(json));
  ModelFile file;
  file.data_inputs.emplace();
  auto& opset = *file.model.add_opset_import();
  opset.set_version(kOpset);
  auto& graph = *file.model.mutable_graph();
  if (member(json, "name").is_string()) graph.set_name(json["name"].get<std::string>());
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "inputs", "", [&](const JsonValue& input, const std::string& at) {
        auto& info = *graph.add_input();
        auto status = read_value(input, at, info);
        file.data_inputs->insert(info.name());
        return status;
      }));
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "parameters", "", [&](const JsonValue& parameter, const std::string& at) {
        return read_value(parameter, at, *graph.add_input());
      }));
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "constants", "", [&](const JsonValue& constant, const std::string& at) {
        return read_constant(constant, at, graph);
      }));
  AUTOPAR_RETURN_IF_ERROR(each(json, "ops", "", [&](const JsonValue& op, const std::string& at) {
    return read_op(op, at, *graph.add_node());
  }));
  AUTOPAR_RETURN_IF_ERROR(
      each(json, "outputs", "", [&](const JsonValue& output, const std::string& at) -> Status {
        AUTOPAR_TRY(name, text_of(output, at));
        graph.add_output()->set_name(name);
        return Ok{};
      }));
  return file;
}

}  // namespace

Result<ModelFile> read_graph_json(std::string_view bytes) {
  AUTOPAR_TRY(document, parse_json(bytes, ""));
  return read_graph(document);
}

}  // namespace autopar
