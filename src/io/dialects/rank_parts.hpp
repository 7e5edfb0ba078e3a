// The initializers of ranks' files that go by the rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autopar/ir.hpp"
#include "io/dialects/dialects.hpp"

namespace autopar {

using Ranks = std::vector<std::int64_t>;

// Groups in which every part is once, in the order of the parts, given who has which; nothing where
// some parts belong to more ranks than others, or to none.
std::optional<Ranks> groups_over(const std::vector<Ranks>& owners);

onnx::NodeProto shard_slice(const std::string& input, const std::string& output, std::int64_t axis,
                            const Ranks& groups, std::int64_t group_size);

// "a: <what> differs from that of b; expected ...".
Error differs(const RankModel& model, const RankModel& first, const std::string& what);

class RankParts {
 public:
  // Points into `models`, which stay as they are until stack(). Errors: names, types or shapes that
  // differ.
  static Result<RankParts> of(std::vector<RankModel>& models, std::int64_t ranks,
                              const std::string& folder);

  bool has(const std::string& name) const { return parts_.count(name) > 0; }
  // The only integer of an initializer on a rank; nothing for any other tensor.
  std::optional<std::int64_t> integer_on(const std::string& name, std::int64_t rank) const;
  // In the first model: the parts of all ranks, one after the other, in the place of each that goes
  // by the rank and is read, and before the other nodes the ShardSlice that takes the rank's.
  Status stack(onnx::ModelProto& first);

 private:
  struct Part {  // one content, and who has it, ascending
    onnx::TensorProto* tensor = nullptr;
    Ranks ranks = {};
  };
  static void sort_by_place(std::vector<Part>& parts);

  RankParts(std::int64_t ranks, std::string folder) : ranks_(ranks), folder_(std::move(folder)) {}
  Status add(onnx::TensorProto& tensor, RankModel& model, const RankModel& first);
  Status stack(onnx::TensorProto& initializer, Names& names, std::vector<onnx::NodeProto>& slices);
  Result<onnx::TensorProto> stacked(const std::vector<Part>& parts, const std::string& name) const;

  std::int64_t ranks_;
  std::string folder_;                                         // of external data
  std::unordered_map<std::string, onnx::TensorProto*> first_;  // all initializers
  std::map<std::string, std::vector<Part>> parts_;             // of those that go by the rank
};

}  // namespace autopar
