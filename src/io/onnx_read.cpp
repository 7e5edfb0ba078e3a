#include "io/onnx_read.hpp"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>

#include "autopar/errors.hpp"
#include "io/import/proto_op.hpp"
#include "json/parse.hpp"
#include "support/counted.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kOldestIr = 3;
constexpr std::int64_t kNewestIr = 13;

std::set<std::string> split_names(const std::string& text) {
  std::set<std::string> names;
  std::stringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) {
    const auto begin = name.find_first_not_of(" \t");
    const auto end = name.find_last_not_of(" \t");
    if (begin != std::string::npos) names.insert(name.substr(begin, end - begin + 1));
  }
  return names;
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<void*>(data_), size_);
}

Result<MappedFile> open_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("cannot be opened", errno);
  struct stat status = {};
  const bool known = fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    close(descriptor);
    return input_error(known && S_ISREG(status.st_mode) ? "is empty" : "is not a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  close(descriptor);
  if (data == MAP_FAILED) return system_error("cannot be read", error);
  return MappedFile(data, size);
}

Result<ModelFile> read_model(std::string_view bytes) {
  const auto first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && bytes[first] == '{';
  return is_json ? read_graph_json(bytes) : read_onnx(bytes);
}

Result<ModelFile> read_onnx(std::string_view bytes) {
  if (bytes.size() > std::numeric_limits<int>::max()) {
    return input_error(
        "is larger than 2 GiB, which an ONNX file cannot be; expected large weights "
        "as external data (onnx.save_model with save_as_external_data)");
  }
  // protobuf reports what it could not parse to stderr otherwise.
  const google::protobuf::LogSilencer silencer;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  ModelFile file;
  onnx::ModelProto& model = file.model;
  if (!model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return input_error("is neither an ONNX model nor a graph.json, or it is damaged or cut off");
  }
  if (!model.has_graph() || model.ir_version() < kOldestIr || model.ir_version() > kNewestIr) {
    return input_error("has ONNX IR version " + std::to_string(model.ir_version()) +
                       (model.has_graph() ? "" : " and no graph") +
                       "; expected a graph of IR version " + std::to_string(kOldestIr) + " to " +
                       std::to_string(kNewestIr));
  }
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == "data_inputs") file.data_inputs = split_names(entry.value());
  }
  return file;
}

Status GroupLists::read() {
  if (lists_) return Ok{};
  const std::string where = std::string("metadata_props ") + kGroupsKey;
  const std::string* text = nullptr;
  for (const auto& entry : model_.metadata_props()) {
    if (entry.key() == kGroupsKey) text = &entry.value();
  }
  if (text == nullptr) {
    return input_error(std::string("attribute ") + kGroupRef + ": expected " + where +
                       ", whose lists it counts, found none");
  }
  AUTOPAR_TRY(document, parse_json(*text, where));
  const auto expected = [&](const std::string& found) {
    return input_error(where + ": expected a list of lists of ranks, found " + found);
  };
  if (!document.is_array()) return expected(document.type_name());
  std::vector<IntList> lists;
  for (const auto& list : document) {
    const std::string place = " at place " + std::to_string(lists.size());
    if (!list.is_array()) return expected(list.type_name() + place);
    std::vector<std::int64_t> ranks;
    for (const auto& rank : list) {
      const bool good = rank.is_number_integer() &&
                        (!rank.is_number_unsigned() ||
                         rank.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max());
      if (!good) return expected("a list with " + rank.dump() + place);
      ranks.push_back(rank.get<std::int64_t>());
    }
    lists.emplace_back(std::move(ranks));
  }
  lists_ = std::move(lists);
  return Ok{};
}

Result<std::optional<IntList>> GroupLists::take(onnx::NodeProto& node) {
  if (node.domain() != kCollectiveDomain) return std::optional<IntList>();
  onnx::AttributeProto* reference = nullptr;
  bool has_groups = false;
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == kGroupRef) reference = &attribute;
    has_groups = has_groups || attribute.name() == "groups";
  }
  if (reference == nullptr) return std::optional<IntList>();
  if (has_groups) {
    return input_error(std::string("it has the attributes groups and ") + kGroupRef +
                       "; expected one of them");
  }
  const std::string where = std::string("attribute ") + kGroupRef + ": expected ";
  if (reference->type() != onnx::AttributeProto::INT) {
    return input_error(where + "an integer, found " +
                       onnx::AttributeProto::AttributeType_Name(reference->type()));
  }
  AUTOPAR_RETURN_IF_ERROR(read());
  const std::int64_t place = reference->i();
  if (place < 0 || place >= static_cast<std::int64_t>(lists_->size())) {
    return input_error(where + "a place in metadata_props " + kGroupsKey + ", which has " +
                       counted(lists_->size(), "list") + ", found " + std::to_string(place));
  }
  reference->Clear();
  reference->set_name("groups");
  reference->set_type(onnx::AttributeProto::INTS);
  return std::optional((*lists_)[static_cast<std::size_t>(place)]);
}

namespace {

// As many ranks as nodes of a file could list themselves.
constexpr std::size_t kMostListedRanks = std::size_t{1} << 31;

Status list_groups(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, GroupLists& lists,
                   std::size_t& listed) {
  for (onnx::NodeProto& node : nodes) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      AUTOPAR_RETURN_IF_ERROR(list_groups(*attribute.mutable_g()->mutable_node(), lists, listed));
    }
    const auto list = lists.take(node);
    const std::string where = label(name_of_node(node), node) + ": ";
    if (!list) return input_error(where + list.error().message);
    if (!*list) continue;
    const std::vector<std::int64_t>& ranks = **list;
    listed += ranks.size();
    if (listed > kMostListedRanks) {
      return input_error(where + "more than " + std::to_string(kMostListedRanks) +
                         " ranks are listed by it and the ops before; expected fewer, as a file "
                         "with the lists in place has");
    }
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.name() != "groups") continue;
      attribute.mutable_ints()->Add(ranks.begin(), ranks.end());
    }
  }
  return Ok{};
}

}  // namespace

Status list_groups_in_place(onnx::ModelProto& model) {
  GroupLists lists(model);
  std::size_t listed = 0;
  AUTOPAR_RETURN_IF_ERROR(list_groups(*model.mutable_graph()->mutable_node(), lists, listed));
  for (auto& function : *model.mutable_functions()) {
    AUTOPAR_RETURN_IF_ERROR(list_groups(*function.mutable_node(), lists, listed));
  }
  return Ok{};
}

}  // namespace autopar
