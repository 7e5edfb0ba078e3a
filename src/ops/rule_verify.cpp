// Whether a rule fits the shapes of its op and says what becomes of every factor.
#include <algorithm>
#include <set>
#include <string>

#include "autopar/ops.hpp"

namespace autopar {
namespace {

Status verify_factors(const Rule& rule) {
  std::set<std::string> names;
  for (const Factor& factor : rule.factors) {
    if (!names.insert(factor.name).second) return input_error("two factors " + factor.name);
    const bool sums = factor.kind == FactorKind::kSum || factor.kind == FactorKind::kPartial;
    if (!sums && !factor.partial_inputs.empty()) {
      return input_error("factor " + factor.name + " has summands but is not summed over");
    }
    for (int input : factor.partial_inputs) {
      if (input < 0 || static_cast<std::size_t>(input) >= rule.inputs.size()) {
        return input_error("factor " + factor.name + " names an input that does not exist");
      }
    }
  }
  return Ok{};
}

Status verify_dim(const Rule& rule, const std::vector<int>& dim, std::int64_t extent,
                  std::set<int>& seen) {
  std::int64_t product = 1;
  for (int f : dim) {
    if (f < 0 || static_cast<std::size_t>(f) >= rule.factors.size()) {
      return input_error("a factor that does not exist");
    }
    const Factor& factor = rule.factors[static_cast<std::size_t>(f)];
    if (factor.kind == FactorKind::kPartial || factor.kind == FactorKind::kMoving) {
      return input_error("a partial or moving factor is no dimension");
    }
    if (!seen.insert(f).second && factor.kind != FactorKind::kWhole) {
      return input_error("factor " + factor.name + " twice in one tensor; mark it ^ (whole)");
    }
    // Sizes that a user wrote may not multiply to anything that exists.
    if (__builtin_mul_overflow(product, factor.size, &product)) product = -1;
  }
  if (dim.empty() || product == extent) return Ok{};
  return input_error("a dimension has " + std::to_string(extent) + " elements, its factors " +
                     std::to_string(product));
}

Status verify_tensors(const Rule& rule, const std::vector<TensorFactors>& tensors,
                      const std::vector<Shape>& shapes, const char* name) {
  if (tensors.size() != shapes.size()) {
    return input_error(std::string("the rule has ") + std::to_string(tensors.size()) + " " + name +
                       "s, the op " + std::to_string(shapes.size()));
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::string where = std::string(name) + " " + std::to_string(t) + ": ";
    if (tensors[t].size() != shapes[t].size()) {
      return input_error(where + "expected " + std::to_string(shapes[t].size()) + " dimensions");
    }
    std::set<int> seen;
    for (std::size_t d = 0; d < tensors[t].size(); ++d) {
      if (Status status = verify_dim(rule, tensors[t][d], shapes[t][d], seen); !status) {
        return input_error(where + status.error().message);
      }
    }
  }
  return Ok{};
}

// A halo is one of rows of some input, and nothing else has one.
Status verify_halo(const Rule& rule, int f) {
  const Factor& factor = rule.factors[static_cast<std::size_t>(f)];
  const bool has_halo = factor.halo_before > 0 || factor.halo_after > 0;
  if (has_halo != (factor.kind == FactorKind::kHalo) || factor.halo_before < 0 ||
      factor.halo_after < 0) {
    return input_error("the halo of factor " + factor.name + " does not fit its kind");
  }
  if (!has_halo) return Ok{};
  const auto leads = [&](const std::vector<int>& dim) { return !dim.empty() && dim[0] == f; };
  const bool found =
      std::any_of(rule.inputs.begin(), rule.inputs.end(), [&](const TensorFactors& tensor) {
        return std::any_of(tensor.begin(), tensor.end(), leads);
      });
  if (found) return Ok{};
  return input_error("factor " + factor.name + " has a halo, but leads no dimension of an input");
}

// A moving factor says for every tensor which of the loop dimensions it splits, or that it splits
// none.
Status verify_moving(const Rule& rule, const Factor& factor) {
  const bool moving = factor.kind == FactorKind::kMoving;
  if (moving != (factor.moves_with >= 0)) {
    return input_error("what factor " + factor.name + " moves with does not fit its kind");
  }
  if (!moving) return Ok{};
  const auto known = [&](int f) {
    if (f < 0) return f == -1;
    if (static_cast<std::size_t>(f) >= rule.factors.size()) return false;
    const FactorKind kind = rule.factors[static_cast<std::size_t>(f)].kind;
    return kind != FactorKind::kMoving && kind != FactorKind::kPartial;
  };
  if (factor.moving_inputs.size() == rule.inputs.size() &&
      factor.moving_outputs.size() == rule.outputs.size() &&
      std::all_of(factor.moving_inputs.begin(), factor.moving_inputs.end(), known) &&
      std::all_of(factor.moving_outputs.begin(), factor.moving_outputs.end(), known)) {
    return Ok{};
  }
  return input_error("the moving factor " + factor.name +
                     " does not name a loop dimension, or none, for every tensor");
}

// What is split must be split, reduced or exchanged in every output.
Status verify_use(const Rule& rule, int f) {
  const Factor& factor = rule.factors[static_cast<std::size_t>(f)];
  AUTOPAR_RETURN_IF_ERROR(verify_halo(rule, f));
  AUTOPAR_RETURN_IF_ERROR(verify_moving(rule, factor));
  const bool stays = factor.kind == FactorKind::kParallel || factor.kind == FactorKind::kHalo;
  for (std::size_t t = 0; t < rule.outputs.size() && stays; ++t) {
    if (mentions(rule.outputs[t], f)) continue;
    return input_error("output " + std::to_string(t) + " does not have the factor " + factor.name +
                       "; mark it + > < (reduced), ~ or ^ (whole)");
  }
  for (int input : factor.partial_inputs) {
    if (!mentions(rule.inputs[static_cast<std::size_t>(input)], f)) continue;
    return input_error("input " + std::to_string(input) + " has the factor " + factor.name +
                       " and is its summand as well");
  }
  return Ok{};
}

}  // namespace

Status verify(const Rule& rule, const OpShapes& shapes) {
  AUTOPAR_RETURN_IF_ERROR(verify_factors(rule));
  AUTOPAR_RETURN_IF_ERROR(verify_tensors(rule, rule.inputs, shapes.inputs, "input"));
  AUTOPAR_RETURN_IF_ERROR(verify_tensors(rule, rule.outputs, shapes.outputs, "output"));
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    AUTOPAR_RETURN_IF_ERROR(verify_use(rule, static_cast<int>(f)));
  }
  return Ok{};
}

}  // namespace autopar
