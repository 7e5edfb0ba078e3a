#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "io/import/arrays.hpp"
#include "io/import/passes.hpp"

namespace autopar {
namespace {

// Ops with one `axis` attribute that counts dimensions of input 0, and its default.
constexpr std::array<std::pair<const char*, std::int64_t>, 14> kAxisOps = {{
    {"ArgMax", 0},
    {"ArgMin", 0},
    {"Concat", 0},
    {"Gather", 0},
    {"GatherElements", 0},
    {"Hardmax", -1},
    {"LayerNormalization", -1},
    {"LogSoftmax", -1},
    {"RMSNormalization", -1},
    {"ScatterElements", 0},
    {"Softmax", -1},
    {"Split", 0},
    {"TopK", -1},
    {"LpNormalization", -1},
}};

constexpr std::array<const char*, 10> kReductions = {
    "ReduceL1",   "ReduceL2",  "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd",   "ReduceSum",       "ReduceSumSquare"};

ValueId int_constant(Normalisation& n, const Op& op, const Ints& values, const char* what) {
  return n.add_constant(int64_tensor({static_cast<std::int64_t>(values.size())}, values),
                        op.name + "/" + what);
}

void explicit_axis(const Graph& graph, Op& op) {
  for (const auto& [type, fallback] : kAxisOps) {
    if (op.type != type || !op.has_input(0)) continue;
    const auto axis =
        axis_of(op.int_attribute("axis", fallback), graph.value(op.inputs[0]).shape.size());
    if (axis) op.attributes["axis"] = static_cast<std::int64_t>(*axis);
  }
}

// Sorted, not negative, and all of them where none are given; an attribute or an operand as the
// opset has it. An op that then reduces nothing (noop_with_empty_axes) is left alone.
void explicit_reduction(Normalisation& n, Op& op) {
  const std::size_t rank = n.graph.value(op.inputs[0]).shape.size();
  const bool operand = op.type == "ReduceSum" || n.graph.opset >= 18;
  Ints axes = op.ints_attribute("axes");
  if (operand && op.has_input(1)) {
    const auto given = constant_ints(n.graph, op, 1);
    if (!given) return;
    axes = *given;
  }
  if (axes.empty()) {
    if (op.int_attribute("noop_with_empty_axes", 0) != 0) return;
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (std::int64_t& raw : axes) {
    const auto axis = axis_of(raw, rank);
    if (!axis) return;
    raw = static_cast<std::int64_t>(*axis);
  }
  std::sort(axes.begin(), axes.end());
  if (!op.attributes.count("keepdims")) op.attributes["keepdims"] = std::int64_t{1};
  if (operand) {
    op.inputs = {op.inputs[0], int_constant(n, op, axes, "axes")};
  } else {
    op.attributes["axes"] = axes;
  }
}

void explicit_split(Normalisation& n, Op& op) {
  const std::int64_t axis = op.int_attribute("axis", 0);
  Ints sizes;
  for (const ValueId output : op.outputs) {
    if (!output.valid()) return;
    sizes.push_back(n.graph.value(output).shape[static_cast<std::size_t>(axis)]);
  }
  op.inputs = {op.inputs[0], int_constant(n, op, sizes, "sizes")};
  op.attributes.erase("num_outputs");
}

// Axes and steps are there; bounds of forward slices lie in [0, extent]. Those of backward slices
// stay, since the end before the first element has no such form.
void explicit_slice(Normalisation& n, Op& op) {
  const Shape& shape = n.graph.value(op.inputs[0]).shape;
  auto starts = constant_ints(n.graph, op, 1);
  auto ends = constant_ints(n.graph, op, 2);
  if (!starts || !ends || starts->size() != ends->size()) return;
  Ints axes(starts->size());
  std::iota(axes.begin(), axes.end(), 0);
  Ints steps(starts->size(), 1);
  for (const auto& [port, target] : {std::pair{std::size_t{3}, &axes}, {std::size_t{4}, &steps}}) {
    if (!op.has_input(port)) continue;
    const auto given = constant_ints(n.graph, op, port);
    if (!given || given->size() != starts->size()) return;
    *target = *given;
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = axis_of(axes[i], shape.size());
    if (!axis) return;
    axes[i] = static_cast<std::int64_t>(*axis);
    if (steps[i] <= 0) continue;
    const std::int64_t extent = shape[*axis];
    for (std::int64_t* bound : {&(*starts)[i], &(*ends)[i]}) {
      *bound = std::clamp<std::int64_t>(*bound < 0 ? *bound + extent : *bound, 0, extent);
    }
  }
  op.inputs = {op.inputs[0], int_constant(n, op, *starts, "starts"),
               int_constant(n, op, *ends, "ends"), int_constant(n, op, axes, "axes"),
               int_constant(n, op, steps, "steps")};
}

void explicit_permutation(const Graph& graph, Op& op) {
  if (op.attributes.count("perm")) return;
  Ints perm(graph.value(op.inputs[0]).shape.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  op.attributes["perm"] = perm;
}

void explicit_cum_sum(Normalisation& n, Op& op) {
  const auto given = constant_ints(n.graph, op, 1);
  if (!given || given->size() != 1) return;
  const auto axis = axis_of((*given)[0], n.graph.value(op.inputs[0]).shape.size());
  if (!axis || static_cast<std::int64_t>(*axis) == (*given)[0]) return;
  op.inputs[1] =
      n.add_constant(int64_tensor({}, {static_cast<std::int64_t>(*axis)}), op.name + "/axis");
}

// ONNX's strict shape inference expands the op into a body that fails without the attribute.
void explicit_mean_variance(Op& op) { op.attributes.try_emplace("axes", Ints{0, 2, 3}); }

}  // namespace

void make_operands_explicit(Normalisation& n) {
  for (Op& op : n.graph.ops) {
    if (!op.domain.empty() || !op.has_input(0)) continue;
    explicit_axis(n.graph, op);
    const bool reduces = std::any_of(kReductions.begin(), kReductions.end(),
                                     [&](const char* type) { return op.type == type; });
    if (reduces) explicit_reduction(n, op);
    if (op.type == "Split") explicit_split(n, op);
    if (op.type == "Slice") explicit_slice(n, op);
    if (op.type == "Transpose") explicit_permutation(n.graph, op);
    if (op.type == "CumSum") explicit_cum_sum(n, op);
    if (op.type == "MeanVarianceNormalization") explicit_mean_variance(op);
  }
}

}  // namespace autopar
