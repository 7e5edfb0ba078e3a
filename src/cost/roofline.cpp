#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "autopar/cost.hpp"
#include "autopar/memory.hpp"
#include "cost/local_program.hpp"
#include "strategy/last_reads.hpp"

namespace autopar {

namespace {

// An integer index or a bool mask says nothing about the arithmetic: the widest floating operand
// or result does (the first of equals), and without one the first output.
DType arithmetic_dtype(const OpShapes& shapes) {
  std::optional<DType> widest;
  for (const auto* dtypes : {&shapes.output_dtypes, &shapes.input_dtypes}) {
    for (DType d : *dtypes) {
      if (is_floating(d) && (!widest || size_of(d) > size_of(*widest))) widest = d;
    }
  }
  if (widest) return *widest;
  return shapes.output_dtypes.empty() ? DType::kFloat32 : shapes.output_dtypes.front();
}

// Of the products that a contraction comes to; nothing where its shapes do not tell.
struct Product {
  double batch = 1, m = 1, n = 1, k = 1;
};
std::optional<Product> product_of(const Op& op, const OpShapes& shapes, Flops flops) {
  static const std::set<std::string> products = {"MatMul", "Gemm", "Einsum", "Conv"};
  const Shape& out = shapes.outputs[0];
  Product p;
  const auto elements = static_cast<double>(element_count(out));
  if (elements == 0 || flops == 0 || products.count(op.type) == 0) return std::nullopt;
  const bool channels_first = op.type == "Conv";
  p.n = out.empty()
            ? 1
            : static_cast<double>(out[channels_first && out.size() > 1 ? 1 : out.size() - 1]);
  // Of a matrix with one factor for all, the rows of all are rows.
  const bool one = channels_first || shapes.inputs.size() < 2 || shapes.inputs[1].size() <= 2;
  p.m = one || out.size() < 2 ? elements / p.n : static_cast<double>(out[out.size() - 2]);
  p.batch = elements / (p.m * p.n);
  p.k = flops / (2 * elements);
  return p;
}

// Of the multiprocessors, while so many tiles are done in whole waves.
double busy_part(const MatrixEfficiency& e, double tiles, double k) {
  double most = 0;
  for (double shared = 1; shared == 1 || (e.least_k > 0 && k >= shared * e.least_k); shared *= 2) {
    const double parts = tiles * shared;
    most = std::max(most, parts / (std::ceil(parts / e.multiprocessors) * e.multiprocessors));
  }
  return most;
}

double matrix_efficiency(const MatrixEfficiency& e, const std::optional<Product>& found) {
  if (!found) return e.fraction;
  const Product& p = *found;
  const double reached = e.fraction * p.k / (p.k + e.half_k);
  if (e.tile_m <= 0 || e.tile_n <= 0) return reached;
  const double tiles = p.batch * std::ceil(p.m / e.tile_m) * std::ceil(p.n / e.tile_n);
  const double useful = p.batch * p.m * p.n / (e.tile_m * e.tile_n);
  return reached * useful / tiles * busy_part(e, tiles, p.k);
}

// Of MatMul and Gemm: the largest power of two, up to 16, that the bytes of the rows of all
// matrices are a multiple of, as these lie in memory.
std::int64_t alignment_of(const OpShapes& shapes, const OpKernel& kernel, std::int64_t most) {
  std::int64_t bytes = most;
  for (std::size_t port = 0; port < 2; ++port) {
    const Shape& shape = shapes.inputs[port];
    const std::size_t from_end = (kernel.transposed_inputs >> port & 1) != 0 ? 2 : 1;
    if (shape.size() < 2) return most;
    bytes = std::gcd(bytes, shape[shape.size() - from_end] * size_of(shapes.input_dtypes[port]));
  }
  const Shape& made = shapes.outputs[0];
  return made.empty() ? bytes : std::gcd(bytes, made.back() * size_of(shapes.output_dtypes[0]));
}

double alignment_efficiency(const MatrixEfficiency& e, const Op& op, const OpShapes& shapes,
                            const OpKernel& kernel) {
  if (e.unaligned >= 1 || (op.type != "MatMul" && op.type != "Gemm")) return 1;
  constexpr std::int64_t kAligned = 16, kLeast = 2;
  const std::int64_t bytes = std::max(kLeast, alignment_of(shapes, kernel, kAligned));
  const double steps = std::log2(static_cast<double>(kAligned) / static_cast<double>(bytes)) /
                       std::log2(static_cast<double>(kAligned) / static_cast<double>(kLeast));
  return std::pow(e.unaligned, steps);
}

bool is_attention(const Op& op) { return op.type == "Attention" && op.domain.empty(); }

// What short sequences and few heads leave of what large attentions reach.
double attention_efficiency(const AttentionEfficiency& e, double length, double heads) {
  return length / (length + e.half_length) * heads / (heads + e.half_heads);
}

double attention_efficiency(const AttentionEfficiency& e, const Product& p) {
  return attention_efficiency(e, std::max({p.m, p.n, p.k}), p.batch);
}

// Of the op: queries and keys are [samples, heads, length, size], or [samples, length, heads x
// size] and an attribute says the heads.
double attention_efficiency(const AttentionEfficiency& e, const Op& op, const OpShapes& shapes) {
  const Shape &queries = shapes.inputs[0], &keys = shapes.inputs[1];
  if (queries.size() < 3 || keys.size() < 3) return 1;
  const std::size_t length = queries.size() - 2;
  const auto longest = static_cast<double>(std::max(queries[length], keys[length]));
  const auto heads = static_cast<double>(
      queries[0] * (queries.size() > 3 ? queries[1] : op.int_attribute("q_num_heads", 1)));
  return longest > 0 && heads > 0 ? attention_efficiency(e, longest, heads) : 1;
}

double memory_efficiency(const MemoryEfficiency& e, const Op& op, const OpKernel& kernel) {
  if (kernel.has_rows && e.normalisation > 0) return e.normalisation;
  if (op.type == "Gather" && op.domain.empty() && e.gather > 0) return e.gather;
  return e.fraction;
}

}  // namespace

const Peak& peak_of(const Device& device, DType dtype) {
  const auto& peaks = device.peak_flops_per_s;
  auto peak = peaks.find(name_of(dtype));
  if (peak == peaks.end()) peak = peaks.find("float32");
  if (peak == peaks.end()) peak = peaks.begin();
  return *peak;
}

std::vector<BorrowedPeak> borrowed_peaks(const Graph& graph, const Device& device) {
  std::map<DType, BorrowedPeak> found;
  for (const Op& op : graph.ops) {
    const OpShapes shapes = shapes_of(graph, op);
    const DType dtype = arithmetic_dtype(shapes);
    const auto& [of, flops_per_s] = peak_of(device, dtype);
    if (of == name_of(dtype) || found.count(dtype) != 0) continue;
    const Work work = work_of(op, shapes);
    const bool matters = is_floating(dtype) ? work.flops > 0
                                            : work.flops / flops_per_s >
                                                  work.bytes / device.memory_bandwidth_bytes_per_s;
    if (matters) found[dtype] = {dtype, of, op.name};
  }
  std::vector<BorrowedPeak> peaks;
  for (auto& [dtype, peak] : found) peaks.push_back(std::move(peak));
  return peaks;
}

struct RooflineModel::State {
  Cluster cluster;
  Mesh mesh;
  std::map<std::pair<Shape, DType>, Resharder> resharders = {};
  OpShapes local_shapes = {};  // scratch of op_price
  Allowance* allowance = nullptr;
  // Of the graph that was priced last.
  const Graph* read_graph = nullptr;
  std::vector<std::uint64_t> reads = {};

  // Inputs of its local program that go with the op.
  std::vector<ValueId> gone(const Graph& graph, const Op& op) {
    if (read_graph != &graph || reads.size() != graph.ops.size()) {
      reads = last_reads(graph);
      read_graph = &graph;
    }
    std::vector<ValueId> found;
    const Op* first = graph.ops.data();
    const bool is_of_graph =
        !std::less<>()(&op, first) && std::less<>()(&op, first + graph.ops.size());
    if (!is_of_graph) return found;
    const auto at = static_cast<std::size_t>(&op - first);
    std::int64_t value = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(op.inputs.size(), 64); ++i) {
      if (!op.has_input(i)) continue;
      if (reads[at] >> i & 1) found.push_back(ValueId(value));
      ++value;
    }
    return found;
  }

  Resharder& resharder(const Shape& shape, DType dtype) {
    auto it = resharders.find({shape, dtype});
    if (it != resharders.end()) return it->second;
    Resharder made = resharders.empty() ? Resharder(shape, dtype, mesh, cluster)
                                        : Resharder(shape, dtype, resharders.begin()->second);
    made.limit(allowance);
    return resharders.emplace(std::pair(shape, dtype), std::move(made)).first->second;
  }

  Seconds roofline(const Work& work, DType dtype) const {
    return std::max(work.flops / peak_of(cluster.device, dtype).second,
                    work.bytes / cluster.device.memory_bandwidth_bytes_per_s);
  }

  // Whether the largest of each row, the differences to it, their exponentials and the sum of
  // these are kernels of their own, the results of which lie in memory.
  bool is_log_sum_of_parts(const Op& op) const {
    return op.type == "ReduceLogSumExp" && op.domain.empty() && !cluster.profile.ideal() &&
           !cluster.profile.fuses_elementwise;
  }

  // Of an op on local shapes, as its kernel runs it.
  Seconds kernel_seconds(const Op& op, const OpShapes& shapes, const OpKernel& kernel) const {
    Work work = work_of(op, shapes);
    const DType dtype = arithmetic_dtype(shapes);
    const Profile& profile = cluster.profile;
    if (kernel.kind == OpKernel::Kind::kView) return 0;
    for (std::size_t i = 0; i < shapes.inputs.size(); ++i) {
      if (op.has_input(i) && (kernel.inside_inputs >> i & 1) && !is_operand_constant(op, i)) {
        work.bytes -= bytes_of(shapes.inputs[i], shapes.input_dtypes[i]);
      }
    }
    for (std::size_t j = 0; j < shapes.outputs.size(); ++j) {
      if (op.has_output(j) && (kernel.inside_outputs >> j & 1)) {
        work.bytes -= bytes_of(shapes.outputs[j], shapes.output_dtypes[j]);
      }
    }
    // In place each number is read and written; only sums read what was there.
    const std::size_t updates = op.type == "TensorScatter" ? 1 : 2;
    const bool sums = op.string_attribute("reduction", "none") != "none";
    if (writes_in_place(kernel) && !sums && op.has_input(updates)) {
      work.bytes -= bytes_of(shapes.inputs[updates], shapes.input_dtypes[updates]);
    }
    if (is_log_sum_of_parts(op))
      work.bytes += 5 * bytes_of(shapes.inputs[0], shapes.input_dtypes[0]);
    work.bytes = std::max(0.0, work.bytes);
    if (profile.ideal()) return roofline(work, dtype);
    const double reached = reached_by(op, shapes, kernel, work.flops);
    work.flops *= kernel.flops_factor;
    if (is_attention(op) && op.int_attribute("is_causal", 0) != 0) work.flops /= 2;
    const double bandwidth =
        cluster.device.memory_bandwidth_bytes_per_s * memory_efficiency(profile.memory, op, kernel);
    const double more = kernel.launches && work.bytes > 0 ? profile.memory.half_bytes : 0;
    return (kernel.launches ? profile.launch_s : 0) +
           std::max(work.flops / (peak_of(cluster.device, dtype).second * reached),
                    (work.bytes + more) / bandwidth);
  }

  // The part of the peak that an op's arithmetic gets; `flops` are those of the op, not of the
  // kernel.
  double reached_by(const Op& op, const OpShapes& shapes, const OpKernel& kernel,
                    Flops flops) const {
    const Profile& profile = cluster.profile;
    if (is_attention(op)) {
      return profile.attention.forward * attention_efficiency(profile.attention, op, shapes);
    }
    if (!is_contraction(op)) return 1;
    const std::optional<Product> product = product_of(op, shapes, flops);
    if (kernel.kind == OpKernel::Kind::kAttention) {
      const AttentionEfficiency& e = profile.attention;
      const double all = op.phase == Phase::kBackward ? e.backward : e.forward;
      return product ? all * attention_efficiency(e, *product) : all;
    }
    return matrix_efficiency(profile.matrix, product) *
           alignment_efficiency(profile.matrix, op, shapes, kernel);
  }
};

namespace {

// Into `shapes`, whose memory is used again: it is asked for every choice of every op.
void find_local_shapes(const Graph& graph, const std::vector<ValueId>& values,
                       const std::vector<Spec>& specs, const Mesh& mesh, std::vector<Shape>& shapes,
                       std::vector<DType>& dtypes) {
  shapes.resize(values.size());
  dtypes.assign(values.size(), DType::kFloat32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    shapes[i].clear();
    if (!values[i].valid()) continue;
    const Value& value = graph.value(values[i]);
    dtypes[i] = value.dtype;
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const AxisList& axes = specs[i].dims[d];
      shapes[i].push_back(axes.empty() ? value.shape[d] : value.shape[d] / axes_size(mesh, axes));
    }
  }
}

bool exchanges_halos(const Rule& rule, const Assignment& assignment) {
  return std::any_of(
      assignment.factor_of_axis.begin(), assignment.factor_of_axis.end(), [&](int f) {
        return f >= 0 && rule.factors[static_cast<std::size_t>(f)].kind == FactorKind::kHalo;
      });
}

}  // namespace

RooflineModel::RooflineModel(Cluster cluster, Mesh mesh)
    : state_(std::make_unique<State>(State{std::move(cluster), std::move(mesh)})) {}
RooflineModel::~RooflineModel() = default;
const Mesh& RooflineModel::mesh() const { return state_->mesh; }
const Cluster& RooflineModel::cluster() const { return state_->cluster; }

Result<OpPrice> RooflineModel::op_price(const Graph& graph, const Op& op, const Rule& rule,
                                        const Assignment& assignment, const OpSpecs& specs) {
  OpPrice price;
  const Mesh& mesh = state_->mesh;
  if (is_plain_local(graph, op, rule, assignment)) {
    OpShapes& shapes = state_->local_shapes;
    find_local_shapes(graph, op.inputs, specs.inputs, mesh, shapes.inputs, shapes.input_dtypes);
    find_local_shapes(graph, op.outputs, specs.outputs, mesh, shapes.outputs, shapes.output_dtypes);
    price.compute = graph.kernel(op).runs * state_->kernel_seconds(op, shapes, graph.kernel(op));
    if (state_->is_log_sum_of_parts(op)) {
      // Exponentials take the place of the differences.
      price.temporaries = static_cast<Bytes>(bytes_of(shapes.inputs[0], shapes.input_dtypes[0]));
    }
    return price;
  }
  AUTOPAR_TRY(program, local_program(graph, op, rule, assignment, specs, mesh));
  // What an op becomes that exchanges data has its own kernels.
  const std::vector<OpKernel> kernels =
      op.type == "Attention" && state_->cluster.profile.fuses_attention
          ? fused_between_exchanges(program)
          : std::vector<OpKernel>(program.ops.size());
  const bool is_view_here = graph.kernel(op).kind == OpKernel::Kind::kView;
  const int runs = graph.kernel(op).runs;
  // Where it is repeated in the backward phase, it is what it was.
  if (op.type == "Attention") {
    for (Op& local : program.ops) local.phase = Phase::kForward;
  }
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& local = program.ops[o];
    if (!is_collective(local)) {
      OpKernel kernel = kernels[o];
      if (is_view_here) kernel.kind = OpKernel::Kind::kView;
      kernel.has_rows = graph.kernel(op).has_rows;
      price.compute += runs * state_->kernel_seconds(local, shapes_of(program, local), kernel);
      continue;
    }
    const Value& input = program.value(local.inputs[0]);
    if (input.kind == ValueKind::kConstant) continue;  // sliced once, at load time
    PricedCollective c{collective_of(local), 0, 0};
    const double bytes = static_cast<double>(input.bytes());
    c.seconds = runs * collective_seconds(c.collective, bytes, mesh, state_->cluster);
    c.sent_bytes = runs * sent_bytes(c.collective, bytes, mesh);
    price.collectives.push_back(std::move(c));
  }
  // Where element by element is fused, what goes from one exchange to another lies in memory.
  const Profile& profile = state_->cluster.profile;
  const bool is_fused = profile.fuses_elementwise && !exchanges_halos(rule, assignment) &&
                        !is_moving(rule, assignment);
  price.temporaries =
      peak_of_temporaries(program, is_fused ? fused_between_exchanges(program) : kernels,
                          state_->gone(graph, op), !profile.ideal());
  return price;
}

ReshardTable RooflineModel::reshard_prices(const Shape& shape, DType dtype,
                                           const std::vector<Spec>& from,
                                           const std::vector<Spec>& to) {
  return state_->resharder(shape, dtype).table(from, to);
}

ReshardTable RooflineModel::weighted_reshard_prices(const Shape& shape, DType dtype,
                                                    const std::vector<Spec>& from,
                                                    const std::vector<Spec>& to,
                                                    const ReshardWeights& weights) {
  if (state_->cluster.profile.ideal()) {
    return CostModel::weighted_reshard_prices(shape, dtype, from, to, weights);
  }
  return state_->resharder(shape, dtype).table(from, to, &weights);
}

std::vector<PricedCollective> RooflineModel::reshard_steps(const Shape& shape, DType dtype,
                                                           const Spec& from, const Spec& to) {
  std::vector<PricedCollective> steps;
  const Reshard path = state_->resharder(shape, dtype).path(from, to);
  for (std::size_t i = 0; i < path.steps.size(); ++i) {
    const double bytes = static_cast<double>(
        i == 0 ? local_bytes(from, shape, dtype, state_->mesh)
               : local_bytes(path.specs[i - 1], path.shapes[i - 1], dtype, state_->mesh));
    steps.push_back({path.steps[i],
                     collective_seconds(path.steps[i], bytes, state_->mesh, state_->cluster),
                     sent_bytes(path.steps[i], bytes, state_->mesh)});
  }
  return steps;
}

Seconds RooflineModel::breaking_seconds(const Shape& shape, DType dtype, const Spec& from,
                                        const Spec& to) const {
  const Profile& profile = state_->cluster.profile;
  const auto bytes = static_cast<double>(local_bytes(from, shape, dtype, state_->mesh) +
                                         local_bytes(to, shape, dtype, state_->mesh));
  return profile.launch_s +
         bytes / (state_->cluster.device.memory_bandwidth_bytes_per_s * profile.memory.fraction);
}

bool RooflineModel::prices_moving() const { return true; }

void RooflineModel::limit(Allowance* allowance) {
  state_->allowance = allowance;
  if (!state_->resharders.empty()) state_->resharders.begin()->second.limit(allowance);
}

}  // namespace autopar
