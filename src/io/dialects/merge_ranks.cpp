// Of the files of ranks one program. Where the files differ is settled in this order: groups of
// collectives are put together; a Slice whose ends go by the rank is a ShardSlice; any other
// initializer that goes by the rank is a ShardSlice of the parts of all. Linear in the size of the
// files.
#include <algorithm>
#include <set>
#include <utility>

#include "io/dialects/rank_parts.hpp"
#include "io/import/proto_op.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

bool is_own(const onnx::NodeProto& node) { return node.domain() == kCollectiveDomain; }

onnx::AttributeProto* attribute_of(onnx::NodeProto& node, const char* name) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::string without_groups(const onnx::NodeProto& node) {
  if (!is_own(node)) return node.SerializeAsString();
  onnx::NodeProto copy = node;
  if (auto* groups = attribute_of(copy, "groups")) groups->clear_ints();
  return copy.SerializeAsString();
}

class Merge {
 public:
  Merge(std::vector<RankModel>& models, std::int64_t ranks) : models_(models), ranks_(ranks) {}

  // What stands beside the nodes and the initializers.
  Status check_heads() {
    for (std::size_t m = 1; m < models_.size(); ++m) {
      for (const char* part :
           {"list of opsets", "list of functions", "list of inputs", "list of outputs",
            "metadata_props autopar.io", "metadata_props autopar.mesh"}) {
        if (head(m, part) != head(0, part)) {
          return differs(models_[m], models_[0], std::string("the ") + part);
        }
      }
      if (graph(m).node_size() == graph(0).node_size()) continue;
      return differs(models_[m], models_[0],
                     "the number of ops, " + std::to_string(graph(m).node_size()) + ", not " +
                         std::to_string(graph(0).node_size()) + ",");
    }
    return Ok{};
  }

  // A Constant that goes by the rank is an initializer like any other.
  Status hoist_constants() {
    std::vector<int> hoisted;
    for (int i = 0; i < graph(0).node_size(); ++i) {
      const onnx::NodeProto& first = graph(0).node(i);
      if (first.op_type() != "Constant" || !domain_of(first).empty()) continue;
      const std::string text = first.SerializeAsString();
      bool differ = false, alike = first.output_size() == 1;
      for (std::size_t m = 1; m < models_.size(); ++m) {
        const onnx::NodeProto& other = graph(m).node(i);
        differ |= other.SerializeAsString() != text;
        alike = alike && other.op_type() == "Constant" && domain_of(other).empty() &&
                other.output_size() == 1 && other.output(0) == first.output(0);
      }
      if (!differ || !alike) continue;
      for (std::size_t m = 0; m < models_.size(); ++m) {
        onnx::NodeProto& node = *graph(m).mutable_node(i);
        const auto tensor = constant_of_node(node);
        if (!tensor) {
          return input_error(models_[m].name + ": " + foreign_label(node) +
                             " goes by the rank, and " + tensor.error().message);
        }
        *graph(m).add_initializer() = to_proto(*tensor);
        graph(m).mutable_initializer()->rbegin()->set_name(node.output(0));
      }
      hoisted.push_back(i);
    }
    for (auto i = hoisted.rbegin(); i != hoisted.rend(); ++i) {
      for (std::size_t m = 0; m < models_.size(); ++m) {
        graph(m).mutable_node()->DeleteSubrange(*i, 1);
      }
    }
    return Ok{};
  }

  Status merge_nodes() {
    for (int i = 0; i < graph(0).node_size(); ++i) {
      const std::string text = models_.size() > 1 ? without_groups(graph(0).node(i)) : "";
      for (std::size_t m = 1; m < models_.size(); ++m) {
        const onnx::NodeProto& other = graph(m).node(i);
        if (without_groups(other) != text) {
          return differs(models_[m], models_[0], foreign_label(other));
        }
      }
      if (is_own(graph(0).node(i))) AUTOPAR_RETURN_IF_ERROR(merge_groups(i));
    }
    return Ok{};
  }

  Status replace_slices(const RankParts& parts) {
    std::unordered_map<std::string, Shape> shapes;
    const auto add = [&](const auto& infos) {
      for (const auto& info : infos) {
        Shape& shape = shapes[info.name()];
        shape.clear();
        for (const auto& dim : info.type().tensor_type().shape().dim()) {
          shape.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
        }
      }
    };
    add(graph(0).value_info());
    add(graph(0).input());
    add(graph(0).output());
    for (const auto& tensor : graph(0).initializer()) {
      shapes[tensor.name()] = Shape(tensor.dims().begin(), tensor.dims().end());
    }
    for (auto& node : *graph(0).mutable_node()) {
      if (node.op_type() != "Slice" || !domain_of(node).empty() || node.input_size() < 3) continue;
      if (!parts.has(node.input(1)) && !parts.has(node.input(2))) continue;
      AUTOPAR_RETURN_IF_ERROR(replace_slice(node, shapes[node.input(0)], parts));
    }
    return Ok{};
  }

 private:
  onnx::GraphProto& graph(std::size_t m) { return *models_[m].file.model.mutable_graph(); }

  std::string head(std::size_t m, const std::string& part) const {
    const onnx::ModelProto& model = models_[m].file.model;
    onnx::ModelProto kept;
    if (part == "list of opsets") *kept.mutable_opset_import() = model.opset_import();
    if (part == "list of functions") *kept.mutable_functions() = model.functions();
    if (part == "list of inputs") *kept.mutable_graph()->mutable_input() = model.graph().input();
    if (part == "list of outputs") *kept.mutable_graph()->mutable_output() = model.graph().output();
    for (const auto& entry : model.metadata_props()) {
      if (part == "metadata_props " + entry.key()) *kept.add_metadata_props() = entry;
    }
    return kept.SerializeAsString();
  }

  // A file's list need only have the groups of its own ranks.
  Status merge_groups(int i) {
    onnx::NodeProto& node = *graph(0).mutable_node(i);
    auto* groups = attribute_of(node, "groups");
    const auto* size_attribute = attribute_of(node, "group_size");
    if (groups == nullptr || size_attribute == nullptr || size_attribute->i() < 1) return Ok{};
    const auto size = static_cast<std::size_t>(size_attribute->i());
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

  Status replace_slice(onnx::NodeProto& node, const Shape& shape, const RankParts& parts) {
    const auto refuse = [&](const std::string& what) {
      return input_error(models_[0].name + ": " + foreign_label(node) +
                         ": what it takes goes by the rank, and " + what +
                         "; expected that each rank takes one of equal parts of one dimension; try "
                         "AllToAll or a ShardSlice of ai.autopar");
    };
    const auto axis = integer_of_all(node, 3, 0, parts);
    if (!axis || integer_of_all(node, 4, 1, parts) != 1) {
      return refuse(
          "its axes or steps are not one and the same on all ranks, or the step is not 1");
    }
    const auto dimensions = static_cast<std::int64_t>(shape.size());
    if (dimensions == 0) return refuse("its input's shape is not told");
    const std::int64_t dimension = *axis < 0 ? *axis + dimensions : *axis;
    if (dimension < 0 || dimension >= dimensions) {
      return refuse("its axis " + std::to_string(*axis) + " is no dimension of its input " +
                    to_text(shape));
    }
    AUTOPAR_TRY(owners,
                owners_of_slice(node, shape[static_cast<std::size_t>(dimension)], parts, refuse));
    const auto groups = groups_over(owners);
    if (!groups) return refuse("some parts are taken more often than others, or by no rank");
    onnx::NodeProto slice = shard_slice(node.input(0), node.output(0), dimension, *groups,
                                        static_cast<std::int64_t>(owners.size()));
    if (!node.name().empty()) slice.set_name(node.name());
    node = std::move(slice);
    import_own_domain(models_[0].file.model);
    return Ok{};
  }

  // Of an op's input, where it is one integer and the same on all ranks.
  std::optional<std::int64_t> integer_of_all(const onnx::NodeProto& node, int input,
                                             std::int64_t absent, const RankParts& parts) const {
    if (node.input_size() <= input || node.input(input).empty()) return absent;
    const std::string& name = node.input(input);
    const auto value = parts.integer_on(name, 0);
    for (std::int64_t rank = 1; parts.has(name) && rank < ranks_; ++rank) {
      if (parts.integer_on(name, rank) != value) return std::nullopt;
    }
    return value;
  }

  // By part of a dimension: the ranks that take it.
  template <class Refuse>
  Result<std::vector<Ranks>> owners_of_slice(const onnx::NodeProto& node, std::int64_t extent,
                                             const RankParts& parts, const Refuse& refuse) const {
    if (extent < 0) return refuse("its input's shape is not told");
    std::vector<Ranks> owners;
    std::int64_t length = -1;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      const auto from = parts.integer_on(node.input(1), rank);
      const auto to = parts.integer_on(node.input(2), rank);
      if (!from || !to) return refuse("its ends are no single integers");
      const auto within = [&](std::int64_t v) {
        return std::clamp<std::int64_t>(v < 0 ? v + extent : v, 0, extent);
      };
      const std::int64_t begin = within(*from), end = within(*to);
      if (rank == 0) length = end - begin;
      if (length < 1 || extent % length != 0 || end - begin != length || begin % length != 0) {
        return refuse("rank " + std::to_string(rank) + " takes " + std::to_string(begin) + " to " +
                      std::to_string(end) + " of " + std::to_string(extent));
      }
      // A dimension can have any size in a file.
      if (extent / length > ranks_) return refuse("some parts are taken by no rank");
      owners.resize(static_cast<std::size_t>(extent / length));
      owners[static_cast<std::size_t>(begin / length)].push_back(rank);
    }
    return owners;
  }

  std::vector<RankModel>& models_;
  const std::int64_t ranks_;
};

}  // namespace

Result<ModelFile> merge_ranks(std::vector<RankModel> models, std::int64_t ranks,
                              const std::string& folder) {
  Merge merge(models, ranks);
  AUTOPAR_RETURN_IF_ERROR(merge.check_heads());
  AUTOPAR_RETURN_IF_ERROR(merge.hoist_constants());
  AUTOPAR_RETURN_IF_ERROR(merge.merge_nodes());
  AUTOPAR_TRY(parts, RankParts::of(models, ranks, folder));
  AUTOPAR_RETURN_IF_ERROR(merge.replace_slices(parts));
  const Status stacked = parts.stack(models[0].file.model);
  if (!stacked) return input_error(models[0].name + ": " + stacked.error().message);
  return std::move(models[0].file);
}

}  // namespace autopar
