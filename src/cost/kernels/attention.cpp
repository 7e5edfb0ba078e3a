// Attention: what lies around a softmax over scores, in both passes.
#include <algorithm>
#include <iterator>
#include <set>

#include "autopar/ops.hpp"
#include "cost/causal.hpp"
#include "cost/kernels/finders.hpp"

namespace autopar {
namespace {

// What is reached from a softmax on.
struct Around {
  std::size_t softmax = 0;
  std::set<std::size_t> members, products;
  std::vector<char> seen;  // per value: scores, or one number for each row of them
};

class Attention {
 public:
  explicit Attention(Grouping& all) : all_(all), graph_(all.graph), elements_(all.graph) {
    has_phases_ = end_of_forward(graph_) < graph_.ops.size();
  }

  void join() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (op(o).type != "Softmax" || !op(o).domain.empty()) continue;
      const bool is_free = all_.found.of_op[o].kind == OpKernel::Kind::kOwn;
      if (is_free && graph_.value(op(o).inputs[0]).shape.size() >= 3) accept(around(o));
    }
  }

 private:
  const Op& op(std::size_t o) const { return graph_.ops[o]; }
  std::int64_t elements_of(ValueId id) const { return element_count(graph_.value(id).shape); }

  // Ops that see as many elements as there are scores, or one for each row of them, from the
  // softmax on, forwards and backwards; products end it.
  Around around(std::size_t softmax) const {
    const Shape& scores = graph_.value(op(softmax).inputs[0]).shape;
    const std::int64_t elements = element_count(scores);
    const std::int64_t rows = elements / std::max<std::int64_t>(1, scores.back());
    Around found{softmax, {}, {}, std::vector<char>(graph_.values.size(), 0)};
    std::vector<ValueId> open = {op(softmax).inputs[0], op(softmax).outputs[0]};
    for (const ValueId id : open) found.seen[id.index()] = 1;
    const auto reach = [&](ValueId id, bool made) {
      if (!id.valid() || found.seen[id.index()]) return;
      const Value& value = graph_.value(id);
      const std::int64_t size = elements_of(id);
      // A mask may have as many elements as there are rows, and all layers read it.
      const bool fits = size == elements || (made && size == rows);
      if (value.kind != ValueKind::kActivation || !fits) return;
      if (!made && (value.dtype == DType::kBool || is_broadcast(id))) return;
      found.seen[id.index()] = 1;
      open.push_back(id);
    };
    const auto visit = [&](std::size_t o) {
      const bool passes = all_.views[o] || is_on_elements(op(o)) || is_over_rows(graph_, op(o));
      if (is_contraction(op(o))) found.products.insert(o);
      if (!passes || !found.members.insert(o).second) return;
      // Only what holds scores leads on: a vector of rows alone may be anything.
      const auto holds = [&](ValueId id) { return id.valid() && elements_of(id) == elements; };
      const bool scored = std::any_of(op(o).inputs.begin(), op(o).inputs.end(), holds) ||
                          std::any_of(op(o).outputs.begin(), op(o).outputs.end(), holds);
      if (!scored) return;
      for (const ValueId id : op(o).inputs) reach(id, false);
      for (const ValueId id : op(o).outputs) reach(id, true);
    };
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const OpId maker = graph_.value(id).producer;
      if (maker.valid()) visit(maker.index());
      for (const Use& use : all_.uses[id.index()]) visit(use.op.index());
    }
    return found;
  }

  // Made of fewer numbers, as masks and fillings are that all layers read.
  bool is_broadcast(ValueId id) const {
    while (true) {
      const OpId maker = graph_.value(id).producer;
      if (!maker.valid()) return false;
      const Op& by = graph_.op(maker);
      if (by.domain.empty() && (by.type == "Expand" || by.type == "ConstantOfShape")) return true;
      if (!all_.views[maker.index()] || !by.has_input(0)) return false;
      id = by.inputs[0];
    }
  }

  bool is_weight(ValueId id) const {
    const Value* value = &graph_.value(all_.base(id));
    while (value->producer.valid() && graph_.op(value->producer).type == "Cast") {
      value = &graph_.value(all_.base(graph_.op(value->producer).inputs[0]));
    }
    return value->kind == ValueKind::kParameter;
  }

  bool makes_scores(std::size_t o, const Around& found) const {
    return found.seen[op(o).outputs[0].index()] != 0;
  }
  bool reads_scores(std::size_t o, const Around& found) const {
    return found.seen[op(o).inputs[0].index()] || found.seen[op(o).inputs[1].index()];
  }

  // Training steps from a file do not say which ops are of the backward pass. Its products come
  // after the one that reads the scores first, and one of them makes gradients of scores.
  std::size_t last_of_forward(const Around& found) const {
    const std::size_t none = graph_.ops.size();
    const auto end = found.products.end();
    const auto mix = std::find_if(found.products.begin(), end,
                                  [&](std::size_t o) { return reads_scores(o, found); });
    if (has_phases_ || mix == end) return none;
    const auto again =
        std::count_if(std::next(mix), end, [&](std::size_t o) { return makes_scores(o, found); });
    return again == 1 ? *mix : none;
  }

  // Of attention that is made again for the backward pass: the product that reads the shares as
  // they are. It may be left out; then the first that reads them reads them transposed. 0: it is.
  std::size_t last_made_again(const Around& found) const {
    for (const std::size_t o : found.products) {
      for (const ValueId id : op(o).inputs) {
        if (!id.valid() || !found.seen[id.index()]) continue;
        const OpId maker = graph_.value(id).producer;
        const bool turned = maker.valid() && graph_.op(maker).type == "Transpose";
        return turned ? 0 : o;
      }
    }
    return 0;
  }

  void accept(const Around& found) {
    for (const std::size_t o : found.products) {
      const auto& inputs = op(o).inputs;
      // The head of a classifier is none.
      if (inputs.size() < 2 || is_weight(inputs[0]) || is_weight(inputs[1])) return;
    }
    const bool again = op(found.softmax).phase != Phase::kForward;
    const std::size_t last = again ? last_made_again(found) : last_of_forward(found);
    const auto is_backward = [&](std::size_t o) {
      return o > last || (!again && op(o).phase == Phase::kBackward);
    };
    int makes = 0, reads = 0;
    for (const std::size_t o : found.products) {
      if (!again && (is_backward(o) || op(o).phase == Phase::kUpdate)) continue;
      makes += makes_scores(o, found);
      reads += reads_scores(o, found);
    }
    // One product makes the scores, and one reads the shares; their gradients are more of both.
    if (again ? makes == 0 || reads == 0 : makes != 1 || reads != 1) return;
    join(found, is_backward);
    const bool causal = std::any_of(found.members.begin(), found.members.end(), [&](auto o) {
      const bool other = again ? op(o).phase != op(found.softmax).phase : is_backward(o);
      return !other && masks_what_comes_later(o, found);
    });
    for (const std::size_t o : found.products) {
      double& factor = all_.found.of_op[o].flops_factor;
      factor = causal ? 0.5 : 1;
      // Prices go by the phase of the op, which is not known of these.
      if (is_backward(o) && op(o).phase == Phase::kForward) {
        factor *= all_.profile.attention.forward / all_.profile.attention.backward;
      }
    }
    // What the backward pass reads of the scores is made again there.
    for (const std::size_t o : found.products) {
      if ((again && last == 0) || !is_backward(o) || !makes_scores(o, found)) continue;
      all_.found.of_op[o].flops_factor *= 2;
      break;
    }
    for (std::size_t v = 0; v < found.seen.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (found.seen[v] && !all_.read_by(id).leaves) all_.found.inside[v] = 1;
    }
    join_inputs(found);
  }

  // One kernel forwards and one backwards.
  template <class IsBackward>
  void join(const Around& found, const IsBackward& is_backward) {
    const std::size_t none = graph_.ops.size();
    std::size_t first_backward = none, first = none;
    for (const auto* ops : {&found.members, &found.products}) {
      for (const std::size_t o : *ops) {
        if (all_.views[o]) continue;
        all_.found.of_op[o].kind = OpKernel::Kind::kAttention;
        std::size_t& head = is_backward(o) ? first_backward : first;
        if (head == none) head = o;
        all_.join(head, o);
      }
    }
  }

  bool masks_what_comes_later(std::size_t o, const Around& found) {
    return std::any_of(op(o).inputs.begin(), op(o).inputs.end(), [&](ValueId id) {
      return id.valid() && found.seen[id.index()] && is_causal_mask(graph_, op(o), id, elements_);
    });
  }

  // The piece of memory in which queries, keys and values are made is there for as long as the
  // queries: that is twice their bytes beside them.
  void join_inputs(const Around& found) {
    if (!all_.profile.joins_attention_inputs) return;
    const auto end = found.products.end();
    const auto scores = std::find_if(found.products.begin(), end,
                                     [&](std::size_t o) { return makes_scores(o, found); });
    const auto mix = std::find_if(found.products.begin(), end,
                                  [&](std::size_t o) { return reads_scores(o, found); });
    if (scores == end || mix == end) return;
    const ValueId queries = all_.base(op(*scores).inputs[0]);
    const std::int64_t count = elements_of(queries);
    for (const ValueId input : {op(*scores).inputs[1], op(*mix).inputs[1]}) {
      const ValueId other = all_.base(input);
      if (other == queries || elements_of(other) != count) return;
    }
    if (graph_.value(queries).kind == ValueKind::kActivation) all_.held_in_pass(queries) = 2;
  }

  Grouping& all_;
  const Graph& graph_;
  Elements elements_;
  bool has_phases_ = false;
};

}  // namespace

void join_attention(Grouping& all) { Attention(all).join(); }

}  // namespace autopar
