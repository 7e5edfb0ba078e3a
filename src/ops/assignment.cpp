#include <algorithm>

#include "autopar/ops.hpp"

namespace autopar {
namespace {

const Factor& factor_at(const Rule& rule, int index) {
  return rule.factors[static_cast<std::size_t>(index)];
}

std::optional<Reduction> reduction_of(FactorKind kind) {
  switch (kind) {
    case FactorKind::kSum:
    case FactorKind::kPartial:
      return Reduction::kSum;
    case FactorKind::kMax:
      return Reduction::kMax;
    case FactorKind::kMin:
      return Reduction::kMin;
    case FactorKind::kParallel:
    case FactorKind::kExchange:
    case FactorKind::kHalo:
    case FactorKind::kWhole:
    case FactorKind::kMoving:
      return std::nullopt;
  }
  return std::nullopt;
}

// A split dimension is cut into equal contiguous parts, so all but the first factors of it can be
// split only where those before are down to one element per part. `parts`: per factor.
bool contiguous(const std::vector<TensorFactors>& tensors, const Rule& rule,
                const std::vector<std::int64_t>& parts) {
  for (const TensorFactors& tensor : tensors) {
    for (const auto& dim : tensor) {
      bool down_to_one = true;
      for (int f : dim) {
        const std::int64_t count = parts[static_cast<std::size_t>(f)];
        if (count > 1 && !down_to_one) return false;
        down_to_one = down_to_one && count == factor_at(rule, f).size;
      }
    }
  }
  return true;
}

// Two reductions of different kinds cannot be pending on one output.
bool one_reduction(const Rule& rule, const std::vector<std::int64_t>& parts) {
  for (const TensorFactors& output : rule.outputs) {
    std::optional<Reduction> pending;
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      const auto reduction = reduction_of(rule.factors[f].kind);
      if (parts[f] == 1 || !reduction || mentions(output, static_cast<int>(f))) continue;
      if (pending && *pending != *reduction) return false;
      pending = reduction;
    }
  }
  return true;
}

// Whether a rank finds all that it needs of others in the parts right before and after its own.
bool halo_fits(const Rule& rule, std::size_t f, std::int64_t parts) {
  const Factor& factor = rule.factors[f];
  const std::int64_t halo = std::max(factor.halo_before, factor.halo_after);
  for (const TensorFactors& input : rule.inputs) {
    for (const auto& dim : input) {
      if (dim.empty() || dim[0] != static_cast<int>(f)) continue;
      std::int64_t rows = factor.size / parts;
      for (std::size_t i = 1; i < dim.size(); ++i) rows *= factor_at(rule, dim[i]).size;
      if (rows < halo) return false;
    }
  }
  return true;
}

bool divides(const Rule& rule, std::size_t f, std::int64_t parts) {
  const Factor& factor = rule.factors[f];
  switch (factor.kind) {
    case FactorKind::kPartial:
    case FactorKind::kMoving:  // see moves()
      return true;
    case FactorKind::kWhole:
      return parts == 1;
    case FactorKind::kParallel:
    case FactorKind::kSum:
    case FactorKind::kMax:
    case FactorKind::kMin:
    case FactorKind::kExchange:
      return factor.size % parts == 0;
    case FactorKind::kHalo:
      return parts == 1 || (factor.size % parts == 0 && halo_fits(rule, f, parts));
  }
  return false;
}

// The factor that an axis of factor `f` splits in a tensor: of a moving one another one. -1: none.
int split_in(const Rule& rule, std::size_t f, bool input, std::size_t tensor) {
  const Factor& factor = rule.factors[f];
  if (factor.kind != FactorKind::kMoving) return static_cast<int>(f);
  return (input ? factor.moving_inputs : factor.moving_outputs)[tensor];
}

// Per factor its parts in one tensor, and which moving factors (bits) have made some of them.
struct PartsInTensor {
  std::vector<std::int64_t> parts;
  std::vector<std::uint64_t> moved_by;
};
PartsInTensor parts_in(const Rule& rule, const std::vector<std::int64_t>& parts, bool input,
                       std::size_t tensor) {
  PartsInTensor here{parts, std::vector<std::uint64_t>(parts.size(), 0)};
  for (std::size_t f = 0; f < parts.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kMoving || parts[f] == 1) continue;
    const int split = split_in(rule, f, input, tensor);
    if (split < 0) continue;
    here.parts[static_cast<std::size_t>(split)] *= parts[f];
    here.moved_by[static_cast<std::size_t>(split)] |= std::uint64_t{1} << f % 64;
  }
  return here;
}

// What moves with each other has as many parts, every part divides, and a factor that is not split
// by the same axes in all of its tensors is not split by others as well.
bool moves(const Rule& rule, const std::vector<std::int64_t>& parts) {
  constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  std::vector<std::uint64_t> moved_by(rule.factors.size(), kUnknown);
  const auto side = [&](const std::vector<TensorFactors>& tensors, bool input) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const PartsInTensor here = parts_in(rule, parts, input, t);
      for (std::size_t f = 0; f < parts.size(); ++f) {
        if (!mentions(tensors[t], static_cast<int>(f))) continue;
        if (rule.factors[f].size % here.parts[f] != 0) return false;
        if (moved_by[f] == kUnknown) moved_by[f] = here.moved_by[f];
        if (moved_by[f] != here.moved_by[f] && parts[f] != 1) return false;
      }
      if (!contiguous({tensors[t]}, rule, here.parts)) return false;
    }
    return true;
  };
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const int first = rule.factors[f].moves_with;
    if (first >= 0 && parts[f] != parts[static_cast<std::size_t>(first)]) return false;
  }
  return side(rule.inputs, true) && side(rule.outputs, false);
}

bool any_moving(const Rule& rule, const std::vector<std::int64_t>& parts) {
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kMoving && parts[f] > 1) return true;
  }
  return false;
}

bool is_valid(const Rule& rule, const std::vector<std::int64_t>& parts) {
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (!divides(rule, f, parts[f])) return false;
  }
  if (any_moving(rule, parts) && !moves(rule, parts)) return false;
  return contiguous(rule.inputs, rule, parts) && contiguous(rule.outputs, rule, parts) &&
         one_reduction(rule, parts);
}

// The axes of a factor in one tensor, with those of moving factors that split it there.
AxisList axes_in(const Rule& rule, const std::vector<AxisList>& axes, int factor, bool input,
                 std::size_t tensor) {
  AxisList all = axes[static_cast<std::size_t>(factor)];
  for (std::size_t f = 0; f < axes.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kMoving || axes[f].empty()) continue;
    if (split_in(rule, f, input, tensor) != factor) continue;
    all.append(axes[f].begin(), axes[f].end());
    std::sort(all.begin(), all.end());
  }
  return all;
}

std::vector<Spec> split_dims(const Rule& rule, const std::vector<TensorFactors>& tensors,
                             bool input, const std::vector<AxisList>& axes) {
  std::vector<Spec> specs(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    specs[t].dims.resize(tensors[t].size());
    for (std::size_t d = 0; d < tensors[t].size(); ++d) {
      for (int f : tensors[t][d]) {
        const AxisList of_factor = axes_in(rule, axes, f, input, t);
        specs[t].dims[d].append(of_factor.begin(), of_factor.end());
      }
    }
  }
  return specs;
}

void add_partial(Spec& spec, const AxisList& axes, Reduction reduction) {
  spec.partial.append(axes.begin(), axes.end());
  std::sort(spec.partial.begin(), spec.partial.end());
  spec.reduction = reduction;
}

// Depth-first over the axes; a branch ends where the parts of a factor no longer divide it.
struct Enumeration {
  const Rule& rule;
  const Mesh& mesh;
  bool moving;  // only those that are, or only those that are not
  std::vector<std::int64_t> parts;
  Assignment assignment;
  std::vector<Assignment> found;

  void extend(std::size_t axis) {
    if (axis == mesh.axes.size()) {
      if (is_moving(rule, assignment) == moving && is_valid(rule, parts)) {
        found.push_back(assignment);
      }
      return;
    }
    const std::int64_t size = mesh.axes[axis].size;
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      const bool moves = rule.factors[f].kind == FactorKind::kMoving;
      if (moves && (!moving || parts[f] > 1)) continue;
      if (!divides(rule, f, parts[f] * size)) continue;
      // On an axis of one device all choices are the same.
      if (size == 1) continue;
      parts[f] *= size;
      assignment.factor_of_axis[axis] = static_cast<int>(f);
      extend(axis + 1);
      parts[f] /= size;
    }
    assignment.factor_of_axis[axis] = -1;
    extend(axis + 1);
  }
};

}  // namespace

std::string to_text(const Assignment& assignment, const Rule& rule, const Mesh& mesh) {
  std::string text;
  for (std::size_t a = 0; a < assignment.factor_of_axis.size(); ++a) {
    const int f = assignment.factor_of_axis[a];
    if (f < 0) continue;
    if (!text.empty()) text += ' ';
    text += mesh.axes[a].name + ":" + factor_at(rule, f).name;
  }
  return text.empty() ? "whole" : text;
}

std::optional<OpSpecs> specs_of(const Rule& rule, const Assignment& assignment, const Mesh& mesh) {
  if (assignment.factor_of_axis.size() != mesh.axes.size()) return std::nullopt;
  std::vector<AxisList> axes(rule.factors.size());
  std::vector<std::int64_t> parts(rule.factors.size(), 1);
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    const int f = assignment.factor_of_axis[a];
    if (f == -1) continue;
    if (f < 0 || static_cast<std::size_t>(f) >= rule.factors.size()) return std::nullopt;
    // One axis of a moving factor: its parts go round one ring.
    const bool moves = rule.factors[static_cast<std::size_t>(f)].kind == FactorKind::kMoving;
    if (moves && !axes[static_cast<std::size_t>(f)].empty()) return std::nullopt;
    axes[static_cast<std::size_t>(f)].push_back(static_cast<int>(a));
    parts[static_cast<std::size_t>(f)] *= mesh.axes[a].size;
  }
  if (!is_valid(rule, parts)) return std::nullopt;
  OpSpecs specs{split_dims(rule, rule.inputs, true, axes),
                split_dims(rule, rule.outputs, false, axes)};
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (axes[f].empty()) continue;
    const Factor& factor = rule.factors[f];
    for (int input : factor.partial_inputs) {
      add_partial(specs.inputs[static_cast<std::size_t>(input)], axes[f], Reduction::kSum);
    }
    const auto reduction = reduction_of(factor.kind);
    if (!reduction) continue;
    for (std::size_t t = 0; t < rule.outputs.size(); ++t) {
      if (mentions(rule.outputs[t], static_cast<int>(f))) continue;
      add_partial(specs.outputs[t], axes[f], *reduction);
    }
  }
  return specs;
}

bool is_moving(const Rule& rule, const Assignment& assignment) {
  return std::any_of(
      assignment.factor_of_axis.begin(), assignment.factor_of_axis.end(),
      [&](int f) { return f >= 0 && factor_at(rule, f).kind == FactorKind::kMoving; });
}

namespace {

std::vector<Assignment> enumerated(const Rule& rule, const Mesh& mesh, bool moving) {
  Enumeration enumeration{rule,
                          mesh,
                          moving,
                          std::vector<std::int64_t>(rule.factors.size(), 1),
                          {std::vector<int>(mesh.axes.size(), -1)},
                          {}};
  enumeration.extend(0);
  return std::move(enumeration.found);
}

}  // namespace

std::vector<Assignment> candidates(const Rule& rule, const Mesh& mesh) {
  return enumerated(rule, mesh, false);
}

std::vector<Assignment> moving_candidates(const Rule& rule, const Mesh& mesh) {
  if (resting_factors(rule) == rule.factors.size()) return {};
  return enumerated(rule, mesh, true);
}

std::size_t resting_factors(const Rule& rule) {
  return static_cast<std::size_t>(
      std::count_if(rule.factors.begin(), rule.factors.end(),
                    [](const Factor& factor) { return factor.kind != FactorKind::kMoving; }));
}

std::vector<std::vector<std::int64_t>> strategy_of(const std::vector<Spec>& specs,
                                                   const Mesh& mesh) {
  std::vector<std::vector<std::int64_t>> strategy;
  for (const Spec& spec : specs) strategy.push_back(split_counts(spec, mesh));
  return strategy;
}

}  // namespace autopar
