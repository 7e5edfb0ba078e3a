#include "io/files/read_strategy.hpp"

#include <algorithm>
#include <set>

#include "autopar/files.hpp"
#include "autopar/sha256.hpp"
#include "io/files/json.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kMostStages = 1 << 20;

using Counts = std::vector<std::vector<std::int64_t>>;

// A missing field leaves `text` as it is.
Status read_text(const Json& owner, const std::string& key, std::string& text) {
  AUTOPAR_TRY(field, owner.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(found, field->text());
  text = found;
  return Ok{};
}

Status read_named(const Json& document, const std::string& key, std::string& name,
                  std::string& sha256) {
  AUTOPAR_TRY(field, document.find(key));
  if (!field) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(read_text(*field, "name", name));
  return read_text(*field, "sha256", sha256);
}

Status read_counts(const Json& owner, const std::string& key, std::optional<Counts>& counts) {
  AUTOPAR_TRY(field, owner.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(tensors, field->items());
  counts.emplace();
  for (const Json& tensor : tensors) {
    AUTOPAR_TRY(slices, tensor.integers());
    for (std::int64_t count : slices) {
      if (count < 1) return tensor.expected("positive numbers of slices");
    }
    counts->push_back(slices);
  }
  return Ok{};
}

Result<OpPin> op_of(const Json& json) {
  OpPin pin;
  AUTOPAR_TRY(assignment, json.find("assignment"));
  if (assignment) {
    AUTOPAR_TRY(members, assignment->members());
    pin.assignment.emplace();
    for (const auto& [axis, factor] : members) {
      AUTOPAR_TRY(name, factor.text());
      (*pin.assignment)[axis] = name;
    }
  }
  AUTOPAR_RETURN_IF_ERROR(read_counts(json, "in_strategy", pin.in_strategy));
  AUTOPAR_RETURN_IF_ERROR(read_counts(json, "out_strategy", pin.out_strategy));
  return pin;
}

Status read_stage(const Json& json, const std::string& name, StrategyFile& file) {
  AUTOPAR_TRY(field, json.find("pipeline_stage"));
  if (!field) return Ok{};
  AUTOPAR_TRY(stage, field->integer());
  if (stage < 0 || stage > kMostStages) return field->expected("the number of a stage, from 0 on");
  file.stage_of_ops.emplace(name, static_cast<int>(stage));
  return Ok{};
}

Status read_repeated(const Json& json, const std::string& name,
                     std::map<std::string, bool>& repeated) {
  AUTOPAR_TRY(field, json.find("recompute"));
  if (!field) return Ok{};
  AUTOPAR_TRY(is_repeated, field->boolean());
  repeated[name] = is_repeated;
  return Ok{};
}

// An op by its name, or, to say the stage of several, by a pattern.
Status read_op(const Json& json, const std::string& name, StrategyFile& file) {
  AUTOPAR_RETURN_IF_ERROR(read_stage(json, name, file));
  AUTOPAR_RETURN_IF_ERROR(read_repeated(json, name, file.repeated));
  AUTOPAR_TRY(pin, op_of(json));
  const bool is_pinned = pin.assignment || pin.in_strategy || pin.out_strategy;
  const bool says_more = file.stage_of_ops.count(name) > 0 || file.repeated.count(name) > 0;
  if (!is_pinned && !says_more) {
    return json.expected(
        "an assignment, an in_strategy, an out_strategy, a pipeline_stage or recompute");
  }
  if (is_pinned) file.pins.ops.emplace(name, std::move(pin));
  std::string type;
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "type", type));
  if (!type.empty() && is_pinned) file.op_types.emplace(name, std::move(type));
  return Ok{};
}

// For each dimension an axis from the right, -1 for none, or a list of axes.
Status read_tensor_map_of(const Json& json, ValuePin& pin) {
  AUTOPAR_TRY(matrix, json.find("device_matrix"));
  AUTOPAR_TRY(map, json.find("tensor_map"));
  if (!matrix && !map) return Ok{};
  if (!matrix || !map) return json.expected("device_matrix and tensor_map together");
  AUTOPAR_TRY(sizes, matrix->integers());
  if (sizes.empty()) return matrix->expected("at least one axis");
  pin.device_matrix = sizes;
  AUTOPAR_TRY(dims, map->items());
  for (const Json& dim : dims) {
    std::vector<std::int64_t> axes;
    if (const auto one = dim.integer()) {
      if (*one != -1) axes = {*one};
    } else {
      AUTOPAR_TRY(several, dim.integers());
      axes = several;
    }
    pin.tensor_map.emplace_back();
    for (std::int64_t axis : axes) {
      if (axis < 0 || axis >= static_cast<std::int64_t>(sizes.size())) {
        return dim.expected("-1, or axes of the device_matrix counted from the right, from 0 to " +
                            std::to_string(sizes.size() - 1));
      }
      pin.tensor_map.back().push_back(static_cast<int>(axis));
    }
  }
  return Ok{};
}

Result<ValuePin> tensor_of(const Json& json) {
  ValuePin pin;
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "spec", pin.spec));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "hub_spec", pin.hub_spec));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "output_spec", pin.output_spec));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "kept_spec", pin.kept_spec));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "backward_hub_spec", pin.backward_hub_spec));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "update_hub_spec", pin.update_hub_spec));
  AUTOPAR_RETURN_IF_ERROR(read_tensor_map_of(json, pin));
  const auto said = {&pin.spec,      &pin.hub_spec,          &pin.output_spec,
                     &pin.kept_spec, &pin.backward_hub_spec, &pin.update_hub_spec};
  if (pin.device_matrix.empty() &&
      std::all_of(said.begin(), said.end(), [](const auto* text) { return text->empty(); })) {
    return json.expected(
        "a spec, a hub_spec, an output_spec, a kept_spec, a backward_hub_spec, an "
        "update_hub_spec, or a device_matrix with tensor_map");
  }
  return pin;
}

Status read_mesh(const Json& document, StrategyFile& file) {
  AUTOPAR_TRY(field, document.find("mesh"));
  if (!field) return Ok{};
  AUTOPAR_TRY(mesh, mesh_axes_of(*field));
  file.mesh = std::move(mesh);
  return Ok{};
}

Result<StrategyFile::Price> price_of(const Json& json) {
  StrategyFile::Price price;
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "cost_model", price.cost_model));
  AUTOPAR_RETURN_IF_ERROR(read_text(json, "cost_unit", price.unit));
  AUTOPAR_TRY(cost_field, json.at("cost"));
  AUTOPAR_TRY(cost, cost_field.number());
  AUTOPAR_TRY(bound_field, json.at("lower_bound_cost"));
  AUTOPAR_TRY(bound, bound_field.number());
  price.cost = cost;
  price.lower_bound = bound;
  return price;
}

Status read_cost(const Json& document, StrategyFile& file) {
  AUTOPAR_TRY(field, document.find("cost"));
  if (!field) return Ok{};
  StrategyFile::Cost cost;
  AUTOPAR_TRY(members, field->members());
  for (const auto& [key, value] : members) {
    double* number = key == "seconds"               ? &cost.seconds
                     : key == "lower_bound_seconds" ? &cost.lower_bound_seconds
                     : key == "gap"                 ? &cost.gap
                                                    : nullptr;
    if (number != nullptr) {
      AUTOPAR_TRY(found, value.number());
      *number = found;
    } else if (key == "memory_bytes") {
      AUTOPAR_TRY(found, value.integer());
      cost.memory_bytes = found;
    }
  }
  AUTOPAR_TRY(model, field->find("cost_model"));
  if (model) {
    AUTOPAR_TRY(price, price_of(*field));
    cost.price = price;
  }
  file.cost = cost;
  return Ok{};
}

}  // namespace

Result<std::vector<StrategyFile::MeshAxis>> mesh_axes_of(const Json& field) {
  std::vector<StrategyFile::MeshAxis> mesh;
  AUTOPAR_TRY(axes, field.items());
  if (axes.empty() || axes.size() > static_cast<std::size_t>(kMaxMeshAxes)) {
    return field.expected("1 to " + std::to_string(kMaxMeshAxes) + " axes");
  }
  std::set<std::string> names;
  for (const Json& json : axes) {
    StrategyFile::MeshAxis axis;
    AUTOPAR_TRY(name_field, json.at("name"));
    AUTOPAR_TRY(name, name_field.text());
    AUTOPAR_TRY(size_field, json.at("size"));
    AUTOPAR_TRY(size, size_field.integer());
    if (size < 1) return size_field.expected("a positive integer");
    if (name.empty() || name.find_first_of("{}[], \t+:") != std::string::npos) {
      return name_field.expected("a name without blanks and any of {}[],+:");
    }
    if (!names.insert(name).second) return name_field.expected("a name that is not taken");
    axis.name = name;
    axis.size = size;
    AUTOPAR_RETURN_IF_ERROR(read_text(json, "tier", axis.tier));
    mesh.push_back(axis);
  }
  return mesh;
}

Status read_pins(const Json& owner, StrategyFile::Chunk& said) {
  AUTOPAR_TRY(ops, owner.find("ops"));
  if (ops) {
    AUTOPAR_TRY(members, ops->members());
    for (const auto& [name, json] : members) {
      if (json.is_null()) {
        said.absent.insert(name);
        continue;
      }
      AUTOPAR_TRY(pin, op_of(json));
      if (!pin.assignment && !pin.in_strategy && !pin.out_strategy) {
        return json.expected("an assignment, an in_strategy or an out_strategy");
      }
      said.pins.ops.emplace(name, std::move(pin));
      AUTOPAR_RETURN_IF_ERROR(read_repeated(json, name, said.repeated));
      std::string type;
      AUTOPAR_RETURN_IF_ERROR(read_text(json, "type", type));
      if (!type.empty()) said.op_types.emplace(name, std::move(type));
    }
  }
  AUTOPAR_TRY(tensors, owner.find("tensors"));
  if (!tensors) return Ok{};
  AUTOPAR_TRY(members, tensors->members());
  for (const auto& [name, json] : members) {
    if (json.is_null()) {
      said.absent.insert(name);
      continue;
    }
    AUTOPAR_TRY(pin, tensor_of(json));
    said.pins.values.emplace(name, std::move(pin));
  }
  return Ok{};
}

Status read_recompute(const Json& owner, std::string& level,
                      std::vector<StrategyFile::LevelFrom>& from) {
  AUTOPAR_RETURN_IF_ERROR(read_text(owner, "recompute", level));
  AUTOPAR_TRY(field, owner.find("recompute_from"));
  if (!field) return Ok{};
  AUTOPAR_TRY(items, field->items());
  for (const Json& item : items) {
    AUTOPAR_TRY(op, item.at("from"));
    AUTOPAR_TRY(name, op.text());
    AUTOPAR_TRY(said, item.at("recompute"));
    AUTOPAR_TRY(text, said.text());
    from.push_back({name, text});
  }
  return Ok{};
}

std::string to_text(const std::vector<StrategyFile::LevelFrom>& levels) {
  std::string text;
  for (const auto& [op, level] : levels) {
    text += text.empty() ? level : ", " + level + " from " + op;
  }
  return text;
}

namespace {

Status read_texts(const Json& owner, const char* key, std::vector<std::string>& texts) {
  AUTOPAR_TRY(field, owner.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(items, field->items());
  for (const Json& item : items) {
    AUTOPAR_TRY(text, item.text());
    texts.push_back(text);
  }
  return Ok{};
}

Result<PlannedBatch> batch_of(const Json& json) {
  PlannedBatch batch;
  AUTOPAR_TRY(size, json.find("size"));
  if (!size) return json.expected("an object with a size");
  AUTOPAR_TRY(samples, size->integer());
  if (samples <= 0) return size->expected("a positive number of samples");
  batch.size = samples;
  AUTOPAR_TRY(dim, json.find("dim"));
  if (dim) {
    AUTOPAR_TRY(index, dim->integer());
    if (index < 0) return dim->expected("a dimension, from 0 on");
    batch.dim = static_cast<std::size_t>(index);
  }
  AUTOPAR_RETURN_IF_ERROR(read_texts(json, "data_inputs", batch.data_inputs));
  return batch;
}

}  // namespace

Result<StrategyFile> read_strategy(const std::string& path) {
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(parsed, parse_json(text, path));
  const Json document(parsed, path, "");
  AUTOPAR_RETURN_IF_ERROR(check_format(document, "autopar-strategy", 1));
  StrategyFile file;
  file.path = path;
  file.sha256 = sha256_hex(text);
  AUTOPAR_RETURN_IF_ERROR(read_named(document, "model", file.model_name, file.model_sha256));
  AUTOPAR_RETURN_IF_ERROR(read_named(document, "cluster", file.cluster_name, file.cluster_sha256));
  AUTOPAR_RETURN_IF_ERROR(read_named(document, "profile", file.profile_name, file.profile_sha256));
  AUTOPAR_RETURN_IF_ERROR(read_mesh(document, file));
  AUTOPAR_RETURN_IF_ERROR(read_text(document, "searcher", file.searcher));
  AUTOPAR_RETURN_IF_ERROR(read_recompute(document, file.recompute, file.recompute_from));
  AUTOPAR_RETURN_IF_ERROR(read_texts(document, "checkpoints", file.checkpoints));
  AUTOPAR_RETURN_IF_ERROR(read_step_of(document, file));
  if (const auto training = parsed.find("training"); training != parsed.end()) {
    if (!training->is_object()) return input_error(path + ": training: expected an object");
    // With its keys in their order, so that it can be written as it was.
    file.training = nlohmann::ordered_json::parse(text)["training"].dump();
  }
  AUTOPAR_TRY(bucket, document.find("gradient_bucket"));
  if (bucket) {
    AUTOPAR_TRY(bytes, bucket->integer());
    if (bytes < 0) return bucket->expected("bytes");
    file.gradient_bucket = bytes;
  }
  AUTOPAR_TRY(limit, document.find("memory_limit_bytes"));
  if (limit) {
    AUTOPAR_TRY(bytes, limit->integer());
    if (bytes < 0) return limit->expected("bytes");
    file.memory_limit = bytes;
  }
  AUTOPAR_TRY(batch, document.find("batch"));
  if (batch) {
    AUTOPAR_TRY(read, batch_of(*batch));
    file.batch = std::move(read);
  }
  AUTOPAR_RETURN_IF_ERROR(read_cost(document, file));
  AUTOPAR_TRY(ops, document.find("ops"));
  if (ops) {
    AUTOPAR_TRY(members, ops->members());
    for (const auto& [name, json] : members) {
      AUTOPAR_RETURN_IF_ERROR(read_op(json, name, file));
    }
  }
  AUTOPAR_TRY(tensors, document.find("tensors"));
  if (tensors) {
    AUTOPAR_TRY(members, tensors->members());
    for (const auto& [name, json] : members) {
      AUTOPAR_TRY(pin, tensor_of(json));
      file.pins.values.emplace(name, std::move(pin));
    }
  }
  return file;
}

}  // namespace autopar
