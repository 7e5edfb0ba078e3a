#include "frameworks/roles.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace autopar {

namespace {

enum class Cut : std::uint8_t { kNone, kBatch, kSequence, kColumns, kRows };

Cut cut_of(const SaidOp& op, const std::string& axis) {
  const auto at = op.factor_of_axis.find(axis);
  if (at == op.factor_of_axis.end()) return Cut::kNone;
  if (at->second == "n") return Cut::kColumns;
  if (at->second == "k") return Cut::kRows;
  if (at->second == "m" && op.in[0].size() >= 3) return Cut::kSequence;
  return Cut::kBatch;
}

// How tensor parallelism splits a product: what most of its axes do.
Cut tensor_cut(const SaidOp& op, const AxisRoles& roles) {
  Cut found = Cut::kNone;
  for (const auto& [axis, factor] : op.factor_of_axis) {
    const AxisUse* use = roles.of(axis);
    if (use != nullptr && use->role == AxisRole::kTensor) found = cut_of(op, axis);
  }
  return found;
}

// Whether every axis of data and context splits the product as its role says, and all axes of
// tensor parallelism the same thing.
bool keeps_roles(const SaidPlan& plan, const SaidOp& op, const AxisRoles& roles, Cut tensor) {
  for (const SaidAxis& axis : plan.stages[stage_of_chunk(plan, op.chunk)].mesh) {
    const AxisUse* use = roles.of(axis.name);
    if (use == nullptr || axis.size == 1) continue;
    const Cut wanted = use->role == AxisRole::kData      ? Cut::kBatch
                       : use->role == AxisRole::kContext ? Cut::kSequence
                                                         : tensor;
    if (cut_of(op, axis.name) != wanted) return false;
  }
  return true;
}

// The last dimension of what an op makes, where a tensor is named after it; 0: not known.
std::int64_t columns_of(const SaidPlan& plan, const SaidOp& op) {
  const auto at = plan.tensors.lower_bound(op.name);
  const bool is_named = at != plan.tensors.end() && at->first.rfind(op.name, 0) == 0;
  return is_named && !at->second.shape.empty() ? at->second.shape.back() : 0;
}

// Products of one place in all layers, or of none.
struct Kind {
  std::vector<const SaidOp*> ops;
  Cut tensor = Cut::kNone;  // of most
};

class Products {
 public:
  Products(const SaidPlan& plan, const Layers& layers, const std::vector<AxisRoles>& roles)
      : plan_(plan), layers_(layers), roles_(roles), routers_(expert_counts(plan)) {
    const std::size_t end = layers.begin + layers.period * layers.count;
    kinds_.resize(layers.count > 0 ? layers.period : 0);
    for (std::size_t i = 0; i < layers.forward.size(); ++i) {
      const SaidOp& op = plan.ops[layers.forward[i]];
      if (!is_weight_product(op)) continue;
      const bool is_in_layer = layers.count > 0 && i >= layers.begin && i < end;
      if (is_in_layer) {
        kinds_[(i - layers.begin) % layers.period].ops.push_back(&op);
      } else {
        alone_.push_back(Kind{{&op}, Cut::kNone});
      }
    }
    for (auto* kinds : {&kinds_, &alone_}) {
      for (Kind& kind : *kinds) kind.tensor = most_common(kind);
    }
  }

  std::vector<std::string> deviations() {
    for (const auto* kinds : {&kinds_, &alone_}) {
      for (const Kind& kind : *kinds) add_odd_ones(kind);
    }
    if (has_tensor()) {
      for (const auto* kinds : {&kinds_, &alone_}) {
        for (const Kind& kind : *kinds) add_whole(kind);
      }
      add_order();
    }
    return std::move(found_);
  }

 private:
  const AxisRoles& roles_of(const SaidOp& op) const {
    return roles_[stage_of_chunk(plan_, op.chunk)];
  }
  bool has_tensor() const {
    return std::any_of(roles_.begin(), roles_.end(),
                       [](const AxisRoles& roles) { return roles.degrees().tensor > 1; });
  }

  Cut most_common(const Kind& kind) const {
    std::array<int, 5> votes{};
    for (const SaidOp* op : kind.ops) {
      ++votes[static_cast<std::size_t>(tensor_cut(*op, roles_of(*op)))];
    }
    return static_cast<Cut>(std::max_element(votes.begin(), votes.end()) - votes.begin());
  }

  bool keeps(const SaidOp& op, Cut tensor) const {
    return keeps_roles(plan_, op, roles_of(op), tensor);
  }

  void add_odd_ones(const Kind& kind) {
    std::vector<std::string> odd;
    const SaidOp* like = nullptr;
    for (const SaidOp* op : kind.ops) {
      if (keeps(*op, kind.tensor)) {
        like = op;
      } else {
        odd.push_back(op->name + " " + split_counts_text(op->in));
      }
    }
    if (odd.empty()) return;
    if (like == nullptr) {
      found_.push_back(odd.front() + likes_of(kind) +
                       ": not split as the roles of the mesh's axes have it");
    } else {
      found_.push_back(listed_names(odd) + ": not split as its like, " + like->name + " " +
                       split_counts_text(like->in));
    }
  }

  static std::string likes_of(const Kind& kind) {
    if (kind.ops.size() < 2) return "";
    return " and " + std::to_string(kind.ops.size() - 1) + " alike";
  }

  void add_whole(const Kind& kind) {
    if (kind.ops.empty() || kind.tensor != Cut::kNone || !keeps(*kind.ops.front(), kind.tensor)) {
      return;
    }
    const SaidOp& first = *kind.ops.front();
    const std::int64_t tensor = roles_of(first).degrees().tensor;
    const std::int64_t columns = columns_of(plan_, first);
    if (tensor == 1 || (columns > 0 && columns % tensor != 0) || routers_.count(columns) != 0)
      return;
    found_.push_back(first.name + likes_of(kind) +
                     ": its weight is whole on the devices of tensor parallelism");
  }

  // In a layer products by columns are followed by one by rows.
  void add_order() {
    const Kind* open = nullptr;  // by columns, with none by rows behind it yet
    for (const Kind& kind : kinds_) {
      if (kind.tensor != Cut::kColumns && kind.tensor != Cut::kRows) continue;
      const bool is_row = kind.tensor == Cut::kRows;
      if (is_row && open == nullptr) {
        found_.push_back(kind.ops.front()->name + likes_of(kind) +
                         ": split by rows, with no product by columns before it");
      }
      open = is_row ? nullptr : &kind;
    }
    if (open != nullptr) {
      found_.push_back(open->ops.front()->name + likes_of(*open) +
                       ": split by columns, with no product by rows behind it in its layer");
    }
  }

  const SaidPlan& plan_;
  const Layers& layers_;
  const std::vector<AxisRoles>& roles_;
  const std::set<std::int64_t> routers_;  // columns of routers, which are whole everywhere
  std::vector<Kind> kinds_, alone_;
  std::vector<std::string> found_;
};

}  // namespace

AxisRoles::AxisRoles(const SaidPlan& plan, std::size_t stage) {
  const std::vector<std::size_t>& chunks = plan.stages[stage].chunks;
  const auto is_here = [&](const SaidOp& op) {
    return std::find(chunks.begin(), chunks.end(), op.chunk) != chunks.end();
  };
  const bool plain_experts = has_plain_experts(plan);
  for (const SaidAxis& axis : plan.stages[stage].mesh) {
    std::array<int, 5> votes{};
    int split_experts = 0, whole_experts = 0, within_experts = 0;
    for (const SaidOp& op : plan.ops) {
      if (!op.is_forward || !is_here(op)) continue;
      if (is_weight_product(op)) ++votes[static_cast<std::size_t>(cut_of(op, axis.name))];
      const std::string experts = expert_factor(op);
      if (experts.empty() || (experts == "b" && !plain_experts)) continue;
      const auto factor = op.factor_of_axis.find(axis.name);
      const bool is_split = factor != op.factor_of_axis.end() && factor->second == experts;
      (is_split ? split_experts : whole_experts) += 1;
      within_experts +=
          factor != op.factor_of_axis.end() && (factor->second == "n" || factor->second == "k");
    }
    AxisUse use;
    use.size = axis.size;
    use.is_expert = split_experts > whole_experts;
    use.splits_experts = 2 * within_experts > split_experts + whole_experts;
    const int batch = votes[static_cast<std::size_t>(Cut::kBatch)];
    const int sequence = votes[static_cast<std::size_t>(Cut::kSequence)];
    const int tensor = votes[static_cast<std::size_t>(Cut::kColumns)] +
                       votes[static_cast<std::size_t>(Cut::kRows)];
    const int most = std::max({batch, sequence, tensor});
    use.role = most == batch    ? AxisRole::kData
               : most == tensor ? AxisRole::kTensor
                                : AxisRole::kContext;
    if (axis.size > 1 && votes[static_cast<std::size_t>(Cut::kNone)] > most) {
      idle_.push_back(axis.name);
    }
    uses_[axis.name] = use;
  }
}

const AxisUse* AxisRoles::of(const std::string& axis) const {
  const auto at = uses_.find(axis);
  return at == uses_.end() ? nullptr : &at->second;
}

Degrees AxisRoles::degrees() const {
  Degrees found;
  for (const auto& [name, use] : uses_) {
    (use.role == AxisRole::kData     ? found.data
     : use.role == AxisRole::kTensor ? found.tensor
                                     : found.context) *= use.size;
    if (use.is_expert) found.expert *= use.size;
    if (use.role == AxisRole::kTensor && use.splits_experts) found.expert_tensor *= use.size;
  }
  return found;
}

std::vector<std::string> product_deviations(const SaidPlan& plan, const Layers& layers,
                                            const std::vector<AxisRoles>& roles) {
  return Products(plan, layers, roles).deviations();
}

SequenceUse sequence_use(const SaidPlan& plan, const std::vector<AxisRoles>& roles) {
  // Sums of two activations of the form that products with weights read.
  std::map<std::size_t, int> ranks;
  for (const SaidOp& op : plan.ops) {
    if (is_weight_product(op)) ++ranks[op.in[0].size()];
  }
  SequenceUse found;
  if (ranks.empty()) return found;
  const std::size_t rank = std::max_element(ranks.begin(), ranks.end(), [](auto& a, auto& b) {
                             return a.second < b.second;
                           })->first;
  std::vector<std::string> split, whole, odd;
  const SaidOp* product = nullptr;  // the last one before
  for (const SaidOp& op : plan.ops) {
    if (!op.is_forward) continue;
    if (is_weight_product(op)) product = &op;
    const bool adds = op.type == "Add" && op.in.size() == 2 && op.in[0].size() == rank &&
                      op.in[1].size() == rank && product != nullptr;
    if (!adds) continue;
    const AxisRoles& here = roles[stage_of_chunk(plan, op.chunk)];
    const Degrees degrees = here.degrees();
    if (degrees.tensor == 1) continue;
    const std::vector<std::int64_t>& counts = op.in[0];
    // Between a product by columns and one by rows there are sums of an activation function, such
    // as GELU's, on the columns.
    const bool is_inside =
        counts.back() == degrees.tensor &&
        tensor_cut(*product, roles[stage_of_chunk(plan, product->chunk)]) == Cut::kColumns;
    if (is_inside) continue;
    const std::int64_t tokens = rank == 2 ? counts[0] : counts[rank - 2];
    const std::int64_t plain = degrees.context * (rank == 2 ? degrees.data : 1);
    const std::string name = op.name + " " + split_counts_text(op.in);
    const bool is_whole_row = counts.back() == 1;
    auto& list = is_whole_row && tokens == plain * degrees.tensor ? split
                 : is_whole_row && tokens == plain                ? whole
                                                                  : odd;
    list.push_back(name);
  }
  found.is_split = split.size() > whole.size();
  std::vector<std::string>& other = found.is_split ? whole : split;
  other.insert(other.end(), odd.begin(), odd.end());
  if (!other.empty()) {
    found.deviations.push_back(
        listed_names(other) + ": what is added to a residual lies otherwise than " +
        (found.is_split ? "split by the sequence" : "whole on the devices of tensor parallelism"));
  }
  return found;
}

std::string listed_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::size_t stage_of_chunk(const SaidPlan& plan, std::size_t chunk) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<std::size_t>& chunks = plan.stages[s].chunks;
    if (std::find(chunks.begin(), chunks.end(), chunk) != chunks.end()) return s;
  }
  return 0;
}

std::string split_counts_text(const SplitCounts& counts) {
  std::string text = "[";
  for (const auto& tensor : counts) {
    text += text.size() == 1 ? "[" : ",[";
    for (std::size_t d = 0; d < tensor.size(); ++d) {
      text += (d == 0 ? "" : ",") + std::to_string(tensor[d]);
    }
    text += "]";
  }
  return text + "]";
}

}  // namespace autopar
