#include "cli/kernel_samples.hpp"

#include <algorithm>
#include <map>

#include "autopar/cost.hpp"
#include "autopar/ops.hpp"
#include "autopar/program_bytes.hpp"
#include "autopar/strategy.hpp"
#include "cli/one_device.hpp"

namespace autopar::cli {

namespace {

constexpr std::size_t kSizes = 4;  // of each type
constexpr double kMostBytes = 256e6;
constexpr double kMostBytesOfModel = 1e9;
// An op alone in a model would mostly show what a run of the model costs; small ones are repeated.
constexpr int kCopies = 16, kCopiesOfLarge = 2;
constexpr double kLarge = 4e6;           // bytes
constexpr double kWeightOfLeast = 0.25;  // of an op with nothing to do, to all others together

struct Kernel {
  const Op* op = nullptr;
  OpShapes shapes;
  Work work;
};

// As long as one or the other takes on a machine where ten FLOPs take as long as a byte.
double size_of(const Kernel& kernel) { return std::max(kernel.work.flops / 10, kernel.work.bytes); }

// A view that is an output is copied, and in a model it is not.
bool can_be_timed(const Op& op) {
  return op.domain.empty() && !is_view(op) && op.type != "If" && op.type != "Loop" &&
         op.type != "Scan";
}

bool has_operand_constants(const Graph& graph, const Op& op) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.has_input(i) && graph.value(op.inputs[i]).kind == ValueKind::kConstant) return true;
  }
  return false;
}

// Local shapes; nothing where the op is then another one.
std::optional<OpShapes> split_shapes(const Graph& graph, const Op& op, const Rule& rule,
                                     const Assignment& assignment, const Mesh& mesh) {
  const auto specs = specs_of(rule, assignment, mesh);
  if (!specs || !is_plain_local(graph, op, rule, assignment)) return std::nullopt;
  OpShapes shapes = shapes_of(graph, op);
  for (std::size_t i = 0; i < shapes.inputs.size(); ++i) {
    if (op.has_input(i)) shapes.inputs[i] = local_shape(specs->inputs[i], shapes.inputs[i], mesh);
  }
  for (std::size_t j = 0; j < shapes.outputs.size(); ++j) {
    if (op.has_output(j)) {
      shapes.outputs[j] = local_shape(specs->outputs[j], shapes.outputs[j], mesh);
    }
  }
  return shapes;
}

// What tells kernels of one type apart.
using Key = std::pair<std::vector<Shape>, std::vector<DType>>;

void add_kernel(const Op& op, OpShapes shapes, std::map<std::string, std::map<Key, Kernel>>& all) {
  Kernel kernel{&op, std::move(shapes), {}};
  kernel.work = work_of(op, kernel.shapes);
  double bytes = 0;
  for (std::size_t i = 0; i < kernel.shapes.inputs.size(); ++i) {
    if (op.has_input(i)) {
      bytes += static_cast<double>(element_count(kernel.shapes.inputs[i]) *
                                   autopar::size_of(kernel.shapes.input_dtypes[i]));
    }
  }
  if (std::max(bytes, kernel.work.bytes) > kMostBytes) return;
  Key key{kernel.shapes.inputs, kernel.shapes.input_dtypes};
  key.first.insert(key.first.end(), kernel.shapes.outputs.begin(), kernel.shapes.outputs.end());
  all[op.type].try_emplace(std::move(key), std::move(kernel));
}

// Adds a value that is fed, or a constant with its data.
ValueId add_operand(const Value& original, const Shape& shape, const std::string& name,
                    Graph& model) {
  Value value = original;
  value.name = name;
  value.shape = shape;
  value.producer = {};
  value.accumulates = false;
  if (value.kind == ValueKind::kConstant && value.tensor() != nullptr) {
    return model.add_value(std::move(value));
  }
  value.kind = ValueKind::kInput;
  value.data = std::monostate{};
  const ValueId id = model.add_value(std::move(value));
  model.inputs.push_back(id);
  return id;
}

// So many of the op side by side, on the same inputs.
Graph copies_of(const Graph& graph, const Kernel& kernel, int copies) {
  const Op& op = *kernel.op;
  Graph model;
  model.name = "calibrate";
  model.opset = graph.opset;
  Op added = op;
  added.phase = Phase::kForward;
  std::map<ValueId, ValueId> operands;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    const auto [found, is_new] = operands.try_emplace(op.inputs[i]);
    if (is_new) {
      found->second = add_operand(graph.value(op.inputs[i]), kernel.shapes.inputs[i],
                                  "in" + std::to_string(i), model);
    }
    added.inputs[i] = found->second;
  }
  for (int copy = 0; copy < copies; ++copy) {
    Op one = added;
    one.name = one.origin_name = "op" + std::to_string(copy);
    one.origin_type = one.type;
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      if (!op.has_output(j)) continue;
      one.outputs[j] = model.add_value({"out" + std::to_string(copy) + "_" + std::to_string(j),
                                        kernel.shapes.output_dtypes[j],
                                        kernel.shapes.outputs[j],
                                        ValueKind::kActivation,
                                        {},
                                        {}});
      model.outputs.push_back(one.outputs[j]);
    }
    model.add_op(std::move(one));
  }
  return model;
}

Result<KernelSample> sample_of(const Graph& graph, const Kernel& kernel) {
  const Op& op = *kernel.op;
  TimedOp timed{op.type, "", DType::kFloat32, {}, {}, kernel.work.flops, kernel.work.bytes};
  if (!kernel.shapes.inputs.empty() && op.has_input(0)) {
    timed.left = kernel.shapes.inputs[0];
    timed.dtype = kernel.shapes.input_dtypes[0];
  }
  if (kernel.shapes.inputs.size() > 1 && op.has_input(1)) timed.right = kernel.shapes.inputs[1];
  timed.of_model = true;
  timed.copies = kernel.work.bytes > kLarge ? kCopiesOfLarge : kCopies;
  AUTOPAR_TRY(bytes, graph_bytes(copies_of(graph, kernel, timed.copies), op.type));
  timed.model = std::move(bytes);
  return KernelSample{std::move(timed), copies_of(graph, kernel, 1), 1};
}

// An op with next to nothing to do: what running one costs.
Result<KernelSample> least_sample() {
  Graph graph;
  const ValueId number = graph.add_value({"x", DType::kFloat32, {1}, ValueKind::kInput, {}, {}});
  Op op;
  op.name = op.origin_name = "op";
  op.type = op.origin_type = "Add";
  op.inputs = {number, number};
  op.outputs = {graph.add_value({"y", DType::kFloat32, {1}, ValueKind::kActivation, {}, {}})};
  const OpId id = graph.add_op(std::move(op));
  const OpShapes shapes = shapes_of(graph, graph.op(id));
  return sample_of(graph, {&graph.op(id), shapes, work_of(graph.op(id), shapes)});
}

// The model whose weights are fed, as those of a plan's program are not made anew in each run.
Result<KernelSample> whole_sample(const Graph& graph) {
  Graph model = graph;
  for (std::size_t v = 0; v < model.values.size(); ++v) {
    Value& value = model.values[v];
    const ValueId id(static_cast<std::int64_t>(v));
    if (value.kind == ValueKind::kConstant || value.producer.valid()) continue;
    if (value.kind != ValueKind::kInput) {
      value.kind = ValueKind::kInput;
      value.data = std::monostate{};
    }
    if (std::find(model.inputs.begin(), model.inputs.end(), id) == model.inputs.end()) {
      model.inputs.push_back(id);
    }
  }
  KernelSample sample{TimedOp{"whole model", "", DType::kFloat32, {}, {}, 0, 0}, std::move(model),
                      1};
  for (const Op& op : graph.ops) {
    const Work work = work_of(op, shapes_of(graph, op));
    sample.timed.flops += work.flops;
    sample.timed.bytes += work.bytes;
  }
  sample.timed.of_model = true;
  AUTOPAR_TRY(bytes, graph_bytes(sample.graph, "whole model"));
  sample.timed.model = std::move(bytes);
  return sample;
}

bool fits(const Graph& graph) {
  double bytes = 0;
  for (const Value& value : graph.values) bytes += static_cast<double>(value.bytes());
  const bool has_programs = std::any_of(graph.ops.begin(), graph.ops.end(),
                                        [](const Op& op) { return !op.domain.empty(); });
  return bytes <= kMostBytesOfModel && !has_programs;
}

}  // namespace

Result<std::vector<KernelSample>> kernel_samples(const Graph& graph,
                                                 const std::vector<Mesh>& meshes) {
  AUTOPAR_TRY(rules, rules_of(graph));
  std::map<std::string, std::map<Key, Kernel>> all;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (!can_be_timed(op)) continue;
    add_kernel(op, shapes_of(graph, op), all);
    if (has_operand_constants(graph, op)) continue;  // they say the whole shape
    const Rule& rule = rules.rules[o];
    for (const Mesh& mesh : meshes) {
      for (const Assignment& assignment : candidates(rule, mesh)) {
        auto shapes = split_shapes(graph, op, rule, assignment, mesh);
        if (shapes) add_kernel(op, std::move(*shapes), all);
      }
    }
  }
  std::vector<KernelSample> samples;
  for (const auto& [type, kernels] : all) {
    std::vector<const Kernel*> by_size;
    for (const auto& [key, kernel] : kernels) by_size.push_back(&kernel);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const Kernel* a, const Kernel* b) { return size_of(*a) < size_of(*b); });
    const std::size_t taken = std::min(kSizes, by_size.size());
    for (std::size_t s = 0; s < taken; ++s) {
      const std::size_t at = taken == 1 ? 0 : s * (by_size.size() - 1) / (taken - 1);
      AUTOPAR_TRY(sample, sample_of(graph, *by_size[at]));
      samples.push_back(std::move(sample));
    }
  }
  AUTOPAR_TRY(least, least_sample());
  least.weight = kWeightOfLeast * static_cast<double>(std::max<std::size_t>(1, samples.size()));
  samples.push_back(std::move(least));
  if (fits(graph)) {
    AUTOPAR_TRY(whole, whole_sample(graph));
    whole.weight = static_cast<double>(std::max<std::size_t>(1, samples.size()));
    samples.push_back(std::move(whole));
  }
  return samples;
}

Result<ProfileFit> fit_samples(const std::vector<KernelSample>& samples,
                               const std::vector<Seconds>& seconds, const Cluster& cluster) {
  struct Priced {
    const Graph* graph;
    OnOneDevice on;
  };
  std::vector<Priced> priced;
  std::vector<Seconds> measured;
  std::vector<double> weights;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (!(seconds[s] > 0)) continue;
    priced.push_back({&samples[s].graph, on_one_device(samples[s].graph)});
    measured.push_back(seconds[s]);
    weights.push_back(samples[s].weight);
  }
  Profile start;
  start.name = "calibrated";
  start.runs_op_by_op = true;
  start.deferred = {false, false, false, false};
  start.launch_s = 2e-6;
  start.matrix.half_k = 10;
  start.matrix.fraction = 0.7;
  start.memory.fraction = 0.9;
  const auto predict = [&](const Profile& profile, std::size_t row) -> Result<Seconds> {
    Cluster with = cluster;
    with.profile = profile;
    RooflineModel model(std::move(with), priced[row].on.strategy.mesh);
    AUTOPAR_TRY(cost,
                evaluate(*priced[row].graph, priced[row].on.rules, priced[row].on.strategy, model));
    return cost.time();
  };
  return fit_profile(start, kSampleParameters, measured, predict, weights, false);
}

}  // namespace autopar::cli
