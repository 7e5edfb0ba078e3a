// Gradients of convolutions: each of the other kind by the image, and by the weight a convolution
// whose batch is the channels.
#include "ops/grads/grads.hpp"
#include "ops/grads/slide.hpp"
#include "ops/window.hpp"

namespace autopar {
namespace {

// The bias is added at every place of every image.
ValueId bias_grad(const GradContext& context) {
  std::vector<std::size_t> axes = {0};
  for (std::size_t d = 2; d < context.out_shape(0).size(); ++d) axes.push_back(d);
  return context.to.reduce("ReduceSum", context.grad(), axes, false);
}

}  // namespace

Result<InputGrads> convolution_grad(const GradContext& context) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  GraphBuilder& to = context.to;
  const auto slides = slides_of(context, kernel_of(context.in_shape(1)));
  if (!slides) return no_gradient(context, "where its padding does not fit its extents");
  const std::int64_t group = context.op.int_attribute("group", 1);
  const bool transposed = context.op.type == "ConvTranspose";
  const ValueId x = context.in(0), weight = context.in(1), g = context.grad();
  if (context.wants(0)) {
    grads[0] = transposed ? gather_windows(to, g, weight, group, *slides)
                          : spread_windows(to, g, weight, group, *slides);
  }
  if (context.wants(1)) {
    grads[1] = transposed ? weigh_windows(to, g, x, group, *slides)
                          : weigh_windows(to, x, g, group, *slides);
  }
  if (context.wants(2)) grads[2] = bias_grad(context);
  return grads;
}

}  // namespace autopar
