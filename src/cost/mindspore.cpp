// MindsporeModel: see mindspore.hpp for what it is, the facts' section 2 for the formulas.
#include "autopar/mindspore.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "cost/mindspore_redistribution.hpp"

namespace autopar {

namespace {

using mindspore::Redistribution;

// What the computation of an op is counted as; every op that is not named: its inputs.
enum class Counted {
  kInputs,
  kOutput,
  kNothing,  // describes, or hides a redistribution that its edges pay
  kDropout,  // reads its input and writes a mask of one bit per element and more
  kGather,
};

Counted counted(const Op& op) {
  static const std::map<std::string, Counted> table = {
      {"Softmax", Counted::kOutput},   {"LogSoftmax", Counted::kOutput},
      {"Tile", Counted::kOutput},      {"Reshape", Counted::kNothing},
      {"Flatten", Counted::kNothing},  {"Shape", Counted::kNothing},
      {"Size", Counted::kNothing},     {"Range", Counted::kNothing},
      {"Dropout", Counted::kDropout},  {"Gather", Counted::kGather},
      {"Identity", Counted::kNothing},
  };
  const auto found = op.domain.empty() ? table.find(op.type) : table.end();
  return found == table.end() ? Counted::kInputs : found->second;
}

// A Reshape takes the layouts of its neighbours as they are, used devices or not.
bool takes_any_layout(const Op& op) { return op.type == "Reshape" || op.type == "Flatten"; }

bool is_elementwise(const Op& op) {
  static const std::set<std::string> types = {
      "Abs",        "Add",  "And",   "Cast",  "Ceil",    "Cos",     "Div",  "Elu",
      "Equal",      "Erf",  "Exp",   "Floor", "Gelu",    "Greater", "Less", "Log",
      "Max",        "Min",  "Mod",   "Mul",   "Neg",     "Not",     "Or",   "Pow",
      "Reciprocal", "Relu", "Round", "Selu",  "Sigmoid", "Sign",    "Sin",  "Softplus",
      "Softsign",   "Sqrt", "Sub",   "Tanh",  "Where",   "Xor"};
  return op.domain.empty() && types.count(op.type) != 0;
}

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
  const Counted what = counted(op);
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

// What may not be split although the rule would allow it: MindSpore has no exchange inside an op
// but that of halos, which it does not charge; its search splits no image that needs them (its test
// of conv2d), its propagation does. PReLU's channels stay whole.
bool stays_whole(const Op& op, const Rule& rule, int factor, DeviceUse use) {
  const Factor& f = rule.factors[static_cast<std::size_t>(factor)];
  if (f.kind == FactorKind::kWhole || f.kind == FactorKind::kPartial ||
      f.kind == FactorKind::kExchange) {
    return true;
  }
  if (f.kind == FactorKind::kHalo && use != DeviceUse::kAnyAxes) return true;
  if (op.type != "PRelu" || rule.inputs.size() < 2) return false;
  return std::any_of(rule.inputs[1].begin(), rule.inputs[1].end(), [&](const auto& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

// Strategies over the loop dimensions in their order: each takes the next axes of the mesh, and
// what is left over at the end repeats the calculation.
struct Strategies {
  const Op& op;
  const Rule& rule;
  const Mesh& mesh;
  std::vector<int> factors = {};
  std::vector<std::pair<std::int64_t, Assignment>> found = {};  // devices used

  void extend(std::size_t factor, std::size_t axis, std::int64_t used, Assignment& assignment) {
    if (factor == factors.size()) {
      if (specs_of(rule, assignment, mesh)) found.emplace_back(used, assignment);
      return;
    }
    extend(factor + 1, axis, used, assignment);
    const auto f = static_cast<std::size_t>(factors[factor]);
    std::int64_t parts = 1;
    std::size_t end = axis;
    for (; end < mesh.axes.size(); ++end) {
      parts *= mesh.axes[end].size;
      if (mesh.axes[end].size == 1 || rule.factors[f].size % parts != 0) break;
      assignment.factor_of_axis[end] = factors[factor];
      extend(factor + 1, end + 1, used * parts, assignment);
    }
    for (std::size_t a = axis; a < mesh.axes.size(); ++a) assignment.factor_of_axis[a] = -1;
  }
};

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

// Beyond this many assignments of axes, none but those on runs of axes.
constexpr double kMostOnAnyAxes = 1e5;

std::vector<std::int64_t> prime_factors(std::int64_t number) {
  std::vector<std::int64_t> primes;
  for (std::int64_t p = 2; number > 1; ++p) {
    for (; number % p == 0; number /= p) primes.push_back(p);
  }
  return primes;
}

}  // namespace

std::vector<Assignment> CostModel::choices(const Op&, const Rule& rule, bool) {
  return candidates(rule, mesh());
}

bool CostModel::leaves_out(const Rule&) const { return false; }

bool CostModel::keeps_layout(const Graph&, const Value&, const Op&, bool) const { return false; }

std::vector<Mesh> prime_meshes(const Cluster& cluster) {
  std::vector<std::vector<std::int64_t>> found = {{}};  // outermost first
  for (auto tier = cluster.tiers.rbegin(); tier != cluster.tiers.rend(); ++tier) {
    std::vector<std::int64_t> primes = prime_factors(tier->size);
    std::vector<std::vector<std::int64_t>> longer;
    do {
      for (const auto& sizes : found) {
        longer.push_back(sizes);
        longer.back().insert(longer.back().end(), primes.begin(), primes.end());
      }
    } while (std::next_permutation(primes.begin(), primes.end()));
    found = std::move(longer);
  }
  std::sort(found.begin(), found.end());
  std::vector<Mesh> meshes;
  for (const auto& sizes : found) meshes.push_back(std::move(make_mesh(cluster, sizes)).value());
  return meshes;
}

struct MindsporeModel::State {
  Cluster cluster;
  Mesh mesh;
  MindsporeWeights weights;

  // A message costs a constant where it is short, and more than its bytes where it is long.
  double refined(double bytes) const {
    if (bytes <= 0) return 0;
    return bytes <= weights.threshold ? weights.constant : bytes + weights.bias;
  }
};

MindsporeModel::MindsporeModel(Cluster cluster, Mesh mesh, MindsporeWeights weights)
    : state_(std::make_unique<State>(State{std::move(cluster), std::move(mesh), weights})) {}
MindsporeModel::~MindsporeModel() = default;
const Mesh& MindsporeModel::mesh() const { return state_->mesh; }
const Cluster& MindsporeModel::cluster() const { return state_->cluster; }

Conventions MindsporeModel::conventions() const {
  return {.shared_reshards = false, .any_boundary = false, .first_of_equals = true};
}

// A parameter of several readers lies alike for all of them.
bool MindsporeModel::keeps_layout(const Graph& graph, const Value& value, const Op&,
                                  bool shared) const {
  if (value.kind == ValueKind::kParameter) return shared;
  return state_->weights.elementwise_follow && value.producer.valid() &&
         is_elementwise(graph.op(value.producer));
}

bool MindsporeModel::leaves_out(const Rule& rule) const {
  return std::pow(rule.factors.size() + 1.0, state_->mesh.rank()) > kMostOnAnyAxes;
}

std::vector<Assignment> MindsporeModel::choices(const Op& op, const Rule& rule, bool pinned) {
  const Mesh& mesh = state_->mesh;
  const DeviceUse asked = state_->weights.devices;
  Strategies strategies{op, rule, mesh};
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const int factor = static_cast<int>(f);
    if (!stays_whole(op, rule, factor, asked)) strategies.factors.push_back(factor);
  }
  Assignment none{std::vector<int>(mesh.axes.size(), -1)};
  Assignment scratch = none;
  strategies.extend(0, 0, 1, scratch);
  std::int64_t most = 1;
  for (const auto& [used, assignment] : strategies.found) most = std::max(most, used);
  const bool any =
      pinned || takes_any_layout(op) || (state_->weights.elementwise_follow && is_elementwise(op));
  const DeviceUse use = any && asked != DeviceUse::kAnyAxes ? DeviceUse::kAny : asked;
  const bool any_number = use == DeviceUse::kAny || use == DeviceUse::kAnyAxes;
  using Ranked = std::pair<std::vector<std::vector<std::int64_t>>, Assignment>;
  std::vector<Ranked> ranked;
  for (const auto& [used, assignment] : strategies.found) {
    if (assignment == none || (!any_number && used != most)) continue;
    ranked.emplace_back(strategy_of(specs_of(rule, assignment, mesh)->inputs, mesh), assignment);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<Assignment> result;
  for (Ranked& entry : ranked) result.push_back(std::move(entry.second));
  if ((pinned || use == DeviceUse::kAnyAxes) && !leaves_out(rule)) {
    const auto unknown = [&](int factor) {
      return factor >= 0 && stays_whole(op, rule, factor, asked);
    };
    const std::set<Assignment> have(result.begin(), result.end());
    for (Assignment& a : candidates(rule, mesh)) {
      if (a == none || have.count(a) != 0) continue;
      const auto& factors = a.factor_of_axis;
      if (!pinned && std::any_of(factors.begin(), factors.end(), unknown)) continue;
      result.push_back(std::move(a));
    }
  }
  if (result.empty() || use != DeviceUse::kAll) result.push_back(none);
  return result;
}

Result<OpPrice> MindsporeModel::op_price(const Graph& graph, const Op& op, const Rule&,
                                         const Assignment&, const OpSpecs& specs) {
  const MindsporeWeights& w = state_->weights;
  const Mesh& mesh = state_->mesh;
  const Bill bill = bill_of(graph, op, specs, mesh);
  double computation = bill.computation;
  double communication = state_->refined(bill.forward) + w.gamma * bill.backward;
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
  const MindsporeWeights& w = state_->weights;
  const Redistribution list = mindspore::redistribution(shape, from, to, state_->mesh);
  // Every operator is charged on the slice that the source has.
  const double slice = static_cast<double>(local_bytes(from, shape, dtype, state_->mesh));
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
    steps.push_back(
        {collective, w.alpha * computation, sent_bytes(collective, local, state_->mesh)});
    local = next;
  }
  // Short messages are told from long ones by their sum, which the last of them then carries.
  const double communication = state_->refined(forward) + state_->refined(backward);
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
    const Bytes source = local_bytes(origin, shape, dtype, state_->mesh);
    for (const Spec& target : to) {
      ReshardPrice price;
      Bytes local = source, input = 0;
      for (const PricedCollective& step : reshard_steps(shape, dtype, origin, target)) {
        price.seconds += step.seconds;
        const std::int64_t n = axes_size(state_->mesh, step.collective.axes);
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
