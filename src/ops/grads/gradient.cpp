#include "autopar/gradient.hpp"

#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {

std::size_t GradContext::axis(const std::string& name, std::int64_t fallback,
                              std::size_t rank) const {
  const auto at = normal_axis(op.int_attribute(name, fallback), rank);
  AUTOPAR_CHECK(at.has_value(), "an axis out of range that import has let through");
  return *at;
}

Error no_gradient(const GradContext& context, const std::string& because) {
  return input_error(context.op.type + " has no gradient " + because);
}

Result<InputGrads> only_input(const GradContext& context, std::size_t port, ValueId grad) {
  InputGrads grads(context.op.inputs.size());
  grads[port] = grad;
  return grads;
}

ValueId grad_or_zero(const GradContext& context, std::size_t port) {
  if (context.grad(port).valid()) return context.grad(port);
  const ValueId output = context.out(port);
  return context.to.filled(context.to.dtype(output), context.to.shape(output), 0);
}

DType widened(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

bool has_gradient(const Op& op) {
  const OpRow* row = find_row(op);
  return row != nullptr && (row->grad != nullptr || row->grad_text != nullptr);
}

Result<InputGrads> gradients_of(const GradContext& context) {
  const OpRow* row = find_row(context.op);
  if (row != nullptr && row->grad_text != nullptr) {
    return formula_gradients(context, row->grad_text);
  }
  if (row == nullptr || row->grad == nullptr) {
    return input_error(context.op.type + " has no gradient");
  }
  AUTOPAR_TRY(grads, row->grad(context));
  AUTOPAR_CHECK(grads.size() == context.op.inputs.size(), "gradients of another number of inputs");
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!context.wants(i)) grads[i] = ValueId();
    if (!grads[i].valid()) continue;
    AUTOPAR_CHECK(context.to.shape(grads[i]) == context.in_shape(i) &&
                      context.to.dtype(grads[i]) == context.to.dtype(context.in(i)),
                  "the gradient of " + context.op.type + " '" + context.op.name +
                      "' has another shape or type than its input");
  }
  return grads;
}

}  // namespace autopar
