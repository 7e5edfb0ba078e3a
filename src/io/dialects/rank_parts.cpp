#include "io/dialects/rank_parts.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

bool same_dims(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

bool same_data(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  if (a.has_raw_data() && b.has_raw_data()) return a.raw_data() == b.raw_data();
  return a.SerializeAsString() == b.SerializeAsString();
}

std::optional<ExternalData> place_of(const onnx::TensorProto& tensor) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return std::nullopt;
  onnx::TensorProto copy = tensor;
  const auto data = take_tensor(copy, "");
  if (!data || !std::holds_alternative<ExternalData>(data->data)) return std::nullopt;
  return std::get<ExternalData>(data->data);
}

void set_place(onnx::TensorProto& tensor, const ExternalData& place) {
  tensor.clear_external_data();
  const auto add = [&](const char* key, const std::string& text) {
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(text);
  };
  add("location", place.location);
  add("offset", std::to_string(place.offset));
  add("length", std::to_string(place.length));
}

}  // namespace

std::optional<Ranks> groups_over(const std::vector<Ranks>& owners) {
  Ranks groups;
  for (std::size_t j = 0; j < owners[0].size(); ++j) {
    for (const Ranks& ranks : owners) {
      if (ranks.size() != owners[0].size()) return std::nullopt;
      groups.push_back(ranks[j]);
    }
  }
  return groups.empty() ? std::nullopt : std::optional(groups);
}

onnx::NodeProto shard_slice(const std::string& input, const std::string& output, std::int64_t axis,
                            const Ranks& groups, std::int64_t group_size) {
  onnx::NodeProto node;
  node.set_name("ShardSlice_" + output);
  node.set_op_type("ShardSlice");
  node.set_domain(kCollectiveDomain);
  node.add_input(input);
  node.add_output(output);
  const auto add = [&](const char* name, onnx::AttributeProto::AttributeType type) {
    auto* attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  };
  add("groups", onnx::AttributeProto::INTS)->mutable_ints()->Add(groups.begin(), groups.end());
  add("group_size", onnx::AttributeProto::INT)->set_i(group_size);
  add("axis", onnx::AttributeProto::INT)->set_i(axis);
  return node;
}

Error differs(const RankModel& model, const RankModel& first, const std::string& what) {
  return input_error(model.name + ": " + what + " differs from that of " + first.name +
                     "; expected files of ranks that differ in groups and initializers only; "
                     "programs of several pipeline stages are plan.stage0.onnx and on");
}

Result<RankParts> RankParts::of(std::vector<RankModel>& models, std::int64_t ranks,
                                const std::string& folder) {
  RankParts parts(ranks, folder);
  const auto initializers = [](RankModel& model) {
    return model.file.model.mutable_graph()->mutable_initializer();
  };
  for (RankModel& model : models) {
    std::set<std::string> names;
    for (const auto& tensor : *initializers(model)) {
      if (names.insert(tensor.name()).second) continue;
      return input_error(model.name + ": initializer '" + tensor.name() +
                         "' is there twice; expected one of each name");
    }
  }
  for (auto& tensor : *initializers(models[0])) {
    parts.first_[tensor.name()] = &tensor;
    parts.parts_[tensor.name()] = {{&tensor, models[0].ranks}};
  }
  for (std::size_t m = 1; m < models.size(); ++m) {
    if (initializers(models[m])->size() != initializers(models[0])->size()) {
      return differs(models[m], models[0], "the number of initializers");
    }
    for (auto& tensor : *initializers(models[m])) {
      AUTOPAR_RETURN_IF_ERROR(parts.add(tensor, models[m], models[0]));
    }
  }
  for (auto entry = parts.parts_.begin(); entry != parts.parts_.end();) {
    for (Part& part : entry->second) std::sort(part.ranks.begin(), part.ranks.end());
    entry = entry->second.size() == 1 ? parts.parts_.erase(entry) : std::next(entry);
  }
  return parts;
}

Status RankParts::add(onnx::TensorProto& tensor, RankModel& model, const RankModel& first) {
  const std::string what = "initializer '" + tensor.name() + "'";
  const auto found = parts_.find(tensor.name());
  if (found == parts_.end()) return differs(model, first, "the list of initializers: " + what);
  std::vector<Part>& parts = found->second;
  const onnx::TensorProto& known = *parts[0].tensor;
  if (tensor.data_type() != known.data_type() || !same_dims(tensor, known)) {
    return differs(model, first, "the type or shape of " + what);
  }
  auto part = std::find_if(parts.begin(), parts.end(),
                           [&](const Part& p) { return same_data(*p.tensor, tensor); });
  if (part == parts.end()) part = parts.insert(part, {&tensor, {}});
  part->ranks.insert(part->ranks.end(), model.ranks.begin(), model.ranks.end());
  return Ok{};
}

std::optional<std::int64_t> RankParts::integer_on(const std::string& name,
                                                  std::int64_t rank) const {
  const auto first = first_.find(name);
  if (first == first_.end()) return std::nullopt;
  const onnx::TensorProto* tensor = first->second;
  if (const auto parts = parts_.find(name); parts != parts_.end()) {
    for (const Part& part : parts->second) {
      if (std::binary_search(part.ranks.begin(), part.ranks.end(), rank)) tensor = part.tensor;
    }
  }
  onnx::TensorProto copy = *tensor;
  const auto data = take_tensor(copy, name);
  if (!data || !std::holds_alternative<Tensor>(data->data)) return std::nullopt;
  const auto values = int_values(std::get<Tensor>(data->data));
  return values && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
}

Status RankParts::stack(onnx::ModelProto& first) {
  onnx::GraphProto& graph = *first.mutable_graph();
  Names names;
  std::set<std::string> read;
  for (const auto& node : graph.node()) {
    read.insert(node.input().begin(), node.input().end());
    for (const auto& output : node.output()) names.take(output);
  }
  for (const auto& output : graph.output()) read.insert(output.name());
  for (const auto& input : graph.input()) {
    names.take(input.name());
    if (!has(input.name())) continue;
    return input_error("input '" + input.name() +
                       "' has a default that goes by the rank; expected an initializer that is no "
                       "input");
  }
  for (const auto& [name, tensor] : first_) names.take(name);
  std::vector<onnx::NodeProto> slices;
  auto& initializers = *graph.mutable_initializer();
  for (int i = initializers.size() - 1; i >= 0; --i) {
    const std::string name = initializers[i].name();
    if (!has(name)) continue;
    if (read.count(name) == 0) {
      initializers.DeleteSubrange(i, 1);
    } else {
      AUTOPAR_RETURN_IF_ERROR(stack(initializers[i], names, slices));
    }
  }
  if (slices.empty()) return Ok{};
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (onnx::NodeProto& node : slices) nodes.Add(std::move(node));
  for (auto& node : *graph.mutable_node()) nodes.Add(std::move(node));
  graph.mutable_node()->Swap(&nodes);
  import_own_domain(first);
  return Ok{};
}

// As they lie in a file, where that is one, so that together they may be one piece of it.
void RankParts::sort_by_place(std::vector<Part>& parts) {
  std::vector<std::pair<std::int64_t, std::size_t>> order;  // offset, part
  for (const Part& part : parts) {
    const auto place = place_of(*part.tensor);
    if (!place || place->location != place_of(*parts[0].tensor)->location) return;
    order.emplace_back(place->offset, order.size());
  }
  std::sort(order.begin(), order.end());
  std::vector<Part> sorted;
  for (const auto& [offset, part] : order) sorted.push_back(std::move(parts[part]));
  parts = std::move(sorted);
}

// `initializer` is the first of the parts, and becomes all of them.
Status RankParts::stack(onnx::TensorProto& initializer, Names& names,
                        std::vector<onnx::NodeProto>& slices) {
  const std::string name = initializer.name();
  std::vector<Part>& parts = parts_.at(name);
  sort_by_place(parts);
  std::vector<Ranks> owners;
  for (const Part& part : parts) owners.push_back(part.ranks);
  auto groups = groups_over(owners);
  if (!groups) {  // once for every rank
    std::vector<Part> of_ranks(static_cast<std::size_t>(ranks_));
    for (const Part& part : parts) {
      for (std::int64_t rank : part.ranks) {
        of_ranks[static_cast<std::size_t>(rank)] = {part.tensor, {rank}};
      }
    }
    parts = std::move(of_ranks);
    groups = all_ranks(ranks_);
  }
  const auto count = static_cast<std::int64_t>(parts.size());
  const Shape shape(initializer.dims().begin(), initializer.dims().end());
  std::int64_t extent = shape.empty() ? 1 : shape[0];
  if (__builtin_mul_overflow(extent, count, &extent) ||
      element_count(shape) > kMaxElements / count) {
    return input_error("initializer '" + name + "' goes by the rank: " + std::to_string(count) +
                       " parts of the shape " + to_text(shape) + " have too many elements");
  }
  AUTOPAR_TRY(all, stacked(parts, name));
  const std::string whole = names.unique(name + "/of_ranks");
  if (all.dims_size() > 0) {
    all.set_dims(0, extent);
    slices.push_back(shard_slice(whole, name, 0, *groups, count));
  } else {
    all.add_dims(count);
    onnx::NodeProto squeeze;
    squeeze.set_op_type("Squeeze");
    squeeze.add_input(names.unique(name + "/of_rank"));
    squeeze.add_output(name);
    slices.push_back(shard_slice(whole, squeeze.input(0), 0, *groups, count));
    slices.push_back(std::move(squeeze));
  }
  all.set_name(whole);
  initializer = std::move(all);
  return Ok{};
}

// The parts' bytes, one after the other, with the shape of one. Nothing is read where they are one
// piece of a file.
Result<onnx::TensorProto> RankParts::stacked(const std::vector<Part>& parts,
                                             const std::string& name) const {
  auto piece = place_of(*parts[0].tensor);
  for (std::size_t i = 1; piece && i < parts.size(); ++i) {
    const auto next = place_of(*parts[i].tensor);
    const bool follows = next && next->location == piece->location && piece->length > 0 &&
                         next->offset - piece->offset == piece->length &&
                         next->length * static_cast<std::int64_t>(i) == piece->length;
    if (!follows) {
      piece.reset();
    } else {
      piece->length += next->length;
    }
  }
  if (piece) {
    onnx::TensorProto all = *parts[0].tensor;
    set_place(all, *piece);
    return all;
  }
  Tensor all;
  for (const Part& part : parts) {
    onnx::TensorProto copy = *part.tensor;
    AUTOPAR_TRY(data, take_tensor(copy, "initializer '" + name + "'"));
    const auto* external = std::get_if<ExternalData>(&data.data);
    const auto tensor = external == nullptr ? std::optional(std::get<Tensor>(data.data))
                                            : read_external(data, folder_);
    if (!tensor) {
      return input_error("initializer '" + name +
                         "' goes by the rank, so that it must be read, but its file '" +
                         external->location + "' is missing or too short");
    }
    if (all.bytes.empty()) all = {tensor->dtype, tensor->shape, {}};
    all.bytes += tensor->bytes;
  }
  return to_proto(all);
}

}  // namespace autopar
