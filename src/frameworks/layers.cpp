#include "frameworks/layers.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace autopar {

namespace {

bool is_product(const SaidOp& op) { return op.type == "MatMul" || op.type == "Gemm"; }

bool is_landmark(const SaidOp& op) {
  static const std::set<std::string> kTypes = {"Einsum",
                                               "Conv",
                                               "Softmax",
                                               "Attention",
                                               "MultiHeadAttention",
                                               "GroupQueryAttention",
                                               "LinearAttention",
                                               "LayerNormalization",
                                               "RMSNormalization",
                                               "SimplifiedLayerNormalization",
                                               "SkipLayerNormalization",
                                               "SkipSimplifiedLayerNormalization",
                                               "ReduceMean"};
  return op.is_forward && (is_product(op) || kTypes.count(op.type) != 0);
}

bool are_alike(const SaidOp& a, const SaidOp& b) {
  const auto same_ranks = [](const SplitCounts& x, const SplitCounts& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& s, const auto& t) { return s.size() == t.size(); });
  };
  return a.type == b.type && same_ranks(a.in, b.in) && same_ranks(a.out, b.out);
}

// The longest run of ops each of which has one like it `period` behind it.
struct Repeats {
  std::size_t begin = 0, length = 0;
};
Repeats longest_run(const SaidPlan& plan, const std::vector<std::size_t>& forward,
                    std::size_t period) {
  Repeats best;
  std::size_t begin = 0;
  for (std::size_t i = 0; i + period < forward.size(); ++i) {
    if (!are_alike(plan.ops[forward[i]], plan.ops[forward[i + period]])) begin = i + 1;
    if (i + 1 - begin > best.length) best = {begin, i + 1 - begin};
  }
  return best;
}

}  // namespace

bool is_weight_product(const SaidOp& op) {
  return op.is_forward && is_product(op) && op.in.size() >= 2 && op.in[0].size() >= 2 &&
         op.in[1].size() == 2;
}

std::string expert_factor(const SaidOp& op) {
  if (!op.is_forward || !is_product(op) || op.in.size() < 2 || op.in[1].size() != 3) return "";
  const std::size_t dims = op.in[0].size();
  return dims < 3 ? "" : dims == 3 ? "b" : "b" + std::to_string(dims - 3);
}

std::set<std::int64_t> expert_counts(const SaidPlan& plan) {
  std::set<std::int64_t> counts;
  for (const std::string& name : plan.parameters) {
    const auto at = plan.tensors.find(name);
    const bool is_group = at != plan.tensors.end() && at->second.shape.size() == 3;
    if (is_group) counts.insert(at->second.shape[0]);
  }
  return counts;
}

bool has_plain_experts(const SaidPlan& plan) {
  return !expert_counts(plan).empty() &&
         std::none_of(plan.ops.begin(), plan.ops.end(),
                      [](const SaidOp& op) { return expert_factor(op).size() > 1; });
}

Layers layers_of(const SaidPlan& plan) {
  Layers layers;
  for (std::size_t o = 0; o < plan.ops.size(); ++o) {
    if (is_landmark(plan.ops[o])) layers.forward.push_back(o);
  }
  Repeats best;
  for (std::size_t period = 2; 2 * period <= layers.forward.size(); ++period) {
    const Repeats run = longest_run(plan, layers.forward, period);
    if (run.length < period || run.length <= best.length) continue;
    best = run;
    layers.period = period;
  }
  if (layers.period == 0) return layers;
  layers.begin = best.begin;
  layers.count = (best.length + layers.period) / layers.period;
  for (std::size_t i = 0; i < layers.period; ++i) {
    layers.products += is_product(plan.ops[layers.forward[layers.begin + i]]) ? 1 : 0;
  }
  if (layers.products == 0) layers.count = 0;
  return layers;
}

// Cuts are told by the products before them: what lies between two of them belongs to no layer
// more than to another.
std::vector<ChunkLayers> chunk_layers(const SaidPlan& plan, const Layers& layers) {
  std::vector<ChunkLayers> chunks(plan.recompute.size());
  if (chunks.size() < 2 || layers.count == 0) return {};
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (std::size_t c : plan.stages[s].chunks) chunks[c].stage = static_cast<std::int64_t>(s);
  }
  std::vector<std::size_t> products(chunks.size());
  std::size_t before = 0;  // the layers
  for (std::size_t i = 0; i < layers.forward.size(); ++i) {
    const SaidOp& op = plan.ops[layers.forward[i]];
    if (!is_product(op)) continue;
    if (i < layers.begin) ++before;
    if (op.chunk < products.size()) ++products[op.chunk];
  }
  std::size_t seen = 0, taken = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    seen += products[c];
    const std::size_t in_layers = seen > before ? seen - before : 0;
    const std::size_t whole = std::min(in_layers / layers.products, layers.count);
    const bool is_last = c + 1 == chunks.size();
    chunks[c].is_between = is_last || in_layers % layers.products == 0;
    chunks[c].layers = static_cast<std::int64_t>((is_last ? layers.count : whole) - taken);
    taken = is_last ? layers.count : whole;
  }
  return chunks;
}

}  // namespace autopar
