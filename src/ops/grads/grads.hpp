// The gradients that the op table refers to, by family.
#pragma once

#include <utility>

#include "autopar/gradient.hpp"

namespace autopar {

// Gradients that are told by a formula per input, separated by ';': `g` is the gradient of the
// output, `x` (or `x0`, `x1`, ...) the inputs, `y` the output. +, -, *, /, <, <=, >, >=, ==,
// numbers, parentheses, elementwise ops of ONNX by their names, `@alpha=0.01` a float attribute and
// what it is where it is not given. An empty formula: the gradient is zero. `*` as the last input's
// formula is that of all further inputs; `x` there is each of them. What broadcasting repeated is
// summed afterwards.
//   "g * x1; g * x0"    "Where(x > 0, g, g * @alpha=0.01)"
Result<InputGrads> formula_gradients(const GradContext& context, const char* text);

// Errors for forms of ops without a gradient: "a Resize of mode 'cubic' has no gradient".
Error no_gradient(const GradContext& context, const std::string& because);

// What a gradient is made of: one valid value for the only input that has one.
Result<InputGrads> only_input(const GradContext& context, std::size_t port, ValueId grad);
// The gradient of output 0, zeros where nothing depends on it.
ValueId grad_or_zero(const GradContext& context, std::size_t port = 0);

// float32 for 16-bit floats: what sums and places are told in.
DType widened(DType dtype);

// elementwise.cpp
Result<InputGrads> gelu_grad(const GradContext& context);
Result<InputGrads> pow_grad(const GradContext& context);
Result<InputGrads> extremum_grad(const GradContext& context);  // Max, Min
Result<InputGrads> clip_grad(const GradContext& context);
Result<InputGrads> cast_grad(const GradContext& context);
Result<InputGrads> mean_grad(const GradContext& context);

// contraction.cpp
Result<InputGrads> matmul_grad(const GradContext& context);
Result<InputGrads> gemm_grad(const GradContext& context);
Result<InputGrads> einsum_grad(const GradContext& context);

// movement.cpp
Result<InputGrads> reshape_grad(const GradContext& context);  // Reshape and its kin, Identity
Result<InputGrads> transpose_grad(const GradContext& context);
Result<InputGrads> slice_grad(const GradContext& context);
Result<InputGrads> concat_grad(const GradContext& context);
Result<InputGrads> split_grad(const GradContext& context);
Result<InputGrads> expand_grad(const GradContext& context);

// reduction.cpp
Result<InputGrads> reduce_sum_grad(const GradContext& context);
Result<InputGrads> reduce_mean_grad(const GradContext& context);
Result<InputGrads> reduce_square_grad(const GradContext& context);
Result<InputGrads> reduce_l1_grad(const GradContext& context);
Result<InputGrads> reduce_l2_grad(const GradContext& context);
Result<InputGrads> reduce_log_sum_grad(const GradContext& context);
Result<InputGrads> reduce_log_sum_exp_grad(const GradContext& context);
Result<InputGrads> reduce_extremum_grad(const GradContext& context);
Result<InputGrads> reduce_product_grad(const GradContext& context);

// softmax.cpp
Result<InputGrads> softmax_grad(const GradContext& context);
Result<InputGrads> log_softmax_grad(const GradContext& context);

// gather.cpp
// Zeros of `shape` with `updates` added by `type`, ScatterND or ScatterElements. Floats of 16 bits
// are added up in float32: many small ones may come to one place.
ValueId scattered_sum(GraphBuilder& to, const std::string& type, Shape shape, ValueId indices,
                      ValueId updates, Attributes attributes = {});
Result<InputGrads> gather_grad(const GradContext& context);
Result<InputGrads> gather_elements_grad(const GradContext& context);
Result<InputGrads> gather_nd_grad(const GradContext& context);
Result<InputGrads> max_unpool_grad(const GradContext& context);
Result<InputGrads> top_k_grad(const GradContext& context);
Result<InputGrads> one_hot_grad(const GradContext& context);

// scatter.cpp
Result<InputGrads> scatter_elements_grad(const GradContext& context);
Result<InputGrads> scatter_nd_grad(const GradContext& context);
Result<InputGrads> tensor_scatter_grad(const GradContext& context);

// padding.cpp
Result<InputGrads> pad_grad(const GradContext& context);
Result<InputGrads> center_crop_pad_grad(const GradContext& context);

// rearrangement.cpp
Result<InputGrads> tile_grad(const GradContext& context);
Result<InputGrads> same_op_grad(const GradContext& context);  // Trilu, ReverseSequence
Result<InputGrads> depth_to_space_grad(const GradContext& context);
Result<InputGrads> space_to_depth_grad(const GradContext& context);
Result<InputGrads> column_to_image_grad(const GradContext& context);
Result<InputGrads> affine_grid_grad(const GradContext& context);

// scan.cpp
Result<InputGrads> cumulative_sum_grad(const GradContext& context);
Result<InputGrads> cumulative_product_grad(const GradContext& context);

// losses.cpp
Result<InputGrads> cross_entropy_grad(const GradContext& context);
Result<InputGrads> likelihood_grad(const GradContext& context);

// attention.cpp
Result<InputGrads> attention_grad(const GradContext& context);
Result<InputGrads> rotary_grad(const GradContext& context);

// lstm.cpp, gru.cpp, recurrent.cpp
Result<InputGrads> lstm_grad(const GradContext& context);
Result<InputGrads> gru_grad(const GradContext& context);
Result<InputGrads> rnn_grad(const GradContext& context);

// dropout.cpp, determinant.cpp, fourier.cpp
Result<InputGrads> dropout_grad(const GradContext& context);
Result<InputGrads> determinant_grad(const GradContext& context);
Result<InputGrads> fourier_grad(const GradContext& context);
Result<InputGrads> short_fourier_grad(const GradContext& context);

// convolution.cpp
Result<InputGrads> convolution_grad(const GradContext& context);  // Conv, ConvTranspose

// pooling.cpp
Result<InputGrads> average_pool_grad(const GradContext& context);
Result<InputGrads> max_pool_grad(const GradContext& context);
Result<InputGrads> lp_pool_grad(const GradContext& context);
Result<InputGrads> global_average_pool_grad(const GradContext& context);
Result<InputGrads> global_max_pool_grad(const GradContext& context);
Result<InputGrads> global_lp_pool_grad(const GradContext& context);

// normalisation.cpp
Result<InputGrads> layer_norm_grad(const GradContext& context);
Result<InputGrads> rms_norm_grad(const GradContext& context);
Result<InputGrads> batch_norm_grad(const GradContext& context);
Result<InputGrads> instance_norm_grad(const GradContext& context);
Result<InputGrads> group_norm_grad(const GradContext& context);
Result<InputGrads> lp_norm_grad(const GradContext& context);
Result<InputGrads> mean_variance_grad(const GradContext& context);
Result<InputGrads> local_response_grad(const GradContext& context);

// resize.cpp
Result<InputGrads> resize_grad(const GradContext& context);

// sampling.cpp, deformable.cpp, roi_align.cpp
Result<InputGrads> grid_sample_grad(const GradContext& context);
Result<InputGrads> deformable_grad(const GradContext& context);
Result<InputGrads> roi_align_grad(const GradContext& context);

}  // namespace autopar
