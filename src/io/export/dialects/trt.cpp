// TensorRT: nodes DistCollective of ONNX's own domain, as NVIDIA's sharder writes them and
// TensorRT's parser reads them (since 10.16; all_to_all since 11). They work along dimension 0, and
// their `groups` are the ranks of one group, the reader's own. Source: the operator page
// DistCollective of TensorRT's documentation and the graphs of `polygraphy multi-device shard`.
#include <algorithm>
#include <array>
#include <utility>

#include "io/export/dialects/dialect.hpp"

namespace autopar {
namespace {

// TensorRT's types among those that NCCL sends; of uint8 it has only inputs and outputs.
constexpr std::array kSentTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                   DType::kInt8,    DType::kInt32,   DType::kInt64};

void exchange(const RankCollective& collective, const char* operation, const std::string& reduce_op,
              std::int64_t root, Steps& steps) {
  const std::int64_t n = collective.places.group_size();
  Shape output = steps.shape();
  if (std::string(operation) == "all_gather") output[0] *= n;
  if (std::string(operation) == "reduce_scatter") output[0] /= n;
  steps.exchange("DistCollective", "",
                 {{"collective_operation", std::string(operation)},
                  {"reduce_op", reduce_op},
                  {"root", root},
                  {"group_size", n},
                  {"groups", collective.places.ranks_with(collective.rank)},
                  {"nb_rank", n}},
                 std::move(output));
}

// Along another dimension than the first.
void along(std::int64_t axis, const RankCollective& collective, const char* operation,
           const std::string& reduce_op, Steps& steps) {
  steps.move_dimension(axis, 0);
  exchange(collective, operation, reduce_op, -1, steps);
  steps.move_dimension(0, axis);
}

// all_to_all exchanges the equal blocks of dimension 0: these are made of the parts of split_axis,
// and what comes is put together along concat_axis.
void all_to_all(const RankCollective& collective, Steps& steps) {
  const std::int64_t n = collective.places.group_size();
  const std::int64_t split = collective.op.int_attribute("split_axis", 0);
  const std::int64_t concat = collective.op.int_attribute("concat_axis", 0);
  Shape blocks = steps.shape();
  blocks[static_cast<std::size_t>(split)] /= n;
  Shape cut = blocks;
  cut.insert(cut.begin() + split, n);
  if (split != 0 || concat != 0) steps.reshape(cut);
  steps.move_dimension(split, 0);
  exchange(collective, "all_to_all", "none", -1, steps);
  if (split == 0 && concat == 0) return;
  steps.move_dimension(0, concat);
  blocks[static_cast<std::size_t>(concat)] *= n;
  steps.reshape(blocks);
}

}  // namespace

bool trt_exchanges(DType dtype) {
  return std::find(kSentTypes.begin(), kSentTypes.end(), dtype) != kSentTypes.end();
}

Status scatter_in_trt(const RankCollective& collective, Steps& steps) {
  along(collective.op.int_attribute("axis", 0), collective, "reduce_scatter", "max", steps);
  return Ok{};
}

Status say_in_trt(const RankCollective& collective, Steps& steps) {
  const Op& op = collective.op;
  const auto refuse = [&](const std::string& reason, const std::string& hint) {
    return why_not("trt", op, reason, hint);
  };
  // NCCL has no bool: as numbers, of which 0 is false.
  const DType dtype = steps.dtype();
  if (dtype == DType::kBool) steps.cast(DType::kInt32);
  if (!trt_exchanges(steps.dtype())) {
    return refuse(std::string("TensorRT does not exchange ") + name_of(steps.dtype()),
                  "a cast in the model to a type that it does (float32, float16, bfloat16, int8, "
                  "int32, int64), or a strategy that does not split that tensor");
  }
  const std::string reduce_op = op.string_attribute("reduce_op", "sum");
  if (op.type == "AllReduce") {
    exchange(collective, "all_reduce", reduce_op, -1, steps);
  } else if (op.type == "AllGather") {
    along(op.int_attribute("axis", 0), collective, "all_gather", "none", steps);
  } else if (op.type == "ReduceScatter") {
    along(op.int_attribute("axis", 0), collective, "reduce_scatter", reduce_op, steps);
  } else if (op.type == "AllToAll") {
    all_to_all(collective, steps);
  } else if (op.type == "Broadcast") {
    // Whether `root` is a rank or a position is not said; for all ranks in order it is the same.
    if (!collective.places.in_order()) {
      return refuse("a root is only certain in the group of all ranks in their order",
                    "--mesh with one axis");
    }
    exchange(collective, "broadcast", "none", op.int_attribute("root", 0), steps);
  } else {
    return refuse("DistCollective has nothing like it", "another strategy");
  }
  steps.cast(dtype);
  return Ok{};
}

}  // namespace autopar
