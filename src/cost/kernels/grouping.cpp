#include "cost/kernels/grouping.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "autopar/ops.hpp"
#include "cost/views.hpp"

namespace autopar {
namespace {

bool is_strided(const Op& op) {
  static const std::set<std::string> strided = {"Transpose", "Expand", "Slice", "Split"};
  return op.domain.empty() && strided.count(op.type) != 0;
}

void add_read_by(const Grouping& all, ValueId id, Grouping::ReadBy& found) {
  found.leaves = found.leaves || all.is_output[id.index()];
  for (const Use& use : all.uses[id.index()]) {
    const std::size_t o = use.op.index();
    if (!all.views[o]) {
      found.ops.push_back(o);
      continue;
    }
    for (const ValueId output : all.op(o).outputs) {
      if (output.valid()) add_read_by(all, output, found);
    }
  }
}

}  // namespace

Grouping::Grouping(const Graph& of, const Profile& by, const std::string& updates)
    : graph(of),
      profile(by),
      uses(uses_of(of)),
      is_output(of.values.size(), 0),
      group(of.ops.size()) {
  std::iota(group.begin(), group.end(), 0);
  for (const ValueId id : graph.outputs) is_output[id.index()] = 1;
  found.of_op.resize(graph.ops.size());
  found.inside.assign(graph.values.size(), 0);
  const FreeTransposes transposes = free_transposes(graph);
  const CacheWrites writes = cache_writes(graph, updates);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    OpKernel& kernel = found.of_op[o];
    // It keeps ops apart that else are alike.
    if (profile.matrix.unaligned < 1) kernel.transposed_inputs = transposes.transposed_inputs[o];
    // What is a view anyway costs nothing as it is: a graph without others has no kernels.
    const bool turned = transposes.free[o] || (writes.view[o] && !is_view(op(o)));
    views.push_back(turned || is_view(op(o)) || (profile.has_strides && is_strided(op(o))));
    if (views[o]) kernel.kind = OpKernel::Kind::kView;
    if (writes.in_place[o]) kernel.inside_inputs = kernel.inside_outputs = 1;
    any_is_free = any_is_free || turned || writes.in_place[o];
  }
}

ValueId Grouping::base(ValueId id) const {
  while (true) {
    const OpId maker = graph.value(id).producer;
    if (!maker.valid() || !views[maker.index()] || !op(maker.index()).has_input(0)) return id;
    id = op(maker.index()).inputs[0];
  }
}

Grouping::ReadBy Grouping::read_by(ValueId id) const {
  ReadBy read;
  add_read_by(*this, id, read);
  return read;
}

int Grouping::root(std::size_t o) {
  while (group[o] != static_cast<int>(o)) {
    group[o] = group[static_cast<std::size_t>(group[o])];
    o = static_cast<std::size_t>(group[o]);
  }
  return static_cast<int>(o);
}

void Grouping::join(std::size_t a, std::size_t b) {
  const int x = root(a), y = root(b);
  group[static_cast<std::size_t>(std::max(x, y))] = std::min(x, y);
}

bool Grouping::is_grouped(std::size_t o) const {
  const OpKernel::Kind kind = found.of_op[o].kind;
  return kind == OpKernel::Kind::kElements || kind == OpKernel::Kind::kAttention;
}

int Grouping::group_of(std::size_t o) { return is_grouped(o) ? root(o) : static_cast<int>(o); }

char& Grouping::held_in_pass(ValueId id) {
  found.held_in_pass.resize(graph.values.size(), 0);
  return found.held_in_pass[id.index()];
}

bool is_over_rows(const Graph& graph, const Op& op) {
  static const std::set<std::string> of_axis = {"Softmax", "LogSoftmax", "LayerNormalization",
                                                "RMSNormalization"};
  static const std::set<std::string> sums = {"ReduceSum", "ReduceMean",      "ReduceMax",
                                             "ReduceMin", "ReduceSumSquare", "ReduceL2"};
  if (!op.domain.empty() || !op.has_input(0)) return false;
  const auto rank = static_cast<std::int64_t>(graph.value(op.inputs[0]).shape.size());
  const auto is_last = [&](std::int64_t axis) { return axis == -1 || axis == rank - 1; };
  if (of_axis.count(op.type) != 0) return is_last(op.int_attribute("axis", -1));
  if (sums.count(op.type) == 0) return false;
  std::vector<std::int64_t> axes = op.ints_attribute("axes");
  if (op.has_input(1)) axes = constant_ints(graph, op, 1).value_or(std::vector<std::int64_t>());
  return axes.size() == 1 && is_last(axes[0]);
}

}  // namespace autopar
