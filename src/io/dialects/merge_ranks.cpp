// Of the files of ranks one program. Where the files differ is decided in this order: groups of
// collectives are put together; a Slice whose ends go by the rank is a ShardSlice; any other
// initializer that goes by the rank is a ShardSlice of the parts of all, one after the other.
// Linear in the size of the files.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "io/dialects/dialects.hpp"
#include "io/import/proto_op.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

using Ranks = std::vector<std::int64_t>;

bool is_own(const onnx::NodeProto& node) { return node.domain() == "ai.autopar"; }

onnx::AttributeProto* attribute_of(onnx::NodeProto& node, const char* name) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t int_of(onnx::NodeProto& node, const char* name) {
  const auto* attribute = attribute_of(node, name);
  return attribute == nullptr ? 0 : attribute->i();
}

std::string without_groups(const onnx::NodeProto& node) {
  if (!is_own(node)) return node.SerializeAsString();
  onnx::NodeProto copy = node;
  if (auto* groups = attribute_of(copy, "groups")) groups->clear_ints();
  return copy.SerializeAsString();
}

bool same_data(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  if (a.data_type() != b.data_type() || a.raw_data() != b.raw_data()) return false;
  if (a.has_raw_data() && b.has_raw_data()) {
    return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
  }
  return a.SerializeAsString() == b.SerializeAsString();
}

// One content of an initializer, and who has it.
struct Part {
  onnx::TensorProto* tensor = nullptr;
  Ranks ranks = {};
};

// Groups in which every part is once, in the order of the parts; nothing where the parts belong to
// different numbers of ranks.
std::optional<Ranks> groups_over(const std::vector<Ranks>& parts) {
  Ranks groups;
  for (std::size_t j = 0; j < parts[0].size(); ++j) {
    for (const Ranks& ranks : parts) {
      if (ranks.size() != parts[0].size()) return std::nullopt;
      groups.push_back(ranks[j]);
    }
  }
  return groups;
}

onnx::NodeProto shard_slice(const std::string& input, const std::string& output, std::int64_t axis,
                            const Ranks& groups, std::int64_t size) {
  onnx::NodeProto node;
  node.set_name("ShardSlice_" + output);
  node.set_op_type("ShardSlice");
  node.set_domain("ai.autopar");
  node.add_input(input);
  node.add_output(output);
  const auto add = [&](const char* name, onnx::AttributeProto::AttributeType type) {
    auto* attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(type);
    return attribute;
  };
  add("groups", onnx::AttributeProto::INTS)->mutable_ints()->Add(groups.begin(), groups.end());
  add("group_size", onnx::AttributeProto::INT)->set_i(size);
  add("axis", onnx::AttributeProto::INT)->set_i(axis);
  return node;
}

class Merge {
 public:
  Merge(std::vector<RankModel> models, std::int64_t ranks, const std::string& folder)
      : models_(std::move(models)), ranks_(ranks), folder_(folder) {}

  Result<ModelFile> run() {
    AUTOPAR_RETURN_IF_ERROR(check_heads());
    AUTOPAR_RETURN_IF_ERROR(merge_nodes());
    AUTOPAR_RETURN_IF_ERROR(compare_initializers());
    AUTOPAR_RETURN_IF_ERROR(replace_slices());
    AUTOPAR_RETURN_IF_ERROR(stack_initializers());
    return std::move(models_[0].file);
  }

 private:
  onnx::GraphProto& graph(std::size_t m) { return *models_[m].file.model.mutable_graph(); }

  Error differs(std::size_t m, const std::string& what) const {
    return input_error(models_[m].name + ": " + what + " differs from that of " + models_[0].name +
                       "; expected files of ranks that differ in groups and initializers only; "
                       "programs of several pipeline stages are plan.stage0.onnx and on");
  }

  // What stands beside nodes and initializers.
  std::string head(std::size_t m, const char* part) {
    const onnx::ModelProto& model = models_[m].file.model;
    onnx::ModelProto kept;
    const std::string what = part;
    if (what == "list of opsets") *kept.mutable_opset_import() = model.opset_import();
    if (what == "list of functions") *kept.mutable_functions() = model.functions();
    if (what == "list of inputs") *kept.mutable_graph()->mutable_input() = model.graph().input();
    if (what == "list of outputs") *kept.mutable_graph()->mutable_output() = model.graph().output();
    for (const auto& entry : model.metadata_props()) {
      if (what == "metadata_props " + entry.key()) *kept.add_metadata_props() = entry;
    }
    return kept.SerializeAsString();
  }

  Status check_heads() {
    for (std::size_t m = 1; m < models_.size(); ++m) {
      for (const char* part :
           {"list of opsets", "list of functions", "list of inputs", "list of outputs",
            "metadata_props autopar.io", "metadata_props autopar.mesh"}) {
        if (head(m, part) != head(0, part)) return differs(m, std::string("the ") + part);
      }
      if (graph(m).node_size() == graph(0).node_size()) continue;
      return differs(m, "the number of ops, " + std::to_string(graph(m).node_size()) + ", not " +
                            std::to_string(graph(0).node_size()) + ",");
    }
    return Ok{};
  }

  Status merge_nodes() {
    for (int i = 0; i < graph(0).node_size(); ++i) {
      onnx::NodeProto& node = *graph(0).mutable_node(i);
      const std::string text = models_.size() > 1 ? without_groups(node) : "";
      for (std::size_t m = 1; m < models_.size(); ++m) {
        const onnx::NodeProto& other = graph(m).node(i);
        if (without_groups(other) != text) return differs(m, foreign_label(other));
      }
      if (is_own(node)) AUTOPAR_RETURN_IF_ERROR(merge_groups(i));
    }
    return Ok{};
  }

  // A file's list need only have the groups of its own ranks.
  Status merge_groups(int i) {
    onnx::NodeProto& node = *graph(0).mutable_node(i);
    auto* groups = attribute_of(node, "groups");
    if (groups == nullptr) return Ok{};
    const auto size =
        static_cast<std::size_t>(std::max<std::int64_t>(1, int_of(node, "group_size")));
    std::set<Ranks> seen;
    Ranks all;
    for (std::size_t m = 0; m < models_.size(); ++m) {
      const auto& listed = attribute_of(*graph(m).mutable_node(i), "groups")->ints();
      for (std::int64_t rank : models_[m].ranks) {
        const auto found = std::find(listed.begin(), listed.end(), rank) - listed.begin();
        const std::size_t begin = static_cast<std::size_t>(found) / size * size;
        if (begin + size > static_cast<std::size_t>(listed.size())) {
          return input_error(models_[m].name + ": " + foreign_label(node) +
                             ": attribute groups: expected a list with rank " +
                             std::to_string(rank) + ", which runs this file, found none");
        }
        const auto first = listed.begin() + static_cast<std::ptrdiff_t>(begin);
        const Ranks group(first, first + static_cast<std::ptrdiff_t>(size));
        if (seen.insert(group).second) all.insert(all.end(), group.begin(), group.end());
      }
    }
    groups->clear_ints();
    groups->mutable_ints()->Add(all.begin(), all.end());
    return Ok{};
  }

  // Fills parts_ with those that go by the rank.
  Status compare_initializers() {
    for (std::size_t m = 1; m < models_.size(); ++m) {
      std::unordered_map<std::string, onnx::TensorProto*> named;
      for (auto& tensor : *graph(m).mutable_initializer()) named[tensor.name()] = &tensor;
      const bool as_many = graph(m).initializer_size() == graph(0).initializer_size();
      for (auto& tensor : *graph(0).mutable_initializer()) {
        const auto found = named.find(tensor.name());
        if (!as_many || found == named.end()) return differs(m, "the list of initializers");
        AUTOPAR_RETURN_IF_ERROR(add_part(tensor, *found->second, m));
      }
    }
    for (auto& tensor : *graph(0).mutable_initializer()) {
      const auto found = parts_.find(tensor.name());
      if (found != parts_.end() && found->second.size() == 1) parts_.erase(found);
    }
    for (auto& [name, parts] : parts_) {
      for (Part& part : parts) std::sort(part.ranks.begin(), part.ranks.end());
    }
    return Ok{};
  }

  Status add_part(onnx::TensorProto& first, onnx::TensorProto& tensor, std::size_t m) {
    std::vector<Part>& parts = parts_[first.name()];
    if (parts.empty()) parts.push_back({&first, models_[0].ranks});
    const bool fits = tensor.data_type() == first.data_type() &&
                      std::equal(tensor.dims().begin(), tensor.dims().end(), first.dims().begin(),
                                 first.dims().end());
    if (!fits) return differs(m, "the type or shape of initializer '" + tensor.name() + "'");
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& p) { return same_data(*p.tensor, tensor); });
    if (part == parts.end()) part = parts.insert(part, {&tensor, {}});
    part->ranks.insert(part->ranks.end(), models_[m].ranks.begin(), models_[m].ranks.end());
    return Ok{};
  }

  Status replace_slices() {
    std::unordered_map<std::string, Shape> shapes;
    const auto add = [&](const auto& infos) {
      for (const auto& info : infos) {
        Shape& shape = shapes[info.name()];
        for (const auto& dim : info.type().tensor_type().shape().dim()) {
          shape.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
        }
      }
    };
    add(graph(0).value_info());
    add(graph(0).input());
    for (const auto& tensor : graph(0).initializer()) {
      shapes[tensor.name()] = Shape(tensor.dims().begin(), tensor.dims().end());
    }
    for (auto& node : *graph(0).mutable_node()) {
      if (node.op_type() != "Slice" || !domain_of(node).empty() || node.input_size() < 3) continue;
      if (parts_.count(node.input(1)) == 0 && parts_.count(node.input(2)) == 0) continue;
      AUTOPAR_RETURN_IF_ERROR(replace_slice(node, shapes[node.input(0)]));
    }
    return Ok{};
  }

  // The only integer of an initializer on a rank; nothing for any other tensor.
  std::optional<std::int64_t> integer_on(const std::string& name, std::int64_t rank) {
    onnx::TensorProto* found = nullptr;
    if (const auto parts = parts_.find(name); parts != parts_.end()) {
      for (const Part& part : parts->second) {
        if (std::binary_search(part.ranks.begin(), part.ranks.end(), rank)) found = part.tensor;
      }
    } else {
      for (auto& tensor : *graph(0).mutable_initializer()) {
        if (tensor.name() == name) found = &tensor;
      }
    }
    if (found == nullptr) return std::nullopt;
    onnx::TensorProto copy = *found;
    const auto data = take_tensor(copy, "'" + name + "'");
    if (!data || !std::holds_alternative<Tensor>(data->data)) return std::nullopt;
    const auto values = int_values(std::get<Tensor>(data->data));
    return values && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
  }

  Status replace_slice(onnx::NodeProto& node, const Shape& shape) {
    const auto refuse = [&](const std::string& what) {
      return input_error(models_[0].name + ": " + foreign_label(node) +
                         ": what it takes goes by the rank, and " + what +
                         "; expected that each rank takes one of equal parts of one dimension; try "
                         "AllToAll or a ShardSlice of ai.autopar");
    };
    const auto axis =
        node.input_size() > 3 ? integer_on(node.input(3), 0) : std::optional<std::int64_t>(0);
    const auto step =
        node.input_size() > 4 ? integer_on(node.input(4), 0) : std::optional<std::int64_t>(1);
    if (!axis || step != 1) return refuse("its axes or steps are not those of one dimension");
    const auto rank_of_tensor = static_cast<std::int64_t>(shape.size());
    const std::int64_t dimension = *axis < 0 ? *axis + rank_of_tensor : *axis;
    if (dimension < 0 || dimension >= rank_of_tensor)
      return refuse("the shape of its input is not told");
    const std::int64_t extent = shape[static_cast<std::size_t>(dimension)];
    std::vector<Ranks> takers;
    std::int64_t length = -1;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      const auto from = integer_on(node.input(1), rank), to = integer_on(node.input(2), rank);
      if (!from || !to) return refuse("its ends are no single integers");
      const auto within = [&](std::int64_t v) {
        return std::clamp<std::int64_t>(v < 0 ? v + extent : v, 0,
                                        std::max<std::int64_t>(extent, 0));
      };
      const std::int64_t begin = within(*from), end = within(*to);
      if (rank == 0) length = end - begin;
      if (length < 1 || extent % length != 0 || end - begin != length || begin % length != 0) {
        return refuse("rank " + std::to_string(rank) + " takes " + std::to_string(begin) + " to " +
                      std::to_string(end) + " of " + std::to_string(extent));
      }
      takers.resize(static_cast<std::size_t>(extent / length));
      takers[static_cast<std::size_t>(begin / length)].push_back(rank);
    }
    const auto groups = groups_over(takers);
    if (!groups || takers[0].empty()) return refuse("some parts are taken more often than others");
    const std::string name = node.name();
    node = shard_slice(std::string(node.input(0)), std::string(node.output(0)), dimension, *groups,
                       static_cast<std::int64_t>(takers.size()));
    if (!name.empty()) node.set_name(name);
    return Ok{};
  }

  Status stack_initializers() {
    std::set<std::string> used;
    for (const auto& node : graph(0).node()) used.insert(node.input().begin(), node.input().end());
    for (const auto& output : graph(0).output()) used.insert(output.name());
    for (const auto& input : graph(0).input()) {
      if (parts_.count(input.name()) == 0) continue;
      return input_error(models_[0].name + ": input '" + input.name() +
                         "' has a default that goes by the rank; expected an initializer that is "
                         "no input");
    }
    std::vector<onnx::NodeProto> slices;
    auto& initializers = *graph(0).mutable_initializer();
    for (int i = initializers.size() - 1; i >= 0; --i) {
      const std::string name = initializers[i].name();
      if (parts_.count(name) == 0) continue;
      if (used.count(name) == 0) {
        initializers.DeleteSubrange(i, 1);
        continue;
      }
      AUTOPAR_RETURN_IF_ERROR(stack(initializers[i], slices));
    }
    if (slices.empty()) return Ok{};
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (onnx::NodeProto& node : slices) nodes.Add(std::move(node));
    for (auto& node : *graph(0).mutable_node()) nodes.Add(std::move(node));
    graph(0).mutable_node()->Swap(&nodes);
    import_own_domain(models_[0].file.model);
    return Ok{};
  }

  // `initializer` is the first of the parts, and becomes all of them.
  Status stack(onnx::TensorProto& initializer, std::vector<onnx::NodeProto>& slices) {
    const std::string name = initializer.name();
    std::vector<Part>& parts = parts_.at(name);
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
    AUTOPAR_TRY(stacked, stacked_of(parts, name));
    const std::string whole = name + "/of_ranks";
    std::string from = whole;
    const auto count = static_cast<std::int64_t>(parts.size());
    if (stacked.dims_size() == 0) {
      stacked.add_dims(count);
      from = name + "/of_rank";
      onnx::NodeProto squeeze;
      squeeze.set_op_type("Squeeze");
      squeeze.add_input(from);
      squeeze.add_output(name);
      slices.push_back(shard_slice(whole, from, 0, *groups, count));
      slices.push_back(std::move(squeeze));
    } else {
      stacked.set_dims(0, stacked.dims(0) * count);
      slices.push_back(shard_slice(whole, name, 0, *groups, count));
    }
    stacked.set_name(whole);
    initializer = std::move(stacked);
    return Ok{};
  }

  // The parts' bytes, one after the other, with the shape of one.
  Result<onnx::TensorProto> stacked_of(const std::vector<Part>& parts, const std::string& name) {
    Tensor all;
    for (const Part& part : parts) {
      onnx::TensorProto copy = *part.tensor;
      AUTOPAR_TRY(data, take_tensor(copy, "initializer '" + name + "'"));
      const auto* external = std::get_if<ExternalData>(&data.data);
      const auto tensor = external == nullptr ? std::optional(std::get<Tensor>(data.data))
                                              : read_external(data, folder_);
      if (!tensor) {
        return input_error("initializer '" + name +
                           "' goes by the rank, so that it must be read, "
                           "but its file '" +
                           external->location + "' is missing or too short");
      }
      if (all.bytes.empty()) all = {tensor->dtype, tensor->shape, {}};
      all.bytes += tensor->bytes;
    }
    return to_proto(all);
  }

  std::vector<RankModel> models_;
  const std::int64_t ranks_;
  const std::string folder_;
  std::map<std::string, std::vector<Part>> parts_;  // by initializer
};

}  // namespace

Result<ModelFile> merge_ranks(std::vector<RankModel> models, std::int64_t ranks,
                              const std::string& folder) {
  return Merge(std::move(models), ranks, folder).run();
}

}  // namespace autopar
