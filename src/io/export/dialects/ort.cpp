// ONNX Runtime: AllReduce, AllGather and AllToAll of the domain com.microsoft, which know only the
// group of all ranks; the first only sums, the last works along dimension 0. What they lack is said
// by them and a local reduction, exactly: ReduceScatter is AllToAll and a reduction of what came,
// AllReduce by another operation or of integers is AllGather and that reduction; int32 goes as
// int64. Source: ONNX
// Runtime, core/graph/contrib_ops/collective_defs.cc.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "io/export/dialects/dialect.hpp"

namespace autopar {
namespace {

bool is_one_of(DType dtype, std::initializer_list<DType> types) {
  return std::find(types.begin(), types.end(), dtype) != types.end();
}
bool is_reduced(DType dtype) {
  return is_one_of(dtype, {DType::kFloat32, DType::kFloat16, DType::kFloat64});
}
bool is_moved(DType dtype) {
  return is_reduced(dtype) || is_one_of(dtype, {DType::kInt64, DType::kBool});
}

std::string reduction_of(const std::string& reduce_op) {
  if (reduce_op == "max") return "ReduceMax";
  if (reduce_op == "min") return "ReduceMin";
  if (reduce_op == "prod") return "ReduceProd";
  if (reduce_op == "avg") return "ReduceMean";
  return "ReduceSum";
}

class OrtWriter {
 public:
  OrtWriter(const RankCollective& collective, Steps& steps)
      : n_(collective.places.group_size()), steps_(steps) {}

  void all_reduce(const std::string& reduce_op) {
    if (reduce_op == "sum" && is_reduced(steps_.dtype())) {
      add("AllReduce", {}, steps_.shape());
      return;
    }
    Shape parts = steps_.shape();
    parts.insert(parts.begin(), 1);
    steps_.reshape(parts);
    all_gather(0);
    steps_.reduce_first(reduction_of(reduce_op));
  }

  void all_gather(std::int64_t axis) {
    Shape output = steps_.shape();
    output[static_cast<std::size_t>(axis)] *= n_;
    add("AllGather", {{"axis", axis}, {"group_size", n_}}, std::move(output));
  }

  void reduce_scatter(std::int64_t axis, const std::string& reduce_op) {
    cut(axis);
    exchange_blocks();
    steps_.reduce_first(reduction_of(reduce_op));
  }

  void all_to_all(std::int64_t split, std::int64_t concat) {
    if (split == 0 && concat == 0) {
      exchange_blocks();
      return;
    }
    cut(split);
    Shape joined(steps_.shape().begin() + 1, steps_.shape().end());
    exchange_blocks();
    steps_.move_dimension(0, concat);
    joined[static_cast<std::size_t>(concat)] *= n_;
    steps_.reshape(joined);
  }

 private:
  // The parts of a dimension become a new dimension 0.
  void cut(std::int64_t axis) {
    Shape parts = steps_.shape();
    parts[static_cast<std::size_t>(axis)] /= n_;
    parts.insert(parts.begin() + axis, n_);
    steps_.reshape(parts);
    steps_.move_dimension(axis, 0);
  }

  void exchange_blocks() { add("AllToAll", {{"group_size", n_}}, steps_.shape()); }

  void add(const char* type, std::map<std::string, Attribute> attributes, Shape output) {
    steps_.exchange(type, "com.microsoft", std::move(attributes), std::move(output));
  }

  const std::int64_t n_;
  Steps& steps_;
};

}  // namespace

Status say_in_ort(const RankCollective& collective, Steps& steps) {
  const Op& op = collective.op;
  const auto refuse = [&](const std::string& reason, const std::string& hint) {
    return why_not("ort", op, reason, hint);
  };
  const Places& places = collective.places;
  const std::string reduce_op = op.string_attribute("reduce_op", "sum");
  if (!places.is_world()) {
    return refuse("it runs in groups of " + std::to_string(places.group_size()) +
                      " ranks, com.microsoft's collectives only among all",
                  "--mesh with one axis, or --dialect trt");
  }
  if (!places.in_order() && op.type != "AllReduce") {
    return refuse("its group is not in the order of the ranks", "--mesh with one axis");
  }
  const DType dtype = steps.dtype();
  if (dtype == DType::kInt32) steps.cast(DType::kInt64);
  if (!is_moved(steps.dtype())) {
    return refuse(std::string("com.microsoft's collectives do not take ") + name_of(dtype) +
                      ", but float32, float16, float64, int32, int64 and bool",
                  "a cast in the model, or a strategy that does not split that tensor");
  }
  OrtWriter writer(collective, steps);
  if (op.type == "AllReduce") {
    writer.all_reduce(reduce_op);
  } else if (op.type == "AllGather") {
    writer.all_gather(op.int_attribute("axis", 0));
  } else if (op.type == "ReduceScatter") {
    writer.reduce_scatter(op.int_attribute("axis", 0), reduce_op);
  } else if (op.type == "AllToAll") {
    writer.all_to_all(op.int_attribute("split_axis", 0), op.int_attribute("concat_axis", 0));
  } else {
    return refuse("com.microsoft has nothing like it",
                  op.type == "Permute" ? "--moving off" : "--dialect trt");
  }
  steps.cast(dtype);
  return Ok{};
}

}  // namespace autopar
