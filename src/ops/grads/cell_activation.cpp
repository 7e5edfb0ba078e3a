#include "ops/grads/cell_activation.hpp"

#include <algorithm>
#include <cctype>

namespace autopar {
namespace {

struct Known {
  const char* type;
  std::optional<double> alpha, beta;  // taken by the activation, with what they are by default
};

constexpr Known kKnown[] = {
    {"sigmoid", {}, {}},        {"tanh", {}, {}},
    {"relu", {}, {}},           {"softsign", {}, {}},
    {"softplus", {}, {}},       {"affine", 1, 0},
    {"leakyrelu", 0.01, {}},    {"elu", 1, {}},
    {"thresholdedrelu", 1, {}}, {"scaledtanh", 1, 1},
    {"hardsigmoid", 0.2, 0.5},
};

std::vector<double> doubles(const Op& op, const std::string& name) {
  const auto at = op.attributes.find(name);
  const auto* values =
      at == op.attributes.end() ? nullptr : std::get_if<std::vector<double>>(&at->second);
  return values == nullptr ? std::vector<double>() : *values;
}

}  // namespace

ValueId CellActivation::value(GraphBuilder& to, ValueId x) const {
  const auto number = [&](double n) { return to.scalar(to.dtype(x), n); };
  if (type == "affine") return to.pointwise("Add", {to.scaled(x, alpha), number(beta)});
  if (type == "scaledtanh") return to.scaled(to.pointwise("Tanh", {to.scaled(x, beta)}), alpha);
  if (type == "leakyrelu") return to.pointwise("LeakyRelu", {x}, {{"alpha", alpha}});
  if (type == "thresholdedrelu") return to.pointwise("ThresholdedRelu", {x}, {{"alpha", alpha}});
  if (type == "hardsigmoid") {
    return to.pointwise("HardSigmoid", {x}, {{"alpha", alpha}, {"beta", beta}});
  }
  if (type == "elu") return to.pointwise("Elu", {x}, {{"alpha", alpha}});
  return to.pointwise(type == "sigmoid"    ? "Sigmoid"
                      : type == "tanh"     ? "Tanh"
                      : type == "relu"     ? "Relu"
                      : type == "softsign" ? "Softsign"
                                           : "Softplus",
                      {x});
}

ValueId CellActivation::slope(GraphBuilder& to, ValueId x, ValueId y) const {
  const auto number = [&](double n) { return to.scalar(to.dtype(x), n); };
  const auto times = [&](ValueId a, ValueId b) { return to.pointwise("Mul", {a, b}); };
  const auto from_one = [&](ValueId a) { return to.pointwise("Sub", {number(1), a}); };
  const auto above = [&](double bound, double then, double otherwise) {
    const ValueId test = to.test("Greater", {x, number(bound)});
    return to.pointwise("Where", {test, number(then), number(otherwise)});
  };
  if (type == "sigmoid") return times(y, from_one(y));
  if (type == "tanh") return from_one(times(y, y));
  if (type == "relu") return above(0, 1, 0);
  if (type == "leakyrelu") return above(0, 1, alpha);
  if (type == "thresholdedrelu") return above(alpha, 1, 0);
  if (type == "affine") return to.filled(to.dtype(x), to.shape(x), alpha);
  if (type == "softplus") return to.pointwise("Sigmoid", {x});
  if (type == "softsign") {
    const ValueId less = from_one(to.pointwise("Abs", {y}));
    return times(less, less);
  }
  if (type == "elu") {
    const ValueId test = to.test("Greater", {x, number(0)});
    return to.pointwise("Where", {test, number(1), to.pointwise("Add", {y, number(alpha)})});
  }
  if (type == "hardsigmoid") {
    const ValueId inside =
        to.test("And", {to.test("Greater", {y, number(0)}), to.test("Less", {y, number(1)})});
    return to.pointwise("Where", {inside, number(alpha), number(0)});
  }
  // alpha tanh(beta x): alpha beta (1 - (y / alpha)^2)
  return to.pointwise("Sub", {number(alpha * beta), to.scaled(times(y, y), beta / alpha)});
}

std::optional<std::vector<CellActivation>> cell_activations(
    const Op& op, const std::vector<std::string>& defaults, std::size_t directions) {
  std::vector<std::string> types;
  for (std::size_t d = 0; d < directions; ++d) {
    types.insert(types.end(), defaults.begin(), defaults.end());
  }
  const auto at = op.attributes.find("activations");
  if (at != op.attributes.end()) {
    const auto* given = std::get_if<std::vector<std::string>>(&at->second);
    if (given == nullptr || given->size() != types.size()) return std::nullopt;
    types = *given;
  }
  const std::vector<double> alphas = doubles(op, "activation_alpha");
  const std::vector<double> betas = doubles(op, "activation_beta");
  std::size_t alpha = 0, beta = 0;  // each is used up by the activations that take one
  std::vector<CellActivation> activations;
  for (std::string type : types) {
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                    [&](const Known& k) { return type == k.type; });
    if (known == std::end(kKnown)) return std::nullopt;
    CellActivation activation{type, known->alpha.value_or(0), known->beta.value_or(0)};
    if (known->alpha && alpha < alphas.size()) activation.alpha = alphas[alpha++];
    if (known->beta && beta < betas.size()) activation.beta = betas[beta++];
    activations.push_back(std::move(activation));
  }
  return activations;
}

}  // namespace autopar
