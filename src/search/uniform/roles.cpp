#include "search/uniform/roles.hpp"

#include <algorithm>
#include <set>

namespace autopar {

namespace {

bool is_weight(const Value& value) {
  return value.kind == ValueKind::kParameter || value.kind == ValueKind::kInput;
}

bool hands_on_weight(const Op& op) {
  return op.type == "Cast" || op.type == "Transpose" || is_identity(op);
}

class Roles {
 public:
  explicit Roles(const SearchRequest& request)
      : request_(request),
        graph_(request.graph),
        readers_(readers_of(graph_)),
        batch_(batch_factors(graph_, request.rules)),
        updated_(updated_inputs(graph_, request.updates)),
        next_(graph_.values.size()) {
    for (ValueId output : graph_.outputs) {
      const ValueId input = updated_[output.index()];
      if (input.valid()) next_[input.index()] = output;
    }
  }

  TemplateRoles run() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase != Phase::kForward) continue;
      add_product(OpId(static_cast<std::int64_t>(o)));
      add_experts(OpId(static_cast<std::int64_t>(o)));
      add_embedding(graph_.ops[o]);
    }
    for (std::size_t e = 0; e < roles_.experts.size(); ++e) add_routes(roles_.experts[e].op);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      add_boundary(ValueId(static_cast<std::int64_t>(v)));
    }
    name_owners();
    for (TemplateStored& stored : roles_.stored) {
      const ValueId of = stored.of.valid() ? stored.of : stored.value;
      stored.is_of_experts = expert_weights_.count(of) != 0;
    }
    sort(roles_.gathered);
    sort(roles_.sums);
    return std::move(roles_);
  }

 private:
  static void sort(std::vector<ValueId>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }

  // The input or parameter of which casts and transposes make a value; invalid: none.
  ValueId weight_behind(ValueId id) const {
    while (graph_.value(id).producer.valid()) {
      const Op& op = graph_.op(graph_.value(id).producer);
      if (!hands_on_weight(op)) return {};
      id = op.inputs[0];
    }
    return is_weight(graph_.value(id)) ? id : ValueId{};
  }

  // The dimension of the weight behind an operand that a dimension of the operand is.
  int dim_behind(ValueId id, int dim) const {
    while (graph_.value(id).producer.valid()) {
      const Op& op = graph_.op(graph_.value(id).producer);
      if (op.type == "Transpose") {
        const auto perm = op.ints_attribute("perm", {1, 0});
        dim = static_cast<int>(perm[static_cast<std::size_t>(dim)]);
      }
      id = op.inputs[0];
    }
    return dim;
  }

  // A table of embeddings is split by its words.
  void add_embedding(const Op& op) {
    if (op.type != "Gather" || op.int_attribute("axis", 0) != 0 || !op.has_input(1)) return;
    const ValueId table = weight_behind(op.inputs[0]);
    // Positions are no words.
    if (batch_[graph_index(op)] < 0) return;
    if (!table.valid() || !is_stored(table) || graph_.value(table).shape.size() != 2) return;
    tensor_dim_.try_emplace(table, dim_behind(op.inputs[0], 0));
  }

  std::size_t graph_index(const Op& op) const {
    return static_cast<std::size_t>(&op - graph_.ops.data());
  }

  // Data has a factor along the batch in what reads it, and weights have not.
  bool is_stored(ValueId id) const {
    const Value& value = graph_.value(id);
    return value.kind == ValueKind::kParameter || next_[id.index()].valid();
  }

  // The factor of the weight that no other input of the op has (columns), or that the activation
  // has too (rows). One that several dimensions share is none.
  int factor_of(const Rule& rule, bool in_rows) const {
    int found = -1;
    for (const std::vector<int>& dim : rule.inputs[1]) {
      if (dim.size() != 1) return -1;
      bool shared = false;
      for (const std::vector<int>& other : rule.inputs[0]) {
        shared = shared || std::find(other.begin(), other.end(), dim[0]) != other.end();
      }
      if (shared == in_rows) found = dim[0];
    }
    return found;
  }

  void add_product(OpId id) {
    const Op& op = graph_.op(id);
    if ((op.type != "MatMul" && op.type != "Gemm") || !op.has_input(1)) return;
    const ValueId weight = weight_behind(op.inputs[1]);
    if (!weight.valid() || !is_stored(weight) || graph_.value(weight).shape.size() != 2) return;
    TemplateProduct product;
    product.op = id;
    product.batch_factor = batch_[id.index()];
    product.sequence_factor = sequence_factor(id);
    const ValueId sum = sum_with_residual(op.outputs[0]);
    product.in_rows = sum.valid();
    if (is_routing(op.outputs[0])) {
      roles_.products.push_back(product);
      return;
    }
    product.weight_factor = factor_of(request_.rules.rules[id.index()], product.in_rows);
    if (product.weight_factor < 0) return;
    const Rule& rule = request_.rules.rules[id.index()];
    for (std::size_t d = 0; d < rule.inputs[1].size(); ++d) {
      if (rule.inputs[1][d].front() != product.weight_factor) continue;
      tensor_dim_[weight] = dim_behind(op.inputs[1], static_cast<int>(d));
    }
    if (product.in_rows) {
      roles_.sums.push_back(sum);
    } else if (graph_.value(op.inputs[0]).producer.valid()) {
      roles_.gathered.push_back(handed_on(graph_, op.inputs[0]));
    }
    roles_.products.push_back(product);
  }

  // Whether the largest of a value are looked for: routers are whole everywhere.
  bool is_routing(ValueId id) const {
    for (const Use& use : forward_uses(id)) {
      const Op& op = graph_.op(use.op);
      if (op.type == "TopK") return true;
      const bool hands_on = op.type == "Softmax" || op.type == "Sigmoid" || op.type == "Add" ||
                            op.type == "Cast" || is_identity(op);
      if (hands_on && is_routing(op.outputs[0])) return true;
    }
    return false;
  }

  // The last dimension of the rows, where one before it is the batch.
  int sequence_factor(OpId id) const {
    const std::vector<std::vector<int>>& rows = request_.rules.rules[id.index()].inputs[0];
    if (rows.size() < 3) return -1;
    // One sample is a batch too.
    const bool is_one = graph_.value(graph_.op(id).inputs[0]).shape[0] == 1;
    const bool is_batch = rows[0].size() == 1 && rows[0][0] == batch_[id.index()];
    if (!is_one && !is_batch) return -1;
    const std::vector<int>& sequence = rows[rows.size() - 2];
    return sequence.size() == 1 ? sequence[0] : -1;
  }

  void add_experts(OpId id) {
    const Op& op = graph_.op(id);
    if (op.type != "MatMul" || !op.has_input(1)) return;
    const ValueId weight = weight_behind(op.inputs[1]);
    if (!weight.valid() || !is_stored(weight) || graph_.value(weight).shape.size() != 3) return;
    const Rule& rule = request_.rules.rules[id.index()];
    const auto only = [](const std::vector<int>& factors) {
      return factors.size() == 1 ? factors[0] : -1;
    };
    const std::vector<std::vector<int>>& group = rule.inputs[1];
    const std::vector<std::vector<int>>& tokens = rule.inputs[0];
    const int expert = only(group[0]);
    if (dim_behind(op.inputs[1], 0) != 0 || expert < 0 || tokens.size() < 3) return;
    if (rule.factors[static_cast<std::size_t>(expert)].size < 2) return;
    const bool in_rows = reads_experts(op.inputs[0]);
    const int split = in_rows ? 1 : 2;
    roles_.experts.push_back({id, batch_[id.index()], expert, only(tokens[tokens.size() - 2]),
                              only(group[static_cast<std::size_t>(split)])});
    expert_weights_.insert(weight);
    tensor_dim_[weight] = dim_behind(op.inputs[1], split);
  }

  // Whether a value is made of what experts calculated, element by element: of their first product.
  bool reads_experts(ValueId id) const {
    std::vector<ValueId> open = {id};
    std::set<ValueId> seen = {id};
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const OpId maker = graph_.value(value).producer;
      if (!maker.valid()) continue;
      if (is_expert_product(maker)) return true;
      if (graph_.op(maker).type == "MatMul") continue;
      for (ValueId input : graph_.op(maker).inputs) {
        if (!input.valid() || graph_.value(input).shape != graph_.value(value).shape) continue;
        if (seen.insert(input).second) open.push_back(input);
      }
    }
    return false;
  }

  bool is_expert_product(OpId id) const {
    return std::any_of(roles_.experts.begin(), roles_.experts.end(),
                       [&](const TemplateExperts& experts) { return experts.op == id; });
  }

  // The products of activations before and behind what experts calculate.
  void add_routes(OpId experts) {
    const auto add = [&](OpId id) {
      const Op& op = graph_.op(id);
      if (op.type != "MatMul" || is_expert_product(id) || batch_[id.index()] < 0) return;
      if (weight_behind(op.inputs[1]).valid()) return;
      const bool is_known = std::any_of(roles_.routes.begin(), roles_.routes.end(),
                                        [&](const TemplateRoute& route) { return route.op == id; });
      if (!is_known) roles_.routes.push_back({id, batch_[id.index()]});
    };
    ValueId id = graph_.op(experts).inputs[0];
    while (graph_.value(id).producer.valid()) {
      const OpId maker = graph_.value(id).producer;
      const Op& op = graph_.op(maker);
      if (op.type != "Reshape" && !hands_on_weight(op)) {
        add(maker);
        break;
      }
      id = op.inputs[0];
    }
    for (const Use& use : used_behind(graph_.op(experts).outputs[0])) {
      add(use.op);
      const ValueId sum = sum_with_residual(graph_.op(use.op).outputs[0]);
      if (sum.valid()) roles_.sums.push_back(sum);
    }
  }

  // Who reads a value, or what a bias, casts and views make of it.
  std::vector<Use> used_behind(ValueId id) const {
    while (true) {
      const std::vector<Use> uses = forward_uses(id);
      if (uses.size() != 1) return uses;
      const Op& op = graph_.op(uses[0].op);
      const bool has_bias =
          op.type == "Add" && std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) {
            return weight_behind(input).valid();
          });
      if (!has_bias && op.type != "Reshape" && !hands_on_weight(op)) return uses;
      id = op.outputs[0];
    }
  }

  std::vector<Use> forward_uses(ValueId id) const {
    std::vector<Use> uses;
    for (const Use& use : readers_[id.index()].uses) {
      if (graph_.op(use.op).phase == Phase::kForward) uses.push_back(use);
    }
    return uses;
  }

  // The sum that a product is one of the two addends of, behind casts, views and the sum with a
  // bias; invalid: it is read by something else.
  ValueId sum_with_residual(ValueId id) const {
    while (true) {
      const std::vector<Use> uses = forward_uses(id);
      if (uses.size() != 1) return {};
      const Op& op = graph_.op(uses[0].op);
      const bool adds = op.type == "Add";
      if (!adds && op.type != "Cast" && op.type != "Reshape" && op.type != "Dropout" &&
          !is_identity(op)) {
        return {};
      }
      if (adds && is_residual(op, id)) return op.outputs[0];
      id = op.outputs[0];
    }
  }

  // The other addend is an activation of the same shape.
  bool is_residual(const Op& add, ValueId id) const {
    for (ValueId input : add.inputs) {
      if (!input.valid() || input == id) continue;
      return is_activation(input) && graph_.value(input).shape == graph_.value(id).shape;
    }
    return false;
  }

  // Also one that another chunk hands on, and data.
  bool is_activation(ValueId id) const {
    const Value& value = graph_.value(id);
    if (!value.producer.valid()) return value.kind == ValueKind::kInput && !is_stored(id);
    const ValueId weight = weight_behind(id);
    return !weight.valid() || is_activation(weight);
  }

  void add_boundary(ValueId id) {
    const Value& value = graph_.value(id);
    if (!is_weight(value)) return;
    if (!is_stored(id)) {
      if (value.shape.empty()) return;
      (is_handed(value) ? roles_.handed : roles_.data).push_back(id);
      return;
    }
    if (element_count(value.shape) == 1) return;
    using Kind = TemplateStored::Kind;
    roles_.stored.push_back({id, value.accumulates     ? Kind::kAccumulator
                                 : is_read_by_pass(id) ? Kind::kRead
                                                       : Kind::kState});
    const auto dim = tensor_dim_.find(id);
    if (dim != tensor_dim_.end()) roles_.stored.back().tensor_dim = dim->second;
  }

  // An activation that another chunk of the step makes, or a gradient of one: of the same shape and
  // kind as what lies between the products.
  bool is_handed(const Value& value) const {
    const auto is_like = [&](ValueId id) {
      const Value& other = graph_.value(id);
      return other.shape == value.shape && is_floating(other.dtype) == is_floating(value.dtype);
    };
    return std::any_of(roles_.sums.begin(), roles_.sums.end(), is_like) ||
           std::any_of(roles_.gathered.begin(), roles_.gathered.end(), is_like);
  }

  bool is_read_by_pass(ValueId id) const {
    if (!next_[id.index()].valid()) return true;
    const auto& uses = readers_[id.index()].uses;
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return graph_.op(use.op).phase != Phase::kUpdate; });
  }

  // What the next value of a parameter is made of, in its update, belongs to that parameter.
  void name_owners() {
    std::map<ValueId, std::size_t> place;
    for (std::size_t i = 0; i < roles_.stored.size(); ++i) place[roles_.stored[i].value] = i;
    const std::vector<TemplateStored> all = roles_.stored;
    for (const TemplateStored& read : all) {
      if (read.kind != TemplateStored::Kind::kRead || !next_[read.value.index()].valid()) continue;
      for (ValueId found : read_by_update(next_[read.value.index()])) {
        const auto at = place.find(found);
        if (at == place.end() || found == read.value) continue;
        TemplateStored& stored = roles_.stored[at->second];
        const bool alike = graph_.value(found).shape == graph_.value(read.value).shape;
        if (stored.kind != TemplateStored::Kind::kRead && alike) stored.of = read.value;
      }
    }
  }

  // Inputs behind a value, through ops of the update only.
  std::vector<ValueId> read_by_update(ValueId id) const {
    std::vector<ValueId> found, open = {id};
    std::set<ValueId> seen = {id};
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const OpId producer = graph_.value(value).producer;
      if (!producer.valid()) found.push_back(value);
      if (!producer.valid() || graph_.op(producer).phase != Phase::kUpdate) continue;
      for (ValueId input : graph_.op(producer).inputs) {
        // Single numbers, such as the norm of all gradients, are everybody's.
        if (!input.valid() || element_count(graph_.value(input).shape) == 1) continue;
        if (seen.insert(input).second) open.push_back(input);
      }
    }
    return found;
  }

  const SearchRequest& request_;
  const Graph& graph_;
  const std::vector<Readers> readers_;
  const std::vector<int> batch_;
  const std::vector<ValueId> updated_;
  std::vector<ValueId> next_;          // of an input: its next value; invalid: none
  std::map<ValueId, int> tensor_dim_;  // of weights
  std::set<ValueId> expert_weights_;
  TemplateRoles roles_;
};

}  // namespace

TemplateRoles template_roles(const SearchRequest& request) { return Roles(request).run(); }

}  // namespace autopar
