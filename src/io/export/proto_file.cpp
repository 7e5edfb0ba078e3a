// ONNX files, written and read node by node. Protobuf writes fields in the order of their numbers,
// and a message is its fields one after the other, so a message may be written in pieces.
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <map>
#include <unordered_map>

#include "autopar/errors.hpp"
#include "autopar/files.hpp"
#include "autopar/program_bytes.hpp"
#include "io/export/model_bytes.hpp"
#include "io/export/model_proto.hpp"
#include "io/import/external_locations.hpp"
#include "io/import/proto_op.hpp"
#include "io/onnx_read.hpp"
#include "io/proto_tag.hpp"

namespace autopar {
namespace {

namespace pb = google::protobuf::io;
using google::protobuf::internal::WireFormatLite;

// Protobuf counts bytes with 31 bits.
constexpr std::size_t kMostBytes = std::numeric_limits<std::int32_t>::max();

// Of a message as a field, tag and length included.
std::size_t field_bytes(int field, std::size_t message_bytes) {
  return pb::CodedOutputStream::VarintSize32(tag_of(field)) +
         pb::CodedOutputStream::VarintSize64(message_bytes) + message_bytes;
}

void write_start(pb::CodedOutputStream& out, int field, std::size_t message_bytes) {
  out.WriteTag(tag_of(field));
  out.WriteVarint64(message_bytes);
}

class ModelWriter {
 public:
  explicit ModelWriter(LeanModel& model) : groups_(model.groups), model_(model.proto) {
    graph_.Swap(model_.mutable_graph());
    nodes_.Swap(graph_.mutable_node());
    before_graph_ = model_;
    before_graph_.clear_graph();
    before_graph_.clear_opset_import();
    before_graph_.clear_metadata_props();
    after_graph_.mutable_opset_import()->Swap(model_.mutable_opset_import());
    after_graph_.mutable_metadata_props()->Swap(model_.mutable_metadata_props());
    measure();
  }

  std::size_t bytes() const {
    return before_graph_.ByteSizeLong() +
           field_bytes(onnx::ModelProto::kGraphFieldNumber, graph_bytes_) +
           after_graph_.ByteSizeLong();
  }
  std::size_t bytes_of_groups() const { return bytes_of_groups_; }

  bool write(pb::CodedOutputStream& out) const {
    before_graph_.SerializeToCodedStream(&out);
    write_start(out, onnx::ModelProto::kGraphFieldNumber, graph_bytes_);
    for (int n = 0; n < nodes_.size(); ++n) write_node(out, n);
    graph_.SerializeToCodedStream(&out);
    after_graph_.SerializeToCodedStream(&out);
    return !out.HadError();
  }

 private:
  static constexpr int kAttribute = onnx::NodeProto::kAttributeFieldNumber;

  const IntList& groups(int node) const { return groups_[static_cast<std::size_t>(node)]; }
  // -1: none that was set aside.
  int place_of_groups(int n) const {
    const onnx::NodeProto& node = nodes_.Get(n);
    for (int a = 0; a < node.attribute_size(); ++a) {
      if (lists_groups(node, node.attribute(a)) && !groups(n).values().empty()) return a;
    }
    return -1;
  }

  void measure() {
    graph_bytes_ = graph_.ByteSizeLong();
    for (int n = 0; n < nodes_.size(); ++n) {
      std::size_t bytes = nodes_.Get(n).ByteSizeLong();
      if (const int place = place_of_groups(n); place >= 0) {
        const onnx::AttributeProto& empty = nodes_.Get(n).attribute(place);
        std::string& full = attribute_of_[&groups(n).values()];
        if (full.empty()) full = with_groups(empty, groups(n));
        bytes -= field_bytes(kAttribute, empty.ByteSizeLong());
        bytes += field_bytes(kAttribute, full.size());
        bytes_of_groups_ += full.size();
      }
      node_bytes_.push_back(bytes);
      graph_bytes_ += field_bytes(onnx::GraphProto::kNodeFieldNumber, bytes);
    }
  }

  static std::string with_groups(onnx::AttributeProto attribute, const IntList& groups) {
    attribute.mutable_ints()->Add(groups.values().begin(), groups.values().end());
    return attribute.SerializeAsString();
  }

  void write_node(pb::CodedOutputStream& out, int n) const {
    write_start(out, onnx::GraphProto::kNodeFieldNumber, node_bytes_[static_cast<std::size_t>(n)]);
    const int place = place_of_groups(n);
    if (place < 0) {
      nodes_.Get(n).SerializeToCodedStream(&out);
      return;
    }
    // What comes before the list of ranks, the list, what comes after.
    onnx::NodeProto before = nodes_.Get(n);
    onnx::NodeProto after;
    for (int a = place + 1; a < before.attribute_size(); ++a) {
      after.add_attribute()->Swap(before.mutable_attribute(a));
    }
    before.mutable_attribute()->DeleteSubrange(place, before.attribute_size() - place);
    after.set_domain(before.domain());
    before.clear_domain();
    before.SerializeToCodedStream(&out);
    const std::string& attribute = attribute_of_.at(&groups(n).values());
    write_start(out, kAttribute, attribute.size());
    out.WriteString(attribute);
    after.SerializeToCodedStream(&out);
  }

  const std::vector<IntList>& groups_;
  onnx::ModelProto& model_;
  onnx::ModelProto before_graph_, after_graph_;
  onnx::GraphProto graph_;  // but its nodes
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes_;
  std::vector<std::size_t> node_bytes_;
  std::size_t graph_bytes_ = 0;
  std::size_t bytes_of_groups_ = 0;
  // The attribute as it is in the file, by the list; looked up, never walked.
  std::unordered_map<const std::vector<std::int64_t>*, std::string> attribute_of_;
};

class ModelReader {
 public:
  explicit ModelReader(pb::CodedInputStream& in) : in_(in) {}

  bool read(LeanModel& model) {
    std::string others;
    const bool good = fields(others, [&](std::uint32_t tag) {
      if (tag != tag_of(onnx::ModelProto::kGraphFieldNumber)) return Taken::kNo;
      return message([&] { return read_graph(model); });
    });
    return good && model.proto.MergeFromString(others);
  }

 private:
  enum class Taken { kNo, kYes, kBad };

  // Reads the fields up to the end of the message; those that are not taken go to `others`.
  template <class Take>
  bool fields(std::string& others, const Take& take) {
    pb::StringOutputStream stream(&others);
    pb::CodedOutputStream kept(&stream);
    while (const std::uint32_t tag = in_.ReadTag()) {
      const Taken taken = take(tag);
      if (taken == Taken::kBad) return false;
      if (taken == Taken::kNo && !WireFormatLite::SkipField(&in_, tag, &kept)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

  template <class Read>
  Taken message(const Read& read) {
    const auto limit = in_.ReadLengthAndPushLimit();
    const bool good = read();
    in_.PopLimit(limit);
    return good ? Taken::kYes : Taken::kBad;
  }

  bool read_graph(LeanModel& model) {
    onnx::GraphProto& graph = *model.proto.mutable_graph();
    std::string others;
    const bool good = fields(others, [&](std::uint32_t tag) {
      if (tag == tag_of(onnx::GraphProto::kNodeFieldNumber)) {
        return message([&] { return read_node(*graph.add_node(), model.groups.emplace_back()); });
      }
      if (tag == tag_of(onnx::GraphProto::kInitializerFieldNumber)) {
        return message([&] { return read_whole(*graph.add_initializer()); });
      }
      return Taken::kNo;
    });
    return good && graph.MergeFromString(others);
  }

  template <class Message>
  bool read_whole(Message& message) {
    return message.MergeFromCodedStream(&in_) && in_.ConsumedEntireMessage();
  }

  bool read_node(onnx::NodeProto& node, IntList& groups) {
    if (!read_whole(node)) return false;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (!lists_groups(node, attribute)) continue;
      google::protobuf::RepeatedField<std::int64_t> ranks;  // clear() would keep the memory
      ranks.Swap(attribute.mutable_ints());
      groups = shared({ranks.begin(), ranks.end()});
    }
    return true;
  }

  // The same list as that of an earlier node where the ranks are the same.
  IntList shared(const std::vector<std::int64_t>& ranks) {
    return lists_.try_emplace(ranks, ranks).first->second;
  }

  pb::CodedInputStream& in_;
  std::map<std::vector<std::int64_t>, IntList> lists_;
};

Error too_large(const std::string& path, std::size_t bytes, std::size_t bytes_of_groups) {
  const std::string text = path + ": the model takes " + std::to_string(bytes) +
                           " bytes, an ONNX file can hold less than 2147483648; ";
  if (bytes - bytes_of_groups > kMostBytes) {
    return input_error(text + "store its weights as external data");
  }
  return input_error(text + std::to_string(bytes_of_groups) +
                     " of them are the ranks that its collectives list; try fewer devices, or "
                     "--mesh with fewer axes, for which plans have fewer collectives");
}

// Functions that stand in for collectives declare the attributes of these.
void rename_in_functions(onnx::ModelProto& model, const std::string& from, const std::string& to) {
  for (auto& function : *model.mutable_functions()) {
    if (function.domain() != kCollectiveDomain) continue;
    for (std::string& attribute : *function.mutable_attribute()) {
      if (attribute == from) attribute = to;
    }
  }
}

Status take_group_lists(LeanModel& model) {
  GroupLists lists(model.proto);
  bool any = false;
  for (int n = 0; n < model.proto.graph().node_size(); ++n) {
    onnx::NodeProto& node = *model.proto.mutable_graph()->mutable_node(n);
    const auto list = lists.take(node);
    if (!list) {
      return input_error(label(name_of_node(node), node) + ": " + list.error().message);
    }
    if (!*list) continue;
    model.groups[static_cast<std::size_t>(n)] = **list;
    any = true;
  }
  if (!any) return Ok{};
  rename_in_functions(model.proto, kGroupRef, "groups");
  auto& properties = *model.proto.mutable_metadata_props();
  for (int p = properties.size(); p-- > 0;) {
    if (properties[p].key() == kGroupsKey) properties.DeleteSubrange(p, 1);
  }
  return Ok{};
}

// Whether the file has lists of ranks that stand there once. Reads little of it.
bool has_group_lists(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  pb::FileInputStream stream(file);
  stream.SetCloseOnDelete(true);
  pb::CodedInputStream in(&stream);
  while (const std::uint32_t tag = in.ReadTag()) {
    if (tag != tag_of(onnx::ModelProto::kMetadataPropsFieldNumber)) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    onnx::StringStringEntryProto entry;
    const auto limit = in.ReadLengthAndPushLimit();
    if (!entry.MergeFromCodedStream(&in) || !in.ConsumedEntireMessage()) return false;
    in.PopLimit(limit);
    if (entry.key() == kGroupsKey) return true;
  }
  return false;
}

}  // namespace

void refer_to_groups(LeanModel& model) {
  std::vector<const IntList*> lists;
  std::unordered_map<const std::vector<std::int64_t>*, std::int64_t> place_of_shared;
  std::map<std::vector<std::int64_t>, std::int64_t> place_of;
  std::vector<IntList> named(model.groups.size());  // keeps lists where they are
  for (std::size_t n = 0; n < model.groups.size(); ++n) {
    onnx::NodeProto& node = *model.proto.mutable_graph()->mutable_node(static_cast<int>(n));
    if (model.groups[n].values().empty()) continue;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (!lists_groups(node, attribute)) continue;
      std::swap(named[n], model.groups[n]);
      const auto next = static_cast<std::int64_t>(lists.size());
      auto [shared, is_other] = place_of_shared.try_emplace(&named[n].values(), next);
      if (is_other) {
        const auto [found, is_new] = place_of.try_emplace(named[n].values(), next);
        if (is_new) lists.push_back(&named[n]);
        shared->second = found->second;
      }
      attribute.set_name(kGroupRef);
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(shared->second);
      break;
    }
  }
  if (lists.empty()) return;
  rename_in_functions(model.proto, "groups", kGroupRef);
  std::string text;
  for (const IntList* list : lists) {
    text += text.empty() ? "[" : ",";
    char before = '[';
    for (const std::int64_t rank : list->values()) {
      text += before + std::to_string(rank);
      before = ',';
    }
    text += "]";
  }
  auto* entry = model.proto.add_metadata_props();
  entry->set_key(kGroupsKey);
  entry->set_value(text + "]");
}

Result<std::optional<std::string>> bytes_with_groups(const std::string& path) {
  if (!has_group_lists(path)) return std::optional<std::string>();
  AUTOPAR_TRY(model, read_model(path));
  AUTOPAR_TRY(bytes, model_bytes(model, path));
  return std::optional(std::move(bytes));
}

Result<std::string> model_bytes(LeanModel& model, const std::string& where) {
  const ModelWriter writer(model);
  if (writer.bytes() > kMostBytes) {
    return too_large(where, writer.bytes(), writer.bytes_of_groups());
  }
  std::string bytes;
  bytes.reserve(writer.bytes());
  pb::StringOutputStream stream(&bytes);
  {
    pb::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    AUTOPAR_CHECK(writer.write(coded), "a string takes what is written");
  }
  return bytes;
}

Status write_model(LeanModel& model, const std::string& path) {
  UnfinishedFiles files;
  AUTOPAR_RETURN_IF_ERROR(write_model(model, path, files));
  return files.keep();
}

Status write_model(LeanModel& model, const std::string& path, UnfinishedFiles& files) {
  const ModelWriter writer(model);
  if (writer.bytes() > kMostBytes) {
    return too_large(path, writer.bytes(), writer.bytes_of_groups());
  }
  return write_file(files, path, [&](int file) -> int {
    pb::FileOutputStream stream(file, 1 << 20);
    bool good = true;
    {
      pb::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      good = writer.write(coded);
    }
    good = stream.Flush() && good;
    return good ? 0 : (stream.GetErrno() != 0 ? stream.GetErrno() : EIO);
  });
}

Result<LeanModel> read_model(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return system_error(path + ": cannot be read", errno);
  pb::FileInputStream stream(file, 1 << 20);
  stream.SetCloseOnDelete(true);
  struct stat status {};
  if (::fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) > kMostBytes) {
    return input_error(path + ": takes " + std::to_string(status.st_size) +
                       " bytes, an ONNX file can hold less than 2147483648");
  }
  LeanModel model;
  bool good = false;
  {
    pb::CodedInputStream coded(&stream);
    good = ModelReader(coded).read(model);
  }
  if (!good) {
    const int error = stream.GetErrno();
    if (error != 0) return system_error(path + ": cannot be read", error);
    return input_error(path + ": is not an ONNX file");
  }
  const Status located = check_external_locations(model.proto, path);
  if (!located) return input_error(path + ": " + located.error().message);
  const Status listed = take_group_lists(model);
  if (!listed) return input_error(path + ": " + listed.error().message);
  return model;
}

}  // namespace autopar
