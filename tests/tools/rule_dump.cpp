// Reads op instances as JSON on stdin and writes, for every mesh and every valid assignment, the
// specs and the local program as JSON on stdout. tests/rule_oracle_test.py executes them.
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/ops.hpp"

namespace {

using namespace autopar;
using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  const char* digits = "0123456789abcdef";
  std::string hex;
  for (unsigned char c : bytes) {
    hex += digits[c >> 4];
    hex += digits[c & 15];
  }
  return hex;
}

Tensor read_tensor(const json& in) {
  return {*parse_dtype(in.at("dtype")), in.at("shape").get<Shape>(), from_hex(in.at("hex"))};
}

json write_tensor(const Tensor& tensor) {
  return {{"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"hex", to_hex(tensor.bytes)}};
}

Attribute read_attribute(const json& in) {
  const std::string kind = in.at("kind");
  const json& value = in.at("value");
  if (kind == "int") return value.get<std::int64_t>();
  if (kind == "float") return value.get<double>();
  if (kind == "string") return value.get<std::string>();
  if (kind == "ints") return value.get<std::vector<std::int64_t>>();
  if (kind == "floats") return value.get<std::vector<double>>();
  if (kind == "strings") return value.get<std::vector<std::string>>();
  return read_tensor(value);
}

struct WriteAttribute {
  json operator()(std::int64_t v) const { return {{"kind", "int"}, {"value", v}}; }
  json operator()(double v) const { return {{"kind", "float"}, {"value", v}}; }
  json operator()(const std::string& v) const { return {{"kind", "string"}, {"value", v}}; }
  json operator()(const IntList& v) const { return {{"kind", "ints"}, {"value", v.values()}}; }
  json operator()(const std::vector<double>& v) const { return {{"kind", "floats"}, {"value", v}}; }
  json operator()(const std::vector<std::string>& v) const {
    return {{"kind", "strings"}, {"value", v}};
  }
  json operator()(const Tensor& v) const {
    return {{"kind", "tensor"}, {"value", write_tensor(v)}};
  }
};

Graph read_case(const json& in) {
  Graph graph;
  graph.name = in.at("name");
  graph.opset = in.at("opset");
  std::map<std::string, ValueId> ids;
  const auto add = [&](const json& value, ValueKind kind) {
    Value added;
    added.name = value.at("name");
    added.dtype = *parse_dtype(value.at("dtype"));
    added.shape = value.at("shape").get<Shape>();
    added.kind = kind;
    if (value.contains("hex")) {
      added.kind = ValueKind::kConstant;
      added.data = read_tensor(value);
    }
    return ids[added.name] = graph.add_value(added);
  };
  Op op;
  op.name = "op";
  op.type = in.at("type");
  for (const json& value : in.at("inputs")) {
    if (value.is_null()) {
      op.inputs.emplace_back();
      continue;
    }
    const bool known = ids.count(value.at("name")) != 0;
    op.inputs.push_back(known ? ids.at(value.at("name")) : add(value, ValueKind::kInput));
    if (!known && graph.value(op.inputs.back()).kind == ValueKind::kInput) {
      graph.inputs.push_back(op.inputs.back());
    }
  }
  for (const json& value : in.at("outputs")) {
    op.outputs.push_back(value.is_null() ? ValueId() : add(value, ValueKind::kActivation));
  }
  for (const auto& [name, value] : in.at("attributes").items()) {
    op.attributes[name] = read_attribute(value);
  }
  graph.outputs = op.outputs;
  std::erase_if(graph.outputs, [](ValueId id) { return !id.valid(); });
  graph.add_op(op);
  return graph;
}

Mesh make_test_mesh(const std::vector<std::int64_t>& sizes) {
  Mesh mesh;
  std::int64_t stride = 1;
  for (std::size_t a = sizes.size(); a-- > 0; stride *= sizes[a]) {
    mesh.axes.insert(mesh.axes.begin(), {"x" + std::to_string(a), sizes[a], 0, stride});
  }
  return mesh;
}

json write_specs(const std::vector<Spec>& specs) {
  json out = json::array();
  for (const Spec& spec : specs) {
    out.push_back(
        {{"dims", spec.dims}, {"partial", spec.partial}, {"reduction", name_of(spec.reduction)}});
  }
  return out;
}

json write_program(const Graph& program) {
  json values = json::array(), ops = json::array();
  for (const Value& value : program.values) {
    json entry = {{"name", value.name}, {"dtype", name_of(value.dtype)}, {"shape", value.shape}};
    if (const Tensor* tensor = value.tensor()) entry["hex"] = to_hex(tensor->bytes);
    values.push_back(entry);
  }
  const auto names = [&](const std::vector<ValueId>& ids) {
    json out = json::array();
    for (ValueId id : ids) out.push_back(id.valid() ? program.value(id).name : "");
    return out;
  };
  for (const Op& op : program.ops) {
    json attributes = json::object();
    for (const auto& [name, value] : op.attributes) {
      attributes[name] = std::visit(WriteAttribute{}, value);
    }
    ops.push_back({{"type", op.type},
                   {"domain", op.domain},
                   {"inputs", names(op.inputs)},
                   {"outputs", names(op.outputs)},
                   {"attributes", attributes}});
  }
  return {{"values", values}, {"ops", ops}, {"outputs", names(program.outputs)}};
}

// The program of one op: what the partitioner would build around it.
Result<json> run_of(const Graph& graph, const Rule& rule, const Assignment& assignment,
                    const Mesh& mesh) {
  const Op& op = graph.ops[0];
  const auto specs = specs_of(rule, assignment, mesh);
  if (!specs) return input_error("a candidate without specs");
  Graph program;
  program.opset = graph.opset;
  Names value_names, op_names;
  std::vector<ValueId> inputs(op.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    Value value = graph.value(op.inputs[i]);
    // Inputs that come twice may lie differently.
    value.name = value_names.unique("in" + std::to_string(i));
    value.shape = local_shape(specs->inputs[i], value.shape, mesh);
    // Only what describes the op stays a constant: the rest is data that comes in sliced.
    if (value.kind == ValueKind::kConstant && !is_replicated(specs->inputs[i])) {
      value.kind = ValueKind::kInput;
      value.data = {};
    }
    inputs[i] = program.add_value(value);
    if (value.kind == ValueKind::kInput) program.inputs.push_back(inputs[i]);
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    names.push_back(op.has_output(i) ? graph.value(op.outputs[i]).name : "");
  }
  AUTOPAR_TRY(outputs, localise({graph, op, rule, assignment, *specs, mesh, program, value_names,
                                 op_names, inputs, names}));
  for (ValueId output : outputs) {
    if (output.valid()) program.outputs.push_back(output);
  }
  AUTOPAR_RETURN_IF_ERROR(verify(program));
  return json{{"mesh", mesh.sizes()},
              {"assignment", to_text(assignment, rule, mesh)},
              {"plain", is_plain_local(graph, op, rule, assignment)},
              {"inputs", write_specs(specs->inputs)},
              {"outputs", write_specs(specs->outputs)},
              {"program", write_program(program)}};
}

Result<json> dump_case(const json& in, const std::vector<std::vector<std::int64_t>>& meshes) {
  const Graph graph = read_case(in);
  AUTOPAR_RETURN_IF_ERROR(verify(graph));
  const Op& op = graph.ops[0];
  UserRules user;
  if (in.contains("user_rule")) user.text_of_type[op.type] = in.at("user_rule");
  AUTOPAR_TRY(found, rule_of(graph, op, user));
  // The text form reads back as the same rule.
  AUTOPAR_TRY(again, parse_rule(to_text(found.rule), shapes_of(graph, op)));
  if (to_text(again) != to_text(found.rule)) {
    return input_error("\"" + to_text(found.rule) + "\" reads back as \"" + to_text(again) + "\"");
  }
  json runs = json::array();
  for (const auto& sizes : meshes) {
    const Mesh mesh = make_test_mesh(sizes);
    std::vector<Assignment> all = candidates(found.rule, mesh);
    const std::vector<Assignment> moving = moving_candidates(found.rule, mesh);
    all.insert(all.end(), moving.begin(), moving.end());
    for (const Assignment& assignment : all) {
      auto run = run_of(graph, found.rule, assignment, mesh);
      if (!run) return input_error(to_text(assignment, found.rule, mesh) + run.error().message);
      runs.push_back(*run);
    }
  }
  return json{{"name", in.at("name")},
              {"rule", to_text(found.rule)},
              {"has_rule", found.has_rule},
              {"runs", runs}};
}

}  // namespace

int main() {
  const json request = json::parse(std::cin);
  json results = json::array();
  for (const json& in : request.at("cases")) {
    std::cerr << in.at("name") << "\n";
    const auto meshes = in.contains("meshes") ? in.at("meshes") : request.at("meshes");
    auto result = dump_case(in, meshes.get<std::vector<std::vector<std::int64_t>>>());
    results.push_back(result ? *result : json{{"error", result.error().message}});
  }
  std::cout << json{{"cases", results}}.dump() << "\n";
}
