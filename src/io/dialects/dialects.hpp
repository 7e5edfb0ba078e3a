// Models with the collectives of other runtimes: TensorRT's DistCollective and ONNX Runtime's
// com.microsoft, read as those of ai.autopar that do the same.
//
//   com.microsoft::AllGather axis=1 group_size=4   ->   ai.autopar::AllGather axis=1 group_size=4
//                                                       groups=0,1,2,3
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "io/onnx_read.hpp"

namespace autopar {

// The first op with a word of another runtime for communication, such as
// "op 'sum' (com.microsoft::AllReduce)"; nothing where there is none. Bodies of functions and of
// control flow count; what a function of the model stands for does not.
std::optional<std::string> foreign_collective(onnx::ModelProto& model);

// Puts an op of ai.autopar in the place of each. `ranks`: of the world; 0: what metadata_props say
// (autopar.world_size or .mesh), else what the ops do. Returns the dialects that were met: "trt",
// "ort", "trt and ort", or nothing. Errors name op and attribute: what ai.autopar cannot say, what
// contradicts the number of ranks, what is not known of the dialect.
Result<std::string> translate_collectives(onnx::ModelProto& model, std::int64_t ranks);

// A node of the dialect, its attributes read and checked one by one. Errors: "op 'x' (T): attribute
// a: expected ..., found ...".
class ForeignNode {
 public:
  // `known`: the attributes that the dialect has.
  static Result<ForeignNode> of(onnx::NodeProto& node, const std::vector<std::string>& known);

  bool has(const std::string& name) const { return attributes_.count(name) > 0; }
  Result<std::int64_t> integer(const std::string& name, std::int64_t absent) const;
  Result<std::vector<std::int64_t>> integers(const std::string& name) const;  // empty: absent
  Result<std::string> text(const std::string& name, const std::string& absent) const;

  Error expected(const std::string& attribute, const std::string& what,
                 const std::string& found) const;
  Error refuse(const std::string& reason, const std::string& hint) const;

  // It becomes the op of ai.autopar of that type, with groups, group_size and these attributes.
  void become(const std::string& type, const std::vector<std::int64_t>& group, std::int64_t size);
  void set(const std::string& name, std::int64_t value);
  void set(const std::string& name, const std::string& value);

 private:
  explicit ForeignNode(onnx::NodeProto& node) : node_(&node) {}
  onnx::NodeProto* node_;
  std::map<std::string, onnx::AttributeProto> attributes_;
};

// "op 'sum' (com.microsoft::AllReduce)".
std::string foreign_label(const onnx::NodeProto& node);
std::vector<std::int64_t> all_ranks(std::int64_t ranks);
// Version 1 of ai.autopar, where a model or a function does not import it yet.
template <class Owner>
void import_own_domain(Owner& owner) {
  for (const auto& import : owner.opset_import()) {
    if (import.domain() == kCollectiveDomain) return;
  }
  auto* import = owner.add_opset_import();
  import->set_domain(kCollectiveDomain);
  import->set_version(1);
}

// How many ranks an op says that there are; 0 where it does not.
std::int64_t ranks_said_by_trt(const onnx::NodeProto& node);
std::int64_t ranks_said_by_ort(const onnx::NodeProto& node);
// `ranks`: of the world; 0: not known, an error where it counts.
Status translate_trt(onnx::NodeProto& node, std::int64_t ranks);
Status translate_ort(onnx::NodeProto& node, std::int64_t ranks);
Error ranks_unknown(const ForeignNode& node);

// The file that some ranks of a world run.
struct RankModel {
  std::string name;  // of the file, for messages
  std::vector<std::int64_t> ranks;
  ModelFile file;
};
// Files whose nodes are the same but for groups and weights, as one program for all `ranks`: what
// differs between ranks becomes a ShardSlice of a tensor that holds the parts of all. `folder`:
// where their external data lie. Precondition: every rank has one file; translated. Errors: the
// node, input or weight in which two files differ.
Result<ModelFile> merge_ranks(std::vector<RankModel> models, std::int64_t ranks,
                              const std::string& folder);

}  // namespace autopar
