// Builds the small local graph that an op becomes on a rank.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autopar/builder.hpp"
#include "autopar/ops.hpp"

namespace autopar {

class Emitter : public GraphBuilder {
 public:
  explicit Emitter(const LocalContext& context)
      : GraphBuilder(context.program, context.value_names, context.op_names), context_(context) {
    name_after(context.op.name, Naming::kByType);
  }

  ValueId input(std::size_t port) const { return context_.inputs[port]; }
  bool has_input(std::size_t port) const { return context_.op.has_input(port); }
  bool has_output(std::size_t port) const { return context_.op.has_output(port); }

  // No op where there are no axes.
  ValueId all_gather(ValueId from, const std::vector<int>& axes, std::size_t dimension);
  ValueId all_reduce(ValueId from, const std::vector<int>& axes, const std::string& reduce_op);
  // The input of the rank at position `root`; of the one `shift` positions before, round the group.
  // Not before `after` is there, if it is valid.
  ValueId broadcast(ValueId from, const std::vector<int>& axes, std::int64_t root, ValueId after);
  ValueId permute(ValueId from, const std::vector<int>& axes, std::int64_t shift, ValueId after);
  // The rank's part of a constant along one dimension. No op where there are no axes.
  ValueId own_part(ValueId whole, const std::vector<int>& axes, int dimension);
  // The first global index of a dimension that is split into parts of `extent`: rank 1, size 1.
  ValueId offset(const std::vector<int>& axes, std::int64_t extent, DType dtype);

  // Makes `made` output `port` of the op; `type` etc. as in add(). The op takes the op's own name.
  ValueId finish(std::size_t port, const std::string& type, const std::vector<ValueId>& inputs,
                 Attributes attributes = {});
  // `op` with all outputs of the op; its own outputs are ignored.
  std::vector<ValueId> finish_all(Op op);
  // The op itself with output 0 as it leaves, and output 1, whose local values are not final.
  std::pair<ValueId, ValueId> finish_first_of_two(const Attributes& attributes);
  // The local type and shape of an output of the op.
  DType output_dtype(std::size_t port) const;
  Shape output_shape(std::size_t port) const;

  // Mesh axes assigned to the factors of a kind, and to one factor, in mesh order.
  std::vector<int> axes_of(FactorKind kind) const;
  std::vector<int> axes_of(const std::string& factor) const;
  // Mesh axes that split dimension `d` of an input.
  std::vector<int> axes_of_input(std::size_t port, std::size_t d) const {
    return context_.specs.inputs[port].dims[d];
  }
  std::int64_t parts(const std::vector<int>& axes) const { return axes_size(context_.mesh, axes); }

 private:
  ValueId add_output(std::size_t port);
  ValueId moved_on(ValueId from, const AbstractCollective& collective, ValueId after);
  std::string stem(const std::string& type) const;

  const LocalContext& context_;
};

// 16-bit floating numbers as 32-bit ones: sums over many ranks need the room.
ValueId widened(Emitter& emitter, ValueId from);
// Makes output `port` of the op from a value of its shape, in the output's own type.
ValueId finish_cast(Emitter& emitter, std::size_t port, ValueId from);
// Where an input says the shape of the output.
template <std::size_t kPort>
void set_shape_input(const LocalContext& context, Op& op) {
  Emitter emitter(context);
  op.inputs[kPort] = emitter.ints(emitter.output_shape(0));
}
// Outputs of an op whose only output is the first one.
std::vector<ValueId> only_output(const LocalContext& context, ValueId first);

}  // namespace autopar
