// What MindSpore's ops and redistributions cost: see mindspore.hpp for the terms.
#include <algorithm>
#include <limits>

#include "autopar/mindspore.hpp"
#include "mindspore/ops.hpp"
#include "mindspore/redistribution.hpp"

namespace autopar {

namespace {

using mindspore::Counted;
using mindspore::Redistribution;

// Bytes over all of one kind, in the order in which MindSpore sums them.
struct Bill {
  double computation = 0;
  double forward = 0;   // communication
  double backward = 0;  // of gradients of parameters, or of a redistribution
};

double slice_bytes(const Value& value, const Spec& spec, const Mesh& mesh) {
  return static_cast<double>(local_bytes(spec, value.shape, value.dtype, mesh));
}

std::int64_t parts_of(const Spec& spec, const Mesh& mesh) {
  std::int64_t parts = 1;
  for (const auto& axes : spec.dims) parts *= axes_size(mesh, axes);
  return parts;
}

// The gradient of a parameter is reduced over the devices that hold the same slice. Products: of
// the second input only.
bool has_gradient(const Graph& graph, const Op& op, std::size_t port) {
  if ((op.type == "MatMul" || op.type == "Gemm") && port != 1) return false;
  return graph.value(handed_on(graph, op.inputs[port])).kind == ValueKind::kParameter;
}

Bill bill_of(const Graph& graph, const Op& op, const OpSpecs& specs, const Mesh& mesh) {
  Bill bill;
  const Counted what = mindspore::counted(op);
  // Its readers are charged for what it hands on, and the maker for a sum.
  if (is_identity(op)) return bill;
  const bool split_table = op.has_output(0) && !specs.outputs[0].partial.empty();
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i) || is_operand_constant(op, i)) continue;
    const double bytes = slice_bytes(graph.value(op.inputs[i]), specs.inputs[i], mesh);
    if (what == Counted::kInputs) bill.computation += bytes;
    if (what == Counted::kDropout && i == 0) bill.computation += 1.125 * bytes;
    if (what == Counted::kGather) {
      bill.computation += (split_table ? (i == 0 ? 3 : 7) : 1) * bytes;
    }
    if (has_gradient(graph, op, i) && parts_of(specs.inputs[i], mesh) < mesh.size()) {
      bill.backward += bytes;
    }
  }
  for (std::size_t j = 0; j < op.outputs.size(); ++j) {
    if (!op.has_output(j)) continue;
    const double bytes = slice_bytes(graph.value(op.outputs[j]), specs.outputs[j], mesh);
    if (what == Counted::kOutput && j == 0) bill.computation += bytes;
    if (specs.outputs[j].partial.empty()) continue;
    bill.forward += bytes;
    if (what != Counted::kGather) bill.computation += bytes;
  }
  return bill;
}

// A message costs a constant where it is short, and more than its bytes where it is long.
double refined(const MindsporeWeights& weights, double bytes) {
  if (bytes <= 0) return 0;
  return bytes <= weights.threshold ? weights.constant : bytes + weights.bias;
}

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

}  // namespace

MindsporeModel::MindsporeModel(Cluster cluster, Mesh mesh, MindsporeWeights weights)
    : cluster_(std::move(cluster)), mesh_(std::move(mesh)), weights_(weights) {}
const Mesh& MindsporeModel::mesh() const { return mesh_; }
const Cluster& MindsporeModel::cluster() const { return cluster_; }

Result<OpPrice> MindsporeModel::op_price(const Graph& graph, const Op& op, const Rule&,
                                         const Assignment&, const OpSpecs& specs) {
  const MindsporeWeights& w = weights_;
  const Mesh& mesh = mesh_;
  const Bill bill = bill_of(graph, op, specs, mesh);
  double computation = bill.computation;
  double communication = refined(weights_, bill.forward) + w.gamma * bill.backward;
  const bool data_parallel = op.has_input(0) && !specs.inputs[0].dims.empty() &&
                             axes_size(mesh, specs.inputs[0].dims[0]) == mesh.size();
  if (data_parallel && computation > 1) computation -= 1;
  if (data_parallel && communication > 1) communication -= 1;
  OpPrice price;
  price.compute = w.alpha * computation;
  if (communication <= 0) return price;
  PricedCollective reduction{
      {CollectiveKind::kAllReduce, {}, -1, -1, Reduction::kSum}, w.beta * communication, 0};
  for (std::size_t j = 0; j < op.outputs.size(); ++j) {
    if (!op.has_output(j) || specs.outputs[j].partial.empty()) continue;
    reduction.collective.axes = specs.outputs[j].partial;
    reduction.collective.reduction = specs.outputs[j].reduction;
    reduction.sent_bytes +=
        sent_bytes(reduction.collective,
                   slice_bytes(graph.value(op.outputs[j]), specs.outputs[j], mesh), mesh);
  }
  // Gradients only: over the axes that do not split the parameter.
  for (std::size_t i = 0; i < op.inputs.size() && bill.forward == 0; ++i) {
    if (!op.has_input(i) || !has_gradient(graph, op, i)) continue;
    AxisList& axes = reduction.collective.axes;
    axes.clear();
    for (int a = 0; a < mesh.rank(); ++a) {
      const bool splits = std::any_of(
          specs.inputs[i].dims.begin(), specs.inputs[i].dims.end(),
          [a](const auto& dim) { return std::find(dim.begin(), dim.end(), a) != dim.end(); });
      if (!splits) axes.push_back(a);
    }
  }
  price.collectives.push_back(std::move(reduction));
  return price;
}

std::vector<PricedCollective> MindsporeModel::reshard_steps(const Shape& shape, DType dtype,
                                                            const Spec& from, const Spec& to) {
  const MindsporeWeights& w = weights_;
  const Redistribution list = mindspore::redistribution(shape, from, to, mesh_);
  // Every operator is charged on the slice that the source has.
  const double slice = static_cast<double>(local_bytes(from, shape, dtype, mesh_));
  double local = slice, forward = 0, backward = 0;
  std::vector<PricedCollective> steps;
  for (const Redistribution::Step& step : list.steps) {
    const auto n = static_cast<double>(step.parts);
    double computation = slice;
    if (step.kind != Redistribution::Kind::kSplitByAxis && !step.concat_first) {
      computation += 2 * slice * n;
    }
    if (steps.empty() && list.reshape) computation += 2 * slice;
    Collective collective{CollectiveKind::kShardSlice, step.axes, step.split_dim, -1,
                          Reduction::kSum};
    double next = local / n;
    if (step.kind == Redistribution::Kind::kConcatByAxis) {
      collective.kind = CollectiveKind::kAllGather;
      collective.axis = step.concat_dim;
      forward += 0.5 * slice * n;
      backward += 0.5 * slice;
      next = local * n;
    } else if (step.kind == Redistribution::Kind::kPermuteByAxis) {
      collective.kind = CollectiveKind::kAllToAll;
      collective.concat_axis = step.concat_dim;
      forward += 2 * slice;
      backward += 2 * slice;
      next = local;
    }
    steps.push_back({collective, w.alpha * computation, sent_bytes(collective, local, mesh_)});
    local = next;
  }
  // Short messages are told from long ones by their sum, which the last of them then carries.
  const double communication = refined(weights_, forward) + refined(weights_, backward);
  for (auto step = steps.rbegin(); step != steps.rend() && communication > 0; ++step) {
    if (!communicates(step->collective.kind)) continue;
    step->seconds += dtype == DType::kBool ? kNever : w.beta * communication;
    break;
  }
  return steps;
}

ReshardTable MindsporeModel::reshard_prices(const Shape& shape, DType dtype,
                                            const std::vector<Spec>& from,
                                            const std::vector<Spec>& to) {
  ReshardTable table{to.size()};
  table.seconds.reserve(from.size() * to.size());
  table.peak_bytes.reserve(from.size() * to.size());
  for (const Spec& origin : from) {
    const Bytes source = local_bytes(origin, shape, dtype, mesh_);
    for (const Spec& target : to) {
      ReshardPrice price;
      Bytes local = source, input = 0;
      for (const PricedCollective& step : reshard_steps(shape, dtype, origin, target)) {
        price.seconds += step.seconds;
        const std::int64_t n = axes_size(mesh_, step.collective.axes);
        if (step.collective.kind == CollectiveKind::kAllGather) local *= n;
        if (step.collective.kind == CollectiveKind::kShardSlice) local /= n;
        price.peak_bytes = std::max(price.peak_bytes, input + local);
        input = local;
      }
      table.seconds.push_back(price.seconds);
      table.peak_bytes.push_back(price.peak_bytes);
    }
  }
  return table;
}

}  // namespace autopar
