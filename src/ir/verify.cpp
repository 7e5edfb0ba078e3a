// The invariants of a Graph. One pass over values and ops.
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

namespace {

std::string label(const Op& op) { return "op '" + op.name + "' (" + op.type + ")"; }

Status verify_value(const Value& value) {
  const auto where = [&] { return "value '" + value.name + "'"; };
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    if (value.shape[d] < 0) {
      return input_error(where() + ": dimension " + std::to_string(d) + " is " +
                         std::to_string(value.shape[d]) +
                         "; expected a static extent of at least 0");
    }
  }
  if (element_count(value.shape) >= kMaxElements) {
    return input_error(where() + ": shape " + to_text(value.shape) + " has too many elements");
  }
  if (value.kind == ValueKind::kConstant && !value.has_data()) {
    return input_error(where() + " is a constant without data");
  }
  if (value.has_data() && value.kind != ValueKind::kConstant &&
      value.kind != ValueKind::kParameter) {
    return input_error(where() + " has data but is neither a constant nor a parameter");
  }
  const Tensor* tensor = value.tensor();
  if (!tensor) return Ok{};
  if (tensor->dtype != value.dtype || tensor->shape != value.shape) {
    return input_error(where() + " is " + name_of(value.dtype) + to_text(value.shape) +
                       " but its data is " + name_of(tensor->dtype) + to_text(tensor->shape));
  }
  if (static_cast<Bytes>(tensor->bytes.size()) != value.bytes()) {
    return input_error(where() + ": expected " + std::to_string(value.bytes()) +
                       " bytes of data, found " + std::to_string(tensor->bytes.size()));
  }
  return Ok{};
}

Status verify_values(const Graph& graph) {
  std::unordered_set<std::string_view> names(graph.values.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.name.empty()) {
      return input_error("value number " + std::to_string(i) + " has no name");
    }
    if (!names.insert(value.name).second) {
      return input_error("two values are named '" + value.name + "'; names must be unique");
    }
    AUTOPAR_RETURN_IF_ERROR(verify_value(value));
    if (value.producer.valid() && value.producer.index() >= graph.ops.size()) {
      return input_error("value '" + value.name + "' is produced by an op that does not exist");
    }
    if (value.producer.valid() && value.kind != ValueKind::kActivation) {
      return input_error("value '" + value.name + "' is produced by " +
                         label(graph.op(value.producer)) + " but is not an activation");
    }
  }
  return Ok{};
}

// Errors go on after the name of the reader.
Status verify_read(const Graph& graph, ValueId id, std::size_t before) {
  if (id.index() >= graph.values.size()) {
    return input_error(" reads a value that does not exist");
  }
  const Value& value = graph.value(id);
  if (value.kind == ValueKind::kActivation && !value.producer.valid()) {
    return input_error(" reads '" + value.name + "', which nothing produces");
  }
  if (value.producer.valid() && value.producer.index() >= before) {
    return input_error(" reads '" + value.name + "' before " + label(graph.op(value.producer)) +
                       " produces it; ops must be in " + "topological order");
  }
  return Ok{};
}

// `produced`: per value.
Status verify_op(const Graph& graph, std::size_t index, std::vector<char>& produced) {
  const Op& op = graph.ops[index];
  for (ValueId input : op.inputs) {
    if (!input.valid()) continue;
    if (Status read = verify_read(graph, input, index); !read) {
      return input_error(label(op) + read.error().message);
    }
  }
  for (ValueId output : op.outputs) {
    if (!output.valid()) continue;
    if (output.index() >= graph.values.size()) {
      return input_error(label(op) + " produces a value that does not exist");
    }
    const Value& value = graph.value(output);
    if (std::exchange(produced[output.index()], char{1}) != 0) {
      return input_error(label(op) + " produces '" + value.name + "' a second time");
    }
    if (value.producer != OpId(static_cast<std::int64_t>(index))) {
      return input_error(label(op) + " produces '" + value.name +
                         "', which names another producer or none");
    }
  }
  return Ok{};
}

Status verify_boundary(const Graph& graph) {
  std::vector<char> is_input(graph.values.size());
  for (ValueId id : graph.inputs) {
    if (!id.valid() || id.index() >= graph.values.size()) {
      return input_error("a graph input does not exist");
    }
    const Value& value = graph.value(id);
    if (value.kind != ValueKind::kInput && value.kind != ValueKind::kParameter) {
      return input_error("graph input '" + value.name +
                         "' is neither of kind input nor of kind parameter");
    }
    if (std::exchange(is_input[id.index()], char{1}) != 0) {
      return input_error("graph input '" + value.name + "' is listed twice");
    }
  }
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].kind == ValueKind::kInput && is_input[i] == 0) {
      return input_error("value '" + graph.values[i].name +
                         "' is of kind input but the graph does not list it as an input");
    }
  }
  for (ValueId id : graph.outputs) {
    if (!id.valid()) return input_error("a graph output does not exist");
    if (Status read = verify_read(graph, id, graph.ops.size()); !read) {
      return input_error("the list of graph outputs" + read.error().message);
    }
  }
  return Ok{};
}

// Of several passes, each makes its own activations: none of them is the update's.
Status verify_phases(const Graph& graph) {
  if (!graph.has_passes()) return Ok{};
  bool updates = false;
  for (const Op& op : graph.ops) {
    const bool is_update = op.phase == Phase::kUpdate;
    if (updates && !is_update) return input_error(label(op) + " of a pass comes after the update");
    updates = is_update;
    for (ValueId input : op.inputs) {
      if (!is_update || !input.valid() || !graph.value(input).producer.valid()) continue;
      if (graph.op(graph.value(input).producer).phase == Phase::kUpdate) continue;
      return input_error(label(op) + " of the update reads '" + graph.value(input).name +
                         "', which each of the " + std::to_string(graph.passes) + " passes makes");
    }
  }
  return Ok{};
}

}  // namespace

Status verify(const Graph& graph) {
  AUTOPAR_RETURN_IF_ERROR(verify_values(graph));
  std::unordered_set<std::string_view> names(graph.ops.size());
  std::vector<char> produced(graph.values.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.name.empty() || op.type.empty()) {
      return input_error("op number " + std::to_string(i) + " ('" + op.name + "', type '" +
                         op.type + "') has no name or no type");
    }
    if (!names.insert(op.name).second) {
      return input_error("two ops are named '" + op.name + "'; names must be unique");
    }
    AUTOPAR_RETURN_IF_ERROR(verify_op(graph, i, produced));
  }
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].producer.valid() && produced[i] == 0) {
      return input_error("value '" + graph.values[i].name + "' names " +
                         label(graph.op(graph.values[i].producer)) +
                         " as its producer, which does not produce it");
    }
  }
  AUTOPAR_RETURN_IF_ERROR(verify_phases(graph));
  return verify_boundary(graph);
}

}  // namespace autopar
