// Walks a model and has every word of another runtime translated.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "io/dialects/dialects.hpp"
#include "io/export/plan_metadata.hpp"

namespace autopar {
namespace {

enum class Speaks { kNothing, kTrt, kOrt };

// What of ONNX Runtime's domain exchanges data between ranks. Source: core/graph/contrib_ops/
// collective_defs.cc, and orttraining's definitions.
bool is_ort_collective(const std::string& type) {
  static const std::set<std::string> types = {"AllReduce",
                                              "AllGather",
                                              "AllToAll",
                                              "NcclAllReduce",
                                              "NcclAllGather",
                                              "NcclReduceScatter",
                                              "Send",
                                              "Recv",
                                              "DistributedMatMul",
                                              "DistributedSlice",
                                              "DistributedReshape",
                                              "DistributedExpand",
                                              "DistributedReduceSum",
                                              "DistributedReduceMax",
                                              "DistributedReduceMean",
                                              "DistributedSqueeze",
                                              "DistributedUnsqueeze"};
  return types.count(type) > 0;
}

using FunctionNames = std::set<std::pair<std::string, std::string>>;  // domain, name

FunctionNames function_names_of(const onnx::ModelProto& model) {
  FunctionNames functions;
  for (const auto& function : model.functions()) {
    functions.insert({function.domain(), function.name()});
  }
  return functions;
}

Speaks speaks(const onnx::NodeProto& node, const FunctionNames& functions) {
  const bool microsoft = node.domain() == "com.microsoft" && is_ort_collective(node.op_type());
  if (!microsoft && node.op_type() != "DistCollective") return Speaks::kNothing;
  if (functions.count({node.domain(), node.op_type()}) > 0) return Speaks::kNothing;
  return microsoft ? Speaks::kOrt : Speaks::kTrt;
}

using Visit = std::function<Status(onnx::NodeProto&)>;
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

Status each(Nodes& nodes, const Visit& visit) {
  for (auto& node : nodes) {
    AUTOPAR_RETURN_IF_ERROR(visit(node));
    for (auto& attribute : *node.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      AUTOPAR_RETURN_IF_ERROR(each(*attribute.mutable_g()->mutable_node(), visit));
    }
  }
  return Ok{};
}

Status each(onnx::ModelProto& model, const Visit& visit) {
  AUTOPAR_RETURN_IF_ERROR(each(*model.mutable_graph()->mutable_node(), visit));
  for (auto& function : *model.mutable_functions()) {
    AUTOPAR_RETURN_IF_ERROR(each(*function.mutable_node(), visit));
  }
  return Ok{};
}

// 0 where metadata_props do not say it.
Result<std::int64_t> ranks_told(const onnx::ModelProto& model) {
  const Properties properties = properties_of(model);
  AUTOPAR_TRY(place, stage_place_of(properties, "the file"));
  if (place.world_size > 0 || properties.count("autopar.mesh") == 0) return place.world_size;
  std::vector<std::string> tiers;
  AUTOPAR_TRY(mesh, mesh_of(properties, "the file", tiers));
  return mesh.size();
}

}  // namespace

std::optional<std::string> foreign_collective(onnx::ModelProto& model) {
  const FunctionNames functions = function_names_of(model);
  std::optional<std::string> found;
  const Status walked = each(model, [&](const onnx::NodeProto& node) -> Status {
    if (!found && speaks(node, functions) != Speaks::kNothing) found = foreign_label(node);
    return Ok{};
  });
  static_cast<void>(walked);
  return found;
}

Result<std::string> translate_collectives(onnx::ModelProto& model, std::int64_t ranks) {
  const FunctionNames functions = function_names_of(model);
  std::int64_t said = 0;
  bool trt = false, ort = false;
  AUTOPAR_RETURN_IF_ERROR(each(model, [&](const onnx::NodeProto& node) -> Status {
    const Speaks words = speaks(node, functions);
    trt |= words == Speaks::kTrt;
    ort |= words == Speaks::kOrt;
    if (words == Speaks::kTrt) said = std::max(said, ranks_said_by_trt(node));
    if (words == Speaks::kOrt) said = std::max(said, ranks_said_by_ort(node));
    return Ok{};
  }));
  if (!trt && !ort) return std::string();
  if (ranks == 0) {
    AUTOPAR_TRY(told, ranks_told(model));
    ranks = told > 0 ? told : said;
  }
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
  if (ranks > kMostRanks) {
    return input_error("its collectives are for " + std::to_string(ranks) +
                       " ranks; expected at most " + std::to_string(kMostRanks));
  }
  AUTOPAR_RETURN_IF_ERROR(each(model, [&](onnx::NodeProto& node) -> Status {
    const Speaks words = speaks(node, functions);
    if (words == Speaks::kTrt) return translate_trt(node, ranks);
    return words == Speaks::kOrt ? translate_ort(node, ranks) : Status(Ok{});
  }));
  import_own_domain(model);
  for (auto& function : *model.mutable_functions()) import_own_domain(function);
  return std::string(trt && ort ? "trt and ort" : trt ? "trt" : "ort");
}

std::string foreign_label(const onnx::NodeProto& node) {
  const std::string domain = node.domain().empty() ? "" : node.domain() + "::";
  const std::string output = node.output_size() > 0 ? node.output(0) : "";
  return "op '" + (node.name().empty() ? output : node.name()) + "' (" + domain + node.op_type() +
         ")";
}

std::vector<std::int64_t> all_ranks(std::int64_t ranks) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Error ranks_unknown(const ForeignNode& node) {
  return node.refuse("it runs among all ranks, and nothing in the file says how many there are",
                     "metadata_props autopar.world_size, or a list of files with \"world_size\" "
                     "(plan.trt.json, plan.ort.json: see the manual)");
}

Result<ForeignNode> ForeignNode::of(onnx::NodeProto& node, const std::vector<std::string>& known) {
  ForeignNode foreign(node);
  for (const auto& attribute : node.attribute()) {
    if (std::find(known.begin(), known.end(), attribute.name()) == known.end()) {
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      return foreign.refuse("the attribute " + attribute.name() + " is not known of it; expected " +
                                (known.empty() ? "none" : "only " + names),
                            "the op without it");
    }
    if (!attribute.ref_attr_name().empty()) {
      return foreign.expected(attribute.name(), "a value",
                              "a reference to the function's attribute " +
                                  attribute.ref_attr_name() +
                                  "; try the model with that function "
                                  "inlined");
    }
    foreign.attributes_[attribute.name()] = attribute;
  }
  if (node.input_size() != 1 || node.output_size() != 1 || node.input(0).empty()) {
    return foreign.refuse("expected one input and one output, found " +
                              std::to_string(node.input_size()) + " and " +
                              std::to_string(node.output_size()),
                          "one op per tensor");
  }
  return foreign;
}

Result<std::int64_t> ForeignNode::integer(const std::string& name, std::int64_t absent) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) return absent;
  if (found->second.type() == onnx::AttributeProto::INT) return std::int64_t{found->second.i()};
  return expected(name, "an integer",
                  onnx::AttributeProto::AttributeType_Name(found->second.type()));
}

Result<std::vector<std::int64_t>> ForeignNode::integers(const std::string& name) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) return std::vector<std::int64_t>();
  if (found->second.type() == onnx::AttributeProto::INTS) {
    return std::vector<std::int64_t>(found->second.ints().begin(), found->second.ints().end());
  }
  return expected(name, "a list of integers",
                  onnx::AttributeProto::AttributeType_Name(found->second.type()));
}

Result<std::string> ForeignNode::text(const std::string& name, const std::string& absent) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) return absent;
  if (found->second.type() == onnx::AttributeProto::STRING) return found->second.s();
  return expected(name, "a text", onnx::AttributeProto::AttributeType_Name(found->second.type()));
}

Error ForeignNode::expected(const std::string& attribute, const std::string& what,
                            const std::string& found) const {
  return input_error(foreign_label(*node_) + ": attribute " + attribute + ": expected " + what +
                     ", found " + found);
}

Error ForeignNode::refuse(const std::string& reason, const std::string& hint) const {
  return input_error(foreign_label(*node_) + ": " + reason + "; try " + hint);
}

void ForeignNode::become(const std::string& type, const std::vector<std::int64_t>& group,
                         std::int64_t size) {
  node_->set_domain(kCollectiveDomain);
  node_->set_op_type(type);
  node_->clear_attribute();
  auto* groups = node_->add_attribute();
  groups->set_name("groups");
  groups->set_type(onnx::AttributeProto::INTS);
  groups->mutable_ints()->Add(group.begin(), group.end());
  set("group_size", size);
}

void ForeignNode::set(const std::string& name, std::int64_t value) {
  auto* attribute = node_->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

void ForeignNode::set(const std::string& name, const std::string& value) {
  auto* attribute = node_->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(value);
}

}  // namespace autopar
