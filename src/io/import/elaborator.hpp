// The state of the walk that elaborate() describes; one file per part of it.
#pragma once

#include <onnx/defs/schema.h>

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/import/elaborate.hpp"
#include "io/import/evaluate.hpp"
#include "io/import/expansion.hpp"
#include "io/import/infer.hpp"
#include "io/import/proto_tensor.hpp"
#include "io/import/scope.hpp"

namespace autopar {

class Elaborator {
 public:
  Elaborator(ModelFile& file, std::string folder, const ImportOptions& options);
  Result<Elaboration> run();

 private:
  // elaborate_boundary.cpp: inputs, initializers and outputs of the main graph.
  Status read_opsets();
  Status add_inputs(const onnx::GraphProto& graph);
  Status add_input(const onnx::ValueInfoProto& input);
  Result<Shape> bound_shape(const onnx::ValueInfoProto& input);
  Status check_dims_used() const;
  Status add_initializers(onnx::GraphProto& graph, Scope& scope);
  Status add_outputs(const onnx::GraphProto& graph);
  void check_declared(const onnx::ValueInfoProto& output, const Value& value);
  ValueKind input_kind(const std::string& name) const;

  // elaborate_nodes.cpp: one node after the other.
  Status take_model_names(const onnx::GraphProto& graph);
  Status run_nodes(Nodes& nodes, Scope& scope);
  bool is_ready(const onnx::NodeProto& node, const Scope& scope) const;
  Status run_node(onnx::NodeProto& node, Scope& scope, const std::string& name);
  Status run_op(onnx::NodeProto& node, Scope& scope, const std::string& name);
  Status check_names(const onnx::NodeProto& node, const Scope& scope) const;
  Status gather_what_stays(Op& op, std::vector<OutputType>& outputs, Scope& scope);
  void resolve_inputs(const onnx::NodeProto& node, const Scope& scope, Op& op) const;
  Result<const onnx::OpSchema*> schema_of(const onnx::NodeProto& node, const Scope& scope) const;
  Result<std::vector<OutputType>> output_types(const onnx::NodeProto& node, const Op& op,
                                               const onnx::OpSchema* schema);
  std::string inputs_text(const Op& op) const;
  Result<OutputType> declared_type(const onnx::NodeProto& node, const std::string& name);
  Status require_static(const onnx::NodeProto& node, const Op& op,
                        const std::vector<OutputType>& outputs) const;
  void emit(const onnx::NodeProto& node, Op op, const std::vector<OutputType>& outputs,
            Scope& scope, const std::string& name);

  // elaborate_bodies.cpp: calls of model-local functions and branches of `If`.
  Status run_call(const onnx::NodeProto& node, const onnx::FunctionProto& function, Scope& scope,
                  const std::string& name);
  Status run_if(onnx::NodeProto& node, Scope& scope, const std::string& name);
  std::vector<std::string> outer_names(const onnx::NodeProto& node, const Scope& scope);
  Status bind_result(const std::string& inner, const Scope& body, const std::string& outer,
                     const std::string& name, Scope& scope, const std::string& op_name);

  void make_base(Op& op, Scope& scope, const std::string& name);

  // elaborate_fold.cpp: what is known at import.
  enum class Fold {
    kNone,
    kConstant,  // the outputs are constants, and the op is not needed
    kDerived,   // the op stays (it works on a weight), but what it gives is known
  };
  const Tensor* known(ValueId id) const;
  static bool is_large(const Tensor& tensor);  // no small table of numbers
  std::optional<Tensor> shape_of_input(const Op& op) const;
  Fold fold_kind(const Op& op) const;
  std::optional<Tensors> values_of(const Op& op, const std::vector<OutputType>& outputs,
                                   Fold fold) const;
  void add_constants(const onnx::NodeProto& node, Tensors tensors, Scope& scope);

  ValueId add_value(Value value, Scope& scope, const std::string& name);
  std::string value_name(const std::string& name, const Scope& scope);

  onnx::ModelProto& model_;
  GroupLists group_lists_{model_};
  const std::optional<std::set<std::string>>& data_inputs_;
  std::string folder_;
  const ImportOptions& options_;
  Elaboration result_;
  Graph& graph_ = result_.graph;
  Names value_names_;
  Names op_names_;
  std::vector<onnx::TypeProto> types_;  // parallel to graph_.values
  // What weights become by reshaping and casting alone: known, but still produced by an op.
  std::map<ValueId, Tensor> derived_;
  Functions functions_;
  std::unordered_map<std::string, const onnx::TypeProto*> declared_;  // value_info, where needed
  std::map<std::string, std::int64_t> symbols_;  // symbolic dimensions that were bound
  Scope main_;
};

}  // namespace autopar
