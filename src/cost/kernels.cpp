// Groups of ops that run as one kernel. One class: the kinds of groups are found in one order, and
// what one has taken is not another's.
#include "autopar/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "autopar/ops.hpp"
#include "autopar/strategy.hpp"
#include "cost/causal.hpp"
#include "cost/views.hpp"

namespace autopar {
namespace {

constexpr std::size_t kPorts = 64;  // of an op that the masks of OpKernel can tell

// Sums and extrema over the last dimension, and what is made of rows by such sums.
bool is_over_rows(const Graph& graph, const Op& op) {
  static const std::set<std::string> of_axis = {"Softmax", "LogSoftmax", "LayerNormalization",
                                                "RMSNormalization"};
  static const std::set<std::string> sums = {"ReduceSum", "ReduceMean",      "ReduceMax",
                                             "ReduceMin", "ReduceSumSquare", "ReduceL2"};
  if (!op.domain.empty() || !op.has_input(0)) return false;
  const auto rank = static_cast<std::int64_t>(graph.value(op.inputs[0]).shape.size());
  const auto is_last = [&](std::int64_t axis) { return axis == -1 || axis == rank - 1; };
  if (of_axis.count(op.type) != 0) return is_last(op.int_attribute("axis", -1));
  if (sums.count(op.type) == 0) return false;
  std::vector<std::int64_t> axes = op.ints_attribute("axes");
  if (op.has_input(1)) axes = constant_ints(graph, op, 1).value_or(std::vector<std::int64_t>());
  return axes.size() == 1 && is_last(axes[0]);
}

class Grouping {
 public:
  Grouping(const Graph& graph, const Profile& profile, const std::string& updates)
      : graph_(graph),
        profile_(profile),
        updates_(updates),
        uses_(uses_of(graph)),
        elements_(graph),
        group_(graph.ops.size()),
        is_output_(graph.values.size(), 0) {
    std::iota(group_.begin(), group_.end(), 0);
    for (const ValueId id : graph.outputs) is_output_[id.index()] = 1;
    has_phases_ = std::any_of(graph.ops.begin(), graph.ops.end(),
                              [](const Op& op) { return op.phase != Phase::kForward; });
    found_.of_op.resize(graph.ops.size());
    found_.inside.assign(graph.values.size(), 0);
    const FreeTransposes transposes = free_transposes(graph);
    const CacheWrites writes = cache_writes(graph, updates);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      // It keeps ops apart that else are alike.
      if (profile.matrix.unaligned < 1) {
        found_.of_op[o].transposed_inputs = transposes.transposed_inputs[o];
      }
      // What is a view anyway costs nothing as it is: a graph without others has no kernels.
      const bool turned = transposes.free[o] || (writes.view[o] && !is_view(graph.ops[o]));
      views_.push_back(turned || is_view(graph.ops[o]) ||
                       (profile.has_strides && is_strided(graph.ops[o])));
      if (writes.in_place[o]) found_.of_op[o].inside_inputs = found_.of_op[o].inside_outputs = 1;
      any_ = any_ || turned || writes.in_place[o];
    }
  }

  Kernels run() {
    for (std::size_t o = 0; o < views_.size(); ++o) {
      if (views_[o]) found_.of_op[o].kind = OpKernel::Kind::kView;
    }
    if (profile_.fuses_attention) {
      for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
        if (graph_.ops[o].type == "Softmax" && graph_.ops[o].domain.empty()) find_attention(o);
      }
    }
    if (profile_.ideal()) return any_ ? std::move(found_) : Kernels();
    hold_gradients();
    join_functions();
    join_accumulations();
    if (profile_.fuses_elementwise || profile_.fuses_normalisation) join_chains();
    mark_launches();
    mark_inside();
    return std::move(found_);
  }

 private:
  // Parameters, or their 16-bit copies: inputs that passes read and updates give a next value.
  void hold_gradients() {
    double bytes = profile_.gradient_bytes, of_pass = 0;
    if (graph_.has_passes()) {
      bytes -= static_cast<double>(size_of(DType::kFloat32));
      of_pass = profile_.pass_gradient_bytes;  // of one pass the graph has its gradients itself
    }
    if (bytes <= 0 && of_pass <= 0) return;
    found_.held_beside.assign(graph_.values.size(), 0);
    const std::vector<ValueId> updated = updated_inputs(graph_, updates_);
    for (std::size_t v = 0; v < updated.size(); ++v) {
      const ValueId input = updated[v], made = ValueId(static_cast<std::int64_t>(v));
      if (!input.valid() || graph_.value(input).accumulates || !is_updated(made)) continue;
      const auto& uses = uses_[input.index()];
      const bool is_read = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
        return graph_.op(use.op).phase != Phase::kUpdate;
      });
      if (!is_read) continue;
      const auto size = static_cast<double>(size_of(graph_.value(input).dtype));
      found_.held_beside[input.index()] = static_cast<char>(std::ceil(std::max(0.0, bytes) / size));
      held_in_pass(input) = static_cast<char>(std::ceil(of_pass / size));
    }
  }

  char& held_in_pass(ValueId id) {
    found_.held_in_pass.resize(graph_.values.size(), 0);
    return found_.held_in_pass[id.index()];
  }

  // The piece of memory in which queries, keys and values are made is there for as long as the
  // queries: that is twice their bytes beside them.
  void join_inputs(const std::set<std::size_t>& products, const std::vector<char>& seen) {
    if (!profile_.joins_attention_inputs) return;
    const auto scores = std::find_if(products.begin(), products.end(),
                                     [&](std::size_t o) { return makes_scores(o, seen); });
    const auto mix = std::find_if(products.begin(), products.end(),
                                  [&](std::size_t o) { return reads_scores(o, seen); });
    if (scores == products.end() || mix == products.end()) return;
    const ValueId queries = base(op(*scores).inputs[0]);
    const std::int64_t count = element_count(graph_.value(queries).shape);
    for (const ValueId input : {op(*scores).inputs[1], op(*mix).inputs[1]}) {
      const ValueId other = base(input);
      if (other == queries || element_count(graph_.value(other).shape) != count) return;
    }
    if (graph_.value(queries).kind == ValueKind::kActivation) held_in_pass(queries) = 2;
  }

  bool is_updated(ValueId made) const {
    const OpId maker = graph_.value(made).producer;
    return maker.valid() && graph_.op(maker).phase == Phase::kUpdate;
  }

  const Op& op(std::size_t o) const { return graph_.ops[o]; }

  static bool is_strided(const Op& op) {
    static const std::set<std::string> strided = {"Transpose", "Expand", "Slice", "Split"};
    return op.domain.empty() && strided.count(op.type) != 0;
  }

  int root(int o) {
    while (group_[static_cast<std::size_t>(o)] != o) {
      int& above = group_[static_cast<std::size_t>(o)];
      above = group_[static_cast<std::size_t>(above)];
      o = above;
    }
    return o;
  }
  // The earlier op stands for both.
  void join(std::size_t a, std::size_t b) {
    const int x = root(static_cast<int>(a)), y = root(static_cast<int>(b));
    group_[static_cast<std::size_t>(std::max(x, y))] = std::min(x, y);
  }

  // What a value is a view of.
  ValueId base(ValueId id) const {
    while (true) {
      const OpId maker = graph_.value(id).producer;
      if (!maker.valid() || !views_[maker.index()] || !op(maker.index()).has_input(0)) return id;
      id = op(maker.index()).inputs[0];
    }
  }

  bool is_weight(ValueId id) const {
    const Value* value = &graph_.value(base(id));
    while (value->producer.valid() && op(value->producer.index()).type == "Cast") {
      value = &graph_.value(base(op(value->producer.index()).inputs[0]));
    }
    return value->kind == ValueKind::kParameter;
  }

  // Made of fewer numbers, as masks and fillings are that all layers read.
  bool is_broadcast(ValueId id) const {
    while (true) {
      const OpId maker = graph_.value(id).producer;
      if (!maker.valid()) return false;
      const Op& by = op(maker.index());
      if (by.domain.empty() && (by.type == "Expand" || by.type == "ConstantOfShape")) return true;
      if (!views_[maker.index()] || !by.has_input(0)) return false;
      id = by.inputs[0];
    }
  }

  // Ops that see as many elements as there are scores, or one for each row of them, from the
  // softmax on, forwards and backwards; products end it.
  void find_attention(std::size_t softmax) {
    const Value& scores = graph_.value(op(softmax).inputs[0]);
    if (scores.shape.size() < 3 || found_.of_op[softmax].kind != OpKernel::Kind::kOwn) return;
    const std::int64_t elements = element_count(scores.shape);
    const std::int64_t rows = elements / std::max<std::int64_t>(1, scores.shape.back());
    std::vector<char> seen(graph_.values.size(), 0);
    std::vector<ValueId> open = {op(softmax).inputs[0], op(softmax).outputs[0]};
    std::set<std::size_t> members, products;
    const auto reach = [&](ValueId id, bool made) {
      if (!id.valid() || seen[id.index()]) return;
      const Value& value = graph_.value(id);
      const std::int64_t size = element_count(value.shape);
      // A mask may have as many elements as there are rows, and all layers read it.
      const bool fits = size == elements || (made && size == rows);
      if (value.kind != ValueKind::kActivation || !fits) return;
      if (!made && (value.dtype == DType::kBool || is_broadcast(id))) return;
      seen[id.index()] = 1;
      open.push_back(id);
    };
    for (const ValueId id : open) seen[id.index()] = 1;
    const auto visit = [&](std::size_t o) {
      const bool passes = views_[o] || is_on_elements(op(o)) || is_over_rows(graph_, op(o));
      if (is_contraction(op(o))) products.insert(o);
      if (!passes || !members.insert(o).second) return;
      // Only what holds scores leads on: a vector of rows alone may be anything.
      const auto holds = [&](ValueId id) {
        return id.valid() && element_count(graph_.value(id).shape) == elements;
      };
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
      for (const Use& use : uses_[id.index()]) visit(use.op.index());
    }
    accept_attention(softmax, members, products, seen);
  }

  bool makes_scores(std::size_t o, const std::vector<char>& seen) const {
    return seen[op(o).outputs[0].index()] != 0;
  }
  bool reads_scores(std::size_t o, const std::vector<char>& seen) const {
    return seen[op(o).inputs[0].index()] || seen[op(o).inputs[1].index()];
  }

  // Training steps from a file do not say which ops are of the backward pass. Its products come
  // after the one that reads the scores first, and one of them makes gradients of scores.
  std::size_t last_of_forward(const std::set<std::size_t>& products,
                              const std::vector<char>& seen) const {
    const std::size_t none = graph_.ops.size();
    const auto mix = std::find_if(products.begin(), products.end(),
                                  [&](std::size_t o) { return reads_scores(o, seen); });
    if (has_phases_ || mix == products.end()) return none;
    const auto again = std::count_if(std::next(mix), products.end(),
                                     [&](std::size_t o) { return makes_scores(o, seen); });
    return again == 1 ? *mix : none;
  }

  // Of attention that is made again for the backward pass: the product that reads the shares as
  // they are. It may be left out; then the first that reads them reads them transposed. 0: it is.
  std::size_t last_made_again(const std::set<std::size_t>& products,
                              const std::vector<char>& seen) const {
    for (const std::size_t o : products) {
      for (const ValueId id : op(o).inputs) {
        if (!id.valid() || !seen[id.index()]) continue;
        const OpId maker = graph_.value(id).producer;
        const bool turned = maker.valid() && op(maker.index()).type == "Transpose";
        return turned ? 0 : o;
      }
    }
    return 0;
  }

  void accept_attention(std::size_t softmax, const std::set<std::size_t>& members,
                        const std::set<std::size_t>& products, const std::vector<char>& seen) {
    for (const std::size_t o : products) {
      if (op(o).inputs.size() < 2 || is_weight(op(o).inputs[0]) || is_weight(op(o).inputs[1])) {
        return;  // the head of a classifier
      }
    }
    const bool again = op(softmax).phase != Phase::kForward;
    const std::size_t last =
        again ? last_made_again(products, seen) : last_of_forward(products, seen);
    const auto is_backward = [&](std::size_t o) {
      return o > last || (!again && op(o).phase == Phase::kBackward);
    };
    int makes = 0, reads = 0;
    for (const std::size_t o : products) {
      if (!again && (is_backward(o) || op(o).phase == Phase::kUpdate)) continue;
      makes += makes_scores(o, seen);
      reads += reads_scores(o, seen);
    }
    // One product makes the scores, and one reads the shares; their gradients are more of both.
    if (again ? makes == 0 || reads == 0 : makes != 1 || reads != 1) return;
    std::size_t first_backward = graph_.ops.size(), first = graph_.ops.size();
    for (const auto* ops : {&members, &products}) {
      for (const std::size_t o : *ops) {
        if (views_[o]) continue;
        found_.of_op[o].kind = OpKernel::Kind::kAttention;
        std::size_t& head = is_backward(o) ? first_backward : first;
        if (head == graph_.ops.size()) head = o;
        join(head, o);
      }
    }
    const bool causal = std::any_of(members.begin(), members.end(), [&](std::size_t o) {
      if (again ? op(o).phase != op(softmax).phase : is_backward(o)) return false;
      return std::any_of(op(o).inputs.begin(), op(o).inputs.end(), [&](ValueId id) {
        return id.valid() && seen[id.index()] && is_causal_mask(graph_, op(o), id, elements_);
      });
    });
    for (const std::size_t o : products) {
      found_.of_op[o].flops_factor = causal ? 0.5 : 1;
      // Prices go by the phase of the op, which is not known of these.
      if (is_backward(o) && op(o).phase == Phase::kForward) {
        found_.of_op[o].flops_factor *= profile_.attention_forward / profile_.attention_backward;
      }
    }
    // What the backward pass reads of the scores is made again there.
    for (const std::size_t o : products) {
      if ((again && last == 0) || !is_backward(o) || !makes_scores(o, seen)) continue;
      found_.of_op[o].flops_factor *= 2;
      break;
    }
    for (std::size_t v = 0; v < seen.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (seen[v] && !leaves(id)) found_.inside[v] = 1;
    }
    join_inputs(products, seen);
  }

  // What is a function of one tensor alone, constants aside, is one op of every runtime, however
  // an exporter writes it (Gelu, x * Sigmoid(x)). The backward pass makes again what it reads of
  // it, so that its derivative is one kernel too; also of what is repeated.
  void join_functions() {
    std::vector<ValueId> argument;  // per value: of the function, or the value itself
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      argument.emplace_back(static_cast<std::int64_t>(v));
    }
    std::vector<char> joined(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (views_[o] || !is_on_elements(op(o)) || !op(o).has_output(0)) continue;
      if (found_.of_op[o].kind != OpKernel::Kind::kOwn) continue;
      const ValueId of = argument_of(o, argument);
      const ValueId made = op(o).outputs[0];
      const bool whole = of.valid() && element_count(graph_.value(of).shape) ==
                                           element_count(graph_.value(made).shape);
      if (!whole || op(o).outputs.size() > 1) continue;
      argument[made.index()] = of;
      for (const ValueId input : op(o).inputs) {
        if (!input.valid()) continue;
        const ValueId from = base(input);
        const OpId maker = graph_.value(from).producer;
        if (!maker.valid() || from == of || op(maker.index()).phase != op(o).phase) continue;
        if (argument[from.index()] != of) continue;
        join(maker.index(), o);
        joined[maker.index()] = joined[o] = 1;
      }
      if (op(o).phase != Phase::kUpdate) make_again(o, argument);
    }
    for (std::size_t o = 0; o < joined.size(); ++o) {
      if (joined[o]) found_.of_op[o].kind = OpKernel::Kind::kElements;
    }
  }

  // The one value that an op on elements reads, seen through functions; invalid: several.
  ValueId argument_of(std::size_t o, const std::vector<ValueId>& argument) const {
    ValueId one;
    for (const ValueId input : op(o).inputs) {
      if (!input.valid()) continue;
      const ValueId from = base(input);
      const Value& value = graph_.value(from);
      if (value.kind == ValueKind::kConstant) continue;
      const bool again = found_.inside[from.index()] && value.producer.valid() &&
                         op(value.producer.index()).phase != op(o).phase;
      if (again) continue;
      const ValueId of = argument[from.index()];
      if (one.valid() && !(of == one)) return {};
      one = of;
    }
    return one;
  }

  // Of a function that goes on here: what this op reads of it is not kept for the backward pass,
  // but for its argument. Nor is what it makes in the backward pass, where fused chains read it.
  void make_again(std::size_t o, const std::vector<ValueId>& argument) {
    for (const ValueId input : op(o).inputs) {
      if (!input.valid() || argument[input.index()] == input) continue;
      const OpId maker = graph_.value(input).producer;
      if (maker.valid() && op(maker.index()).phase == op(o).phase) make_again(input, argument);
    }
    if (op(o).phase == Phase::kBackward && profile_.fuses_elementwise) {
      make_again(op(o).outputs[0], argument);
    }
  }

  void make_again(ValueId value, const std::vector<ValueId>& argument) {
    if (graph_.value(value).kind != ValueKind::kActivation) return;
    std::vector<std::size_t> read;
    bool leaves = false;
    readers(value, read, leaves);
    if (leaves) return;
    const ValueId of = argument[value.index()];
    const Phase phase = op(graph_.value(value).producer.index()).phase;
    std::vector<std::size_t> others;  // that read it and are not of the function
    const bool only = std::all_of(read.begin(), read.end(), [&](std::size_t r) {
      if (!is_on_elements(op(r))) return false;
      if (op(r).phase == phase && argument_of(r, argument) == of) return true;
      others.push_back(r);
      return op(r).phase == Phase::kBackward;
    });
    if (!only) return;
    found_.inside[value.index()] = 1;
    auto& readers_of_functions = readers_of_functions_[of];
    readers_of_functions.insert(readers_of_functions.end(), others.begin(), others.end());
  }

  // Values whose functions other kernels make again are there until the last of these runs.
  void keep_arguments() {
    for (const auto& [of, read] : readers_of_functions_) {
      const OpId maker = graph_.value(of).producer;
      const int own = maker.valid() ? group_of(maker.index()) : -1;
      OpId last;
      for (const std::size_t r : read) {
        const OpId reader(static_cast<std::int64_t>(r));
        if (group_of(r) != own && (!last.valid() || last < reader)) last = reader;
      }
      if (!last.valid()) continue;
      found_.needed_by.resize(graph_.values.size());
      found_.needed_by[of.index()] = last;
    }
  }

  // What is added to an accumulator is read in its own type: no runtime converts it in memory
  // first.
  void join_accumulations() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const auto& inputs = op(o).inputs;
      const bool accumulates = std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) {
        return id.valid() && graph_.value(id).accumulates;
      });
      if (!accumulates || op(o).type != "Add" || !op(o).domain.empty()) continue;
      for (const ValueId input : inputs) {
        const OpId maker = graph_.value(input).producer;
        if (!maker.valid() || uses_[input.index()].size() != 1) continue;
        if (op(maker.index()).type != "Cast" || op(maker.index()).phase != op(o).phase) continue;
        join(maker.index(), o);
        for (const std::size_t joined : {maker.index(), o}) {
          found_.of_op[joined].kind = OpKernel::Kind::kElements;
        }
      }
    }
  }

  void join_chains() {
    std::vector<int> depth(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const ValueId input : op(o).inputs) {
        if (!input.valid() || !graph_.value(input).producer.valid()) continue;
        const std::size_t maker = graph_.value(input).producer.index();
        const bool ends = !views_[maker] && (!is_in_chain(maker) || op(maker).phase != op(o).phase);
        depth[o] = std::max(depth[o], depth[maker] + (ends ? 1 : 0));
      }
    }
    move_to_readers(depth);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_in_chain(o)) continue;
      for (const ValueId input : op(o).inputs) {
        if (!input.valid()) continue;
        const OpId maker = graph_.value(base(input)).producer;
        if (!maker.valid() || !is_in_chain(maker.index())) continue;
        const bool alike =
            depth[maker.index()] == depth[o] && op(maker.index()).phase == op(o).phase;
        if (alike) join(maker.index(), o);
      }
    }
    std::vector<char>& has_rows = has_rows_;
    has_rows.assign(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (is_in_chain(o) && is_over_rows(graph_, op(o))) {
        has_rows[static_cast<std::size_t>(root(static_cast<int>(o)))] = 1;
      }
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_in_chain(o)) continue;
      const auto top = static_cast<std::size_t>(root(static_cast<int>(o)));
      const bool fused = op(o).phase == Phase::kUpdate ? profile_.fuses_optimizer
                         : has_rows[top]               ? profile_.fuses_normalisation
                                                       : profile_.fuses_elementwise;
      if (fused) chained_.push_back(o);
    }
    for (const std::size_t o : chained_) found_.of_op[o].kind = OpKernel::Kind::kElements;
    make_chains_again();
  }

  // What only later chains read is made where they read it, where no more is stored for that: an
  // Adam step that waits for all gradients to be finite is one kernel with what it decides on.
  void move_to_readers(std::vector<int>& depth) const {
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      if (!is_in_chain(o) || !is_on_elements(op(o)) || op(o).outputs.size() != 1) continue;
      if (found_.of_op[o].kind == OpKernel::Kind::kElements) continue;  // of a function
      std::vector<std::size_t> read;
      bool leaves = false;
      readers(op(o).outputs[0], read, leaves);
      if (leaves || read.empty()) continue;
      int first = std::numeric_limits<int>::max();
      const bool chains = std::all_of(read.begin(), read.end(), [&](std::size_t r) {
        first = std::min(first, depth[r]);
        return is_in_chain(r) && op(r).phase == op(o).phase;
      });
      if (!chains || first <= depth[o]) continue;
      // What it reads of a chain that others read as well would be stored for it.
      std::int64_t stored = 0;
      std::set<ValueId> counted;
      for (const ValueId input : op(o).inputs) {
        if (!input.valid() || !counted.insert(base(input)).second) continue;
        const Value& value = graph_.value(base(input));
        if (!value.producer.valid() || !is_in_chain(value.producer.index())) continue;
        if (op(value.producer.index()).phase != op(o).phase) continue;
        if (uses_[base(input).index()].size() > 1) stored += value.bytes();
      }
      if (stored <= graph_.value(op(o).outputs[0]).bytes()) depth[o] = first;
    }
  }

  // Of a normalisation and the like the backward pass is given what it reads and its sums over
  // rows, and of other fused chains what they read: what else its kernels read of them they make
  // again.
  void make_chains_again() {
    std::vector<char> again(graph_.values.size(), 0);
    for (const std::size_t o : chained_) {
      const int kernel = root(static_cast<int>(o));
      const bool may =
          op(o).phase == Phase::kForward && is_on_elements(op(o)) && op(o).has_output(0);
      const auto& inputs = op(o).inputs;
      const bool can = may && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
                         return !id.valid() || again[base(id).index()] || waits(base(id));
                       });
      if (!can) continue;
      const ValueId made = op(o).outputs[0];
      again[made.index()] = 1;
      std::vector<std::size_t> read;
      bool leaves = false;
      readers(made, read, leaves);
      const bool only = std::all_of(read.begin(), read.end(), [&](std::size_t r) {
        if (found_.of_op[r].kind != OpKernel::Kind::kElements) return false;
        return op(r).phase == Phase::kBackward || root(static_cast<int>(r)) == kernel;
      });
      if (only && !leaves) found_.inside[made.index()] = 1;
    }
  }

  // Whether a value is there in the backward pass: it is stored, or an op of that pass reads it.
  bool waits(ValueId id) const {
    if (!graph_.value(id).producer.valid()) return true;
    const auto& uses = uses_[id.index()];
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return graph_.op(use.op).phase == Phase::kBackward; });
  }

  bool is_in_chain(std::size_t o) const {
    if (views_[o] || found_.of_op[o].kind == OpKernel::Kind::kAttention) return false;
    return is_on_elements(op(o)) || is_over_rows(graph_, op(o));
  }

  bool is_grouped(std::size_t o) const {
    const OpKernel::Kind kind = found_.of_op[o].kind;
    return kind == OpKernel::Kind::kElements || kind == OpKernel::Kind::kAttention;
  }

  // The group that an op is in, or itself.
  int group_of(std::size_t o) {
    return is_grouped(o) ? root(static_cast<int>(o)) : static_cast<int>(o);
  }

  void mark_launches() {
    std::set<int> launched;
    bool updates = false;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      OpKernel& kernel = found_.of_op[o];
      if (kernel.kind == OpKernel::Kind::kView) {
        kernel.launches = false;
      } else if (profile_.fuses_optimizer && op(o).phase == Phase::kUpdate && is_grouped(o)) {
        kernel.launches = !std::exchange(updates, true);
      } else {
        kernel.launches = launched.insert(group_of(o)).second;
      }
    }
  }

  // Whether the value is an output, also through views.
  bool leaves(ValueId id) const {
    std::vector<std::size_t> read;
    bool leaves = false;
    readers(id, read, leaves);
    return leaves;
  }

  // All that read the value, also through views.
  void readers(ValueId id, std::vector<std::size_t>& ops, bool& leaves) const {
    leaves = leaves || is_output_[id.index()];
    for (const Use& use : uses_[id.index()]) {
      const std::size_t o = use.op.index();
      if (!views_[o]) {
        ops.push_back(o);
        continue;
      }
      for (const ValueId output : op(o).outputs) {
        if (output.valid()) readers(output, ops, leaves);
      }
    }
  }

  void mark_inside() {
    keep_arguments();
    std::vector<char> stored(graph_.values.size(), 1);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_grouped(o)) continue;
      for (std::size_t j = 0; j < op(o).outputs.size() && j < kPorts; ++j) {
        const ValueId made = op(o).outputs[j];
        if (!made.valid()) continue;
        std::vector<std::size_t> read;
        bool leaves = false;
        readers(made, read, leaves);
        const bool own = std::all_of(read.begin(), read.end(), [&](std::size_t r) {
          return is_grouped(r) && group_of(r) == group_of(o);
        });
        const bool is_needed = !found_.needed_by.empty() && found_.needed_by[made.index()].valid();
        if (!found_.inside[made.index()] && (leaves || !own || is_needed)) continue;
        stored[made.index()] = 0;
        found_.inside[made.index()] = 1;
        found_.of_op[o].inside_outputs |= std::uint64_t{1} << j;
      }
    }
    // Views of what is not stored are not, either.
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!views_[o] || !op(o).has_input(0)) continue;
      if (!stored[base(op(o).inputs[0]).index()]) {
        for (const ValueId made : op(o).outputs) {
          if (made.valid()) found_.inside[made.index()] = 1;
        }
      }
    }
    mark_reads(stored);
  }

  // A kernel reads a stored value once, and what it made itself not at all.
  void mark_reads(const std::vector<char>& stored) {
    std::set<std::pair<int, ValueId>> read;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (views_[o]) continue;
      for (std::size_t i = 0; i < op(o).inputs.size() && i < kPorts; ++i) {
        if (!op(o).has_input(i)) continue;
        const ValueId from = base(op(o).inputs[i]);
        const OpId maker = graph_.value(from).producer;
        const bool own = is_grouped(o) && maker.valid() && is_grouped(maker.index()) &&
                         group_of(maker.index()) == group_of(o);
        const bool again = is_grouped(o) && !read.insert({group_of(o), from}).second;
        const bool nowhere = !stored[from.index()];
        if (own || again || nowhere) found_.of_op[o].inside_inputs |= std::uint64_t{1} << i;
      }
    }
  }

  const Graph& graph_;
  const Profile& profile_;
  const std::string& updates_;
  std::vector<std::vector<Use>> uses_;
  Elements elements_;
  std::vector<int> group_;  // per op one of its kernel; the first stands for itself
  std::vector<char> is_output_, views_;
  std::vector<std::size_t> chained_;
  // Per argument of functions the ops that read one of them and are of none.
  std::map<ValueId, std::vector<std::size_t>> readers_of_functions_;
  std::vector<char> has_rows_;  // per first op of a chain: it has sums over rows
  bool has_phases_ = false;
  bool any_ = false;  // of the ops is no kernel of its own, also under ideal prices
  Kernels found_;
};

}  // namespace

Kernels group_kernels(const Graph& graph, const Profile& profile, const std::string& updates) {
  return Grouping(graph, profile, updates).run();
}

}  // namespace autopar
