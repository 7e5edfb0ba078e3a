#include <utility>

#include "io/import/passes.hpp"

namespace autopar {
namespace {

// The ops that one Gemm becomes, in order. What is added is added by an op of its own, once the
// product is whole or as it is scattered: within the product, parts of a contraction that several
// devices share would each add it.
class Split {
 public:
  Split(Normalisation& n, const Op& gemm, std::vector<Op>& ops) : n_(n), gemm_(gemm), ops_(ops) {}

  void run() {
    const ValueId y = gemm_.outputs[0];
    const double beta = gemm_.float_attribute("beta", 1);
    const bool adds = gemm_.has_input(2) && beta != 0;
    std::map<std::string, Attribute> attributes = gemm_.attributes;
    attributes.erase("beta");
    const ValueId product = adds ? like(y, "/product") : y;
    add("Gemm", gemm_.name, {gemm_.inputs[0], gemm_.inputs[1]}, product, std::move(attributes));
    if (!adds) return;
    ValueId c = gemm_.inputs[2];
    if (beta != 1) {
      const Value& value = n_.graph.value(c);
      const ValueId scaled = n_.add_activation(value.dtype, value.shape, value.name + "/scaled");
      add("Mul", n_.op_names.unique(gemm_.name + "/scale"), {c, number(beta)}, scaled, {});
      c = scaled;
    }
    add("Add", n_.op_names.unique(gemm_.name + "/add"), {product, c}, y, {});
  }

 private:
  ValueId like(ValueId y, const std::string& suffix) {
    const Value& value = n_.graph.value(y);
    const DType dtype = value.dtype;
    const Shape shape = value.shape;
    return n_.add_activation(dtype, shape, value.name + suffix);
  }

  ValueId number(double value) {
    const DType dtype = n_.graph.value(gemm_.inputs[0]).dtype;
    return n_.add_constant(scalar_tensor(dtype, value), gemm_.name + "/factor");
  }

  void add(const char* type, std::string name, std::vector<ValueId> inputs, ValueId output,
           std::map<std::string, Attribute> attributes) {
    Op op;
    op.name = std::move(name);
    op.type = type;
    op.inputs = std::move(inputs);
    op.outputs = {output};
    op.attributes = std::move(attributes);
    op.origin_name = gemm_.origin_name;
    op.origin_type = gemm_.origin_type;
    op.phase = gemm_.phase;
    ops_.push_back(std::move(op));
  }

  Normalisation& n_;
  const Op& gemm_;
  std::vector<Op>& ops_;
};

// Fractional factors of an integer Gemm have no equivalent in integer ops.
bool can_split(const Graph& graph, const Op& op) {
  if (op.type != "Gemm" || !op.domain.empty()) return false;
  const auto whole = [&](const char* name) {
    const double factor = op.float_attribute(name, 1);
    return factor == static_cast<double>(static_cast<std::int64_t>(factor));
  };
  return is_floating(graph.value(op.inputs[0]).dtype) || (whole("alpha") && whole("beta"));
}

}  // namespace

void split_gemms(Normalisation& n) {
  std::vector<Op> old = std::move(n.graph.ops);
  std::vector<Op> ops;
  for (Op& op : old) {
    if (can_split(n.graph, op)) {
      Split(n, op, ops).run();
    } else {
      ops.push_back(std::move(op));
    }
  }
  replace_ops(n.graph, std::move(ops));
}

}  // namespace autopar
