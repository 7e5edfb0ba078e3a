#include "search/rec/wiring.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "search/boundary.hpp"

namespace autopar::rec {

namespace {

// How the value lies is pinned, or what the op that makes it leaves.
bool is_pinned(const SearchRequest& request, ValueId id) {
  if (!id.valid()) return false;
  const Value& value = request.graph.value(id);
  if (request.pins.values.count(value.name) != 0) return true;
  if (!value.producer.valid()) return false;
  const auto pin = request.pins.ops.find(request.graph.op(value.producer).name);
  return pin != request.pins.ops.end() && pin->second.out_strategy;
}

// Ops that are pinned, or that make or read something pinned.
std::vector<bool> special_ops(const SearchRequest& request) {
  const Graph& graph = request.graph;
  std::vector<bool> special(graph.ops.size(), false);
  if (request.pins.ops.empty() && request.pins.values.empty()) return special;
  const auto pinned = [&](ValueId id) { return is_pinned(request, id); };
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    special[o] = request.pins.ops.count(op.name) != 0 ||
                 std::any_of(op.inputs.begin(), op.inputs.end(), pinned) ||
                 std::any_of(op.outputs.begin(), op.outputs.end(), pinned);
  }
  return special;
}

void add_classes(const SearchRequest& request, Wiring& wiring) {
  const Graph& graph = request.graph;
  const std::vector<bool> special = special_ops(request);
  const std::vector<int> batch = batch_factors(graph, request.rules);
  std::map<std::tuple<int, int, std::string>, int> index;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    std::tuple key(request.rules.class_of_op[o], batch[o], special[o] ? op.name : std::string());
    const auto [it, is_new] = index.try_emplace(std::move(key), static_cast<int>(index.size()));
    if (is_new) {
      wiring.op_of_class.emplace_back(static_cast<std::int64_t>(o));
      wiring.batch_factor_of_class.push_back(batch[o]);
    }
    wiring.class_of_op.push_back(it->second);
  }
}

std::vector<int> add_stars(const Graph& graph, Wiring& wiring) {
  const std::vector<Readers> readers = readers_of(graph);
  std::vector<int> star_of_value(graph.values.size(), -1);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::kConstant || readers[v].count() == 0) continue;
    star_of_value[v] = static_cast<int>(wiring.stars.size());
    wiring.stars.push_back({ValueId(static_cast<std::int64_t>(v)),
                            value.kind != ValueKind::kActivation, readers[v].is_output});
  }
  return star_of_value;
}

void add_updates(const SearchRequest& request, const std::vector<int>& star_of_value,
                 Wiring& wiring) {
  const std::vector<ValueId> inputs = updated_inputs(request.graph, request.updates);
  for (std::size_t s = 0; s < wiring.stars.size(); ++s) {
    StarOf& star = wiring.stars[s];
    if (!star.is_output || star.stored) continue;
    const ValueId updated = inputs[star.value.index()];
    if (!updated.valid() || star_of_value[updated.index()] < 0) continue;
    star.update_of = star_of_value[updated.index()];
    wiring.stars[static_cast<std::size_t>(star.update_of)].updated_by = static_cast<int>(s);
  }
}

void set_kinds(const Graph& graph, Wiring& wiring) {
  std::map<std::tuple<Shape, DType, bool, bool, bool, bool>, int> kinds;
  for (StarOf& star : wiring.stars) {
    const Value& value = graph.value(star.value);
    std::tuple key(value.shape, value.dtype, star.stored, star.is_output, star.update_of >= 0,
                   star.updated_by >= 0);
    const auto made = static_cast<int>(kinds.size());
    star.kind = kinds.try_emplace(std::move(key), made).first->second;
  }
}

}  // namespace

Wiring wiring_of(const SearchRequest& request) {
  const Graph& graph = request.graph;
  Wiring wiring;
  add_classes(request, wiring);
  const std::vector<int> star_of_value = add_stars(graph, wiring);
  add_updates(request, star_of_value, wiring);
  set_kinds(graph, wiring);
  wiring.touches_of_op.resize(graph.ops.size());
  std::map<std::pair<int, std::vector<int>>, int> kinds;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    std::vector<Touch>& touches = wiring.touches_of_op[o];
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const int star = op.has_input(i) ? star_of_value[op.inputs[i].index()] : -1;
      if (star < 0) continue;
      bool again = false;
      for (Touch& touch : touches) {
        if (touch.star != star) continue;
        touch.ports.push_back(static_cast<int>(i));
        again = true;
      }
      if (!again) touches.push_back({star, -1, {static_cast<int>(i)}, -1});
    }
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      const int star = op.has_output(j) ? star_of_value[op.outputs[j].index()] : -1;
      if (star >= 0) touches.push_back({star, static_cast<int>(j), {}, -1});
    }
    for (Touch& touch : touches) {
      const auto made = static_cast<int>(kinds.size());
      touch.kind = kinds.try_emplace({touch.output, touch.ports}, made).first->second;
    }
  }
  return wiring;
}

}  // namespace autopar::rec
