// ONNX's own sharding metadata (IR 11) on the model as the user wrote it. Sources: onnx.in.proto
// and docs/IR.md, "Multi-Device Configuration", of ONNX 1.18; docs/proposals/0006 and 0007.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/hub_ops.hpp"
#include "io/export/external_data.hpp"
#include "io/files/json.hpp"
#include "io/import/external_locations.hpp"
#include "io/import/proto_op.hpp"
#include "io/onnx_read.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kShardingIrVersion = 11;
constexpr const char* kConfiguration = "autopar";
// Every tensor of every node lists all devices. In memory eight bytes each.
constexpr std::int64_t kMostEntries = std::int64_t{1} << 27;

template <class List, class Test>
void erase_if(List& list, const Test& test) {
  list.erase(std::remove_if(list.begin(), list.end(), test), list.end());
}

// A key may stand there once.
void set_property(onnx::ModelProto& model, const char* key, const std::string& value) {
  for (auto& entry : *model.mutable_metadata_props()) {
    if (entry.key() == key) return entry.set_value(value);
  }
  auto* entry = model.add_metadata_props();
  entry->set_key(key);
  entry->set_value(value);
}

// Ops that import takes out where they change nothing: what goes in and comes out is one value.
bool may_be_identity(const onnx::NodeProto& node) {
  constexpr std::array kTypes = {"Identity",  "Dropout", "Cast",     "CastLike",
                                 "Transpose", "Reshape", "Squeeze",  "Flatten",
                                 "Expand",    "Concat",  "Unsqueeze"};
  return domain_of(node).empty() && std::any_of(kTypes.begin(), kTypes.end(),
                                                [&](auto type) { return node.op_type() == type; });
}

// What the names of the file are in the graph.
class FileNames {
 public:
  FileNames(const onnx::GraphProto& file, const Graph& graph) : graph_(graph) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      value_of_.emplace(graph.values[v].name, ValueId(static_cast<std::int64_t>(v)));
    }
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      ops_of_[graph.ops[o].origin_name].push_back(OpId(static_cast<std::int64_t>(o)));
    }
    Names names;  // as import gives them
    for (const auto& node : file.node()) node_names_.push_back(names.unique(name_of_node(node)));
    for (int n = 0; n < file.node_size(); ++n) {
      const onnx::NodeProto& node = file.node(n);
      if (!ops_of(n).empty() || !may_be_identity(node)) continue;
      if (node.input_size() == 0 || node.output_size() == 0) continue;
      same_[node.input(0)].push_back(node.output(0));
      same_[node.output(0)].push_back(node.input(0));
    }
  }

  const std::string& of(int node) const { return node_names_[static_cast<std::size_t>(node)]; }

  // The ops that a node of the file became.
  const std::vector<OpId>& ops_of(int node) const {
    static const std::vector<OpId> none;
    const auto found = ops_of_.find(of(node));
    return found == ops_of_.end() ? none : found->second;
  }

  // Also where the name went with an identity. Invalid: the graph has no such value.
  ValueId value(const std::string& name) const {
    if (const auto found = value_of_.find(name); found != value_of_.end()) return found->second;
    std::vector<std::string> pending = {name};
    std::unordered_set<std::string> seen = {name};
    while (!pending.empty()) {
      const std::string at = pending.back();
      pending.pop_back();
      const auto found = value_of_.find(at);
      const bool is_value = found != value_of_.end();
      if (is_value && graph_.value(found->second).kind != ValueKind::kConstant) {
        return found->second;
      }
      const auto next = same_.find(at);
      if (is_value || next == same_.end()) continue;
      for (const std::string& other : next->second) {
        if (seen.insert(other).second) pending.push_back(other);
      }
    }
    return {};
  }

 private:
  const Graph& graph_;
  std::unordered_map<std::string, ValueId> value_of_;
  std::unordered_map<std::string, std::vector<OpId>> ops_of_;
  std::vector<std::string> node_names_;
  std::unordered_map<std::string, std::vector<std::string>> same_;
};

// Which devices have which shard, as the format says it. Groups have the keys -1, -2, ...
class Placements {
 public:
  explicit Placements(const Mesh& mesh) : mesh_(mesh) {}

  const onnx::ShardingSpecProto& of(const Spec& spec) {
    auto [found, added] = known_.try_emplace(spec);
    if (added) place(spec, found->second);
    return found->second;
  }

 private:
  // Shards in row-major order of the split dimensions; within one, of its axes.
  void place(const Spec& spec, onnx::ShardingSpecProto& proto) const {
    std::int64_t shards = 1;
    for (std::int64_t n : split_counts(spec, mesh_)) shards *= n;
    std::vector<std::vector<std::int64_t>> holders(static_cast<std::size_t>(shards));
    for (std::int64_t device = 0; device < mesh_.size(); ++device) {
      const std::vector<std::int64_t> at = mesh_.coordinates(device);
      std::int64_t shard = 0;
      for (const AxisList& axes : spec.dims) {
        for (int axis : axes) {
          const auto a = static_cast<std::size_t>(axis);
          shard = shard * mesh_.axes[a].size + at[a];
        }
      }
      holders[static_cast<std::size_t>(shard)].push_back(device);
    }
    for (std::size_t s = 0; s < holders.size(); ++s) {
      if (holders[s].size() == 1) {
        proto.add_device(holders[s][0]);
        continue;
      }
      const std::int64_t key = -1 - static_cast<std::int64_t>(s);
      proto.add_device(key);
      auto* entry = proto.add_index_to_device_group_map();
      entry->set_key(key);
      for (std::int64_t device : holders[s]) entry->add_value(device);
    }
  }

  const Mesh& mesh_;
  std::map<Spec, onnx::ShardingSpecProto> known_;
};

class Annotator {
 public:
  Annotator(onnx::ModelProto& model, const Graph& graph, const std::vector<OpSpecs>& op_specs,
            const Strategy& strategy)
      : model_(model),
        graph_(graph),
        op_specs_(op_specs),
        strategy_(strategy),
        names_(model.graph(), graph),
        placements_(strategy.mesh) {}

  Status run() {
    add_configuration();
    for (int n = 0; n < model_.graph().node_size(); ++n) {
      annotate(n, *model_.mutable_graph()->mutable_node(n));
      if (entries_ <= kMostEntries) continue;
      return input_error(
          "the sharding metadata lists every device for every tensor, too often for " +
          std::to_string(strategy_.mesh.size()) + " devices and " +
          std::to_string(model_.graph().node_size()) +
          " nodes; try fewer devices, or without --annotate");
    }
    return Ok{};
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> warnings;
    if (partial_.empty()) return warnings;
    warnings.push_back(
        std::to_string(partial_.size()) + " tensors (" + graph_.value(partial_.front()).name +
        ", ...) are partial sums somewhere, which ONNX's sharding metadata cannot say: the "
        "annotated "
        "model has them as they lie when reduced, which may be sooner than in the plan");
    if (partial_.size() == 1) {
      warnings[0].replace(0, warnings[0].find(" are"),
                          "1 tensor (" + graph_.value(partial_.front()).name + ")");
    }
    return warnings;
  }

 private:
  // In the place of one from before, on a model that was annotated already.
  void add_configuration() {
    erase_if(*model_.mutable_configuration(),
             [](const auto& other) { return other.name() == kConfiguration; });
    for (auto& node : *model_.mutable_graph()->mutable_node()) {
      erase_if(*node.mutable_device_configurations(),
               [](const auto& other) { return other.configuration_id() == kConfiguration; });
    }
    auto* configuration = model_.add_configuration();
    configuration->set_name(kConfiguration);
    configuration->set_num_devices(static_cast<std::int32_t>(strategy_.mesh.size()));
  }

  // A name that stands at several ports of a node has the layout of the first.
  void annotate(int n, onnx::NodeProto& node) {
    onnx::NodeDeviceConfigurationProto proto;
    std::unordered_set<std::string> done;
    for (int i = 0; i < node.input_size(); ++i) {
      if (node.input(i).empty() || !done.insert(node.input(i)).second) continue;
      const Use use = reader_of(n, node, i);
      if (!use.op.valid()) continue;
      const Op& op = graph_.op(use.op);
      const auto port = static_cast<std::size_t>(use.port);
      const Spec& spec = op_specs_[use.op.index()].inputs[port];
      add(node.input(i), op.inputs[port], spec, proto);
    }
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;
      const ValueId v = names_.value(output);
      // What another node makes is not this one's, whatever it is called.
      const bool makes = v.valid() && graph_.value(v).producer.valid() &&
                         (names_.ops_of(n).empty() ? node.op_type() == "If" : is_of(n, v));
      if (makes) add(output, v, left_in(v), proto);
    }
    if (proto.sharding_spec_size() == 0) return;
    proto.set_configuration_id(kConfiguration);
    *node.add_device_configurations() = std::move(proto);
  }

  bool is_of(int n, ValueId v) const {
    const std::vector<OpId>& ops = names_.ops_of(n);
    return std::find(ops.begin(), ops.end(), graph_.value(v).producer) != ops.end();
  }

  // Who of what the node became reads its input `i`, first. Constants may go by another name, that
  // of one with the same contents, and what is computed again is a copy: then by the place of the
  // input, where the op is still the node.
  Use reader_of(int n, const onnx::NodeProto& node, int i) const {
    const ValueId v = names_.value(node.input(i));
    for (OpId id : names_.ops_of(n)) {
      const std::vector<ValueId>& inputs = graph_.op(id).inputs;
      const auto found = std::find_if(inputs.begin(), inputs.end(),
                                      [&](ValueId input) { return in_file(input) == v; });
      if (v.valid() && found != inputs.end()) {
        return {id, static_cast<int>(found - inputs.begin())};
      }
    }
    const auto port = static_cast<std::size_t>(i);
    for (OpId id : names_.ops_of(n)) {
      const Op& op = graph_.op(id);
      if (op.name != names_.of(n) || !op.has_input(port)) continue;
      if (op.type != node.op_type() && !is_view(op)) continue;
      if (is_operand_constant(op, port)) continue;
      const Value& read = graph_.value(op.inputs[port]);
      const bool same =
          v.valid() ? read.shape == graph_.value(v).shape && read.dtype == graph_.value(v).dtype
                    : read.kind == ValueKind::kConstant;
      if (same) return {id, i};
    }
    return {};
  }

  // The file has no hub ops, nor phase ops.
  ValueId in_file(ValueId input) const {
    const auto producer = [&] { return input.valid() ? graph_.value(input).producer : OpId(); };
    while (producer().valid() && is_hub_op(graph_.op(producer()))) {
      input = graph_.op(producer()).inputs[0];
    }
    return input;
  }

  // How a value lies when its op is through with it: reduced, if its readers want it so.
  const Spec& left_in(ValueId v) const {
    const ValueSpecs& specs = strategy_.values[v.index()];
    return !specs.spec.partial.empty() && specs.hub.partial.empty() ? specs.hub : specs.spec;
  }

  void add(const std::string& name, ValueId v, const Spec& spec,
           onnx::NodeDeviceConfigurationProto& proto) {
    const Value& value = graph_.value(v);
    if (!spec.partial.empty() || !strategy_.values[v.index()].spec.partial.empty()) note_partial(v);
    Spec reduced = spec;
    reduced.partial.clear();
    reduced.reduction = Reduction::kSum;
    onnx::ShardingSpecProto& out = *proto.add_sharding_spec();
    out = placements_.of(reduced);
    out.set_tensor_name(name);
    const std::vector<std::int64_t> counts = split_counts(reduced, strategy_.mesh);
    for (std::size_t d = 0; d < counts.size(); ++d) {
      if (counts[d] == 1) continue;
      auto* dim = out.add_sharded_dim();
      dim->set_axis(static_cast<std::int64_t>(d));
      auto* simple = dim->add_simple_sharding();
      simple->set_dim_value(value.shape[d]);
      simple->set_num_shards(counts[d]);
    }
    entries_ += strategy_.mesh.size();
  }

  void note_partial(ValueId v) {
    if (noted_.insert(static_cast<std::int64_t>(v.index())).second) partial_.push_back(v);
  }

  onnx::ModelProto& model_;
  const Graph& graph_;
  const std::vector<OpSpecs>& op_specs_;
  const Strategy& strategy_;
  const FileNames names_;
  Placements placements_;
  std::int64_t entries_ = 0;
  std::vector<ValueId> partial_;
  std::unordered_set<std::int64_t> noted_;
};

void external_values(const onnx::GraphProto& graph, Graph& found) {
  for (const auto& tensor : graph.initializer()) {
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() != "location") continue;
      found.values.push_back(
          {.name = tensor.name(), .data = ExternalData{.location = entry.value()}});
    }
  }
  for (const auto& node : graph.node()) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) external_values(attribute.g(), found);
    }
  }
}

Status write_proto(const onnx::ModelProto& model, const std::string& path, UnfinishedFiles& files) {
  if (model.ByteSizeLong() > std::numeric_limits<std::int32_t>::max()) {
    return input_error(path + ": takes " + std::to_string(model.ByteSizeLong()) +
                       " bytes, an ONNX file can hold less than 2147483648; store the model's "
                       "weights as external data, or try fewer devices");
  }
  return write_file(files, path, [&](int file) -> int {
    google::protobuf::io::FileOutputStream stream(file, 1 << 20);
    bool good = true;
    {
      google::protobuf::io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      model.SerializeWithCachedSizes(&coded);
      good = !coded.HadError();
    }
    good = stream.Flush() && good;
    return good ? 0 : (stream.GetErrno() != 0 ? stream.GetErrno() : EIO);
  });
}

}  // namespace

Result<std::vector<std::string>> write_annotated(const std::string& model_path, const Graph& graph,
                                                 const GraphRules& rules, const Strategy& strategy,
                                                 const PlanMetadata& metadata,
                                                 const std::string& path, UnfinishedFiles& files) {
  const auto in_file = [&](const Error& error) {
    return input_error(model_path + ": " + error.message);
  };
  Result<MappedFile> bytes = open_file(model_path);
  if (!bytes) return in_file(bytes.error());
  Result<ModelFile> file = read_model(bytes->bytes());
  if (!file) return in_file(file.error());
  onnx::ModelProto& model = file->model;
  if (model.ir_version() == 0) {
    return input_error(model_path + ": is a graph.json; sharding metadata is for ONNX models");
  }
  AUTOPAR_TRY(op_specs, op_specs_of(graph, rules, strategy));
  Annotator annotator(model, graph, op_specs, strategy);
  if (Status done = annotator.run(); !done) return in_file(done.error());
  model.set_ir_version(std::max<std::int64_t>(model.ir_version(), kShardingIrVersion));
  set_property(model, "autopar.mesh", json_mesh(strategy.mesh, metadata.tier_names));
  set_property(model, "autopar.strategy_sha256", metadata.strategy_sha256);

  Graph external;
  external_values(model.graph(), external);
  AUTOPAR_TRY(warnings, place_external_data(external, folder_of(model_path).string(),
                                            folder_of(path).string(), kLinkBytes, files));
  AUTOPAR_RETURN_IF_ERROR(write_proto(model, path, files));
  for (const std::string& warning : annotator.warnings()) warnings.push_back(warning);
  return warnings;
}

}  // namespace autopar
