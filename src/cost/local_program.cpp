#include "cost/local_program.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace autopar {
Collective collective_of(const Op& op) {
  Collective c;
  const std::optional<CollectiveKind> kind = parse_collective_kind(op.type);
  AUTOPAR_CHECK(kind.has_value(), "a local program with " + op.type);
  c.kind = *kind;
  for (std::int64_t a : op.ints_attribute("axes")) c.axes.push_back(static_cast<int>(a));
  c.axis = static_cast<int>(op.int_attribute("axis", -1));
  c.concat_axis = static_cast<int>(op.int_attribute("concat_axis", -1));
  c.reduction = reduction_of(op).value_or(Reduction::kSum);
  return c;
}

Result<Graph> local_program(const Graph& graph, const Op& op, const Rule& rule,
                            const Assignment& assignment, const OpSpecs& specs, const Mesh& mesh) {
  Graph program;
  program.opset = graph.opset;
  Names value_names, op_names;
  LocalContext context{graph,   op,          rule,     assignment, specs, mesh,
                       program, value_names, op_names, {},         {}};
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) {
      context.inputs.emplace_back();
      continue;
    }
    Value value = graph.value(op.inputs[i]);
    value.shape = local_shape(specs.inputs[i], value.shape, mesh);
    if (value.kind != ValueKind::kConstant || !is_operand_constant(op, i)) {
      value.data = std::monostate{};
      value.kind = ValueKind::kInput;
    }
    value.producer = {};
    value.name = value_names.unique(value.name);
    context.inputs.push_back(program.add_value(std::move(value)));
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    context.output_names.push_back(
        op.has_output(i) ? value_names.unique(graph.value(op.outputs[i]).name) : "");
  }
  auto outputs = localise(context);
  if (!outputs) return outputs.error();
  program.outputs = *outputs;
  return program;
}

namespace {

// Exp writes where what it reads lay, if nothing reads that later.
template <class MayGo>
Bytes taken_over(const Graph& program, std::size_t o, const std::vector<std::size_t>& last,
                 const MayGo& may_go) {
  const Op& op = program.ops[o];
  if (op.type != "Exp" || !op.domain.empty()) return 0;
  const ValueId from = op.inputs[0], to = op.outputs[0];
  const bool is_free = last[from.index()] == o && may_go(from) && may_go(to);
  return is_free ? program.value(from).bytes() : 0;
}

}  // namespace

Bytes peak_of_temporaries(const Graph& program, const std::vector<OpKernel>& kernels,
                          const std::vector<ValueId>& gone, bool exp_in_place) {
  std::vector<std::size_t> last(program.values.size(), 0);
  std::vector<char> inside(program.values.size(), 0), is_output(program.values.size(), 0);
  Bytes outputs = 0;
  for (ValueId output : program.outputs) {
    if (!output.valid() || std::exchange(is_output[output.index()], 1) != 0) continue;
    if (program.value(output).producer.valid()) outputs += program.value(output).bytes();
  }
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    for (std::size_t j = 0; j < op.outputs.size() && j < 64; ++j) {
      const bool stays = op.has_output(j) && (kernels[o].inside_outputs >> j & 1);
      if (stays && is_output[op.outputs[j].index()] == 0) inside[op.outputs[j].index()] = 1;
    }
    for (ValueId input : op.inputs) {
      if (input.valid()) last[input.index()] = o;
    }
  }
  Bytes ours = outputs, now = 0, peak = 0;
  std::vector<char> is_gone(program.values.size(), 0);
  for (ValueId input : gone) {
    if (is_output[input.index()] != 0 || std::exchange(is_gone[input.index()], 1) != 0) continue;
    ours += program.value(input).bytes();
    now += program.value(input).bytes();
  }
  const auto may_go = [&](ValueId id) {
    const bool is_ours = program.value(id).producer.valid() || is_gone[id.index()] != 0;
    return is_ours && inside[id.index()] == 0 && is_output[id.index()] == 0;
  };
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    for (ValueId made : program.ops[o].outputs) {
      if (made.valid() && inside[made.index()] == 0) now += program.value(made).bytes();
    }
    peak = std::max(peak, now - (exp_in_place ? taken_over(program, o, last, may_go) : 0));
    std::vector<ValueId> read = program.ops[o].inputs;
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (ValueId input : read) {
      if (input.valid() && last[input.index()] == o && may_go(input)) {
        now -= program.value(input).bytes();
      }
    }
  }
  return std::max<Bytes>(0, peak - ours);
}

std::vector<OpKernel> fused_between_exchanges(const Graph& program) {
  std::vector<OpKernel> kernels(program.ops.size());
  std::vector<int> step_of_op(program.ops.size());
  std::vector<char> leaves(program.values.size(), 0);  // its kernel
  int step = 0;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    step += exchanges_data(op);
    step_of_op[o] = step;
    for (ValueId input : op.inputs) {
      if (!input.valid()) continue;
      const OpId maker = program.value(input).producer;
      leaves[input.index()] |= !maker.valid() || exchanges_data(op) ||
                               exchanges_data(program.op(maker)) ||
                               step_of_op[maker.index()] != step;
    }
  }
  for (ValueId output : program.outputs) leaves[output.index()] = 1;
  int launched = -1;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    if (exchanges_data(op)) continue;
    kernels[o].kind = OpKernel::Kind::kAttention;
    kernels[o].launches = launched != step_of_op[o];
    launched = step_of_op[o];
    for (std::size_t i = 0; i < op.inputs.size() && i < 64; ++i) {
      const bool inside = op.has_input(i) && !leaves[op.inputs[i].index()];
      kernels[o].inside_inputs |= std::uint64_t{inside} << i;
    }
    for (std::size_t j = 0; j < op.outputs.size() && j < 64; ++j) {
      const bool inside = op.has_output(j) && !leaves[op.outputs[j].index()];
      kernels[o].inside_outputs |= std::uint64_t{inside} << j;
    }
  }
  return kernels;
}

}  // namespace autopar
