#include "planning/pipelines/chunk_pins.hpp"

#include <map>
#include <set>

namespace autopar {

namespace {

struct Reading {
  bool forward = false, backward = false, update = false;
};

std::map<std::string, Reading> readings_of(const Graph& graph) {
  std::map<std::string, Reading> found;
  for (const Op& op : graph.ops) {
    for (const ValueId input : op.inputs) {
      if (!input.valid()) continue;
      Reading& reading = found[graph.value(input).name];
      reading.forward |= op.phase == Phase::kForward;
      reading.backward |= op.phase == Phase::kBackward;
      reading.update |= op.phase == Phase::kUpdate;
    }
  }
  return found;
}

// How ops get it that are not there.
void drop_unread(const Reading& reading, ValuePin& pin) {
  const bool is_of_forward = !pin.kept_spec.empty();
  if (is_of_forward && !reading.forward) pin.hub_spec.clear();
  if (!reading.backward) pin.backward_hub_spec.clear();
  if (!reading.update) pin.update_hub_spec.clear();
  if (reading.forward || reading.backward || reading.update) return;
  pin.hub_spec.clear();
  pin.kept_spec.clear();
}

// What a map says of two names: the same, or nothing of both.
template <class Said>
bool says_alike(const std::map<std::string, Said>& said, const std::string& a,
                const std::string& b) {
  const auto of_a = said.find(a), of_b = said.find(b);
  if (of_a == said.end() || of_b == said.end()) return of_a == of_b;
  return of_a->second == of_b->second;
}

}  // namespace

bool are_pinned_alike(const StrategyFile& step, const Graph& a, const Graph& b,
                      const std::vector<ValueId>& values) {
  const Pins& pins = step.pins;
  if (pins.ops.empty() && pins.values.empty()) return true;
  for (std::size_t o = 0; o < a.ops.size(); ++o) {
    if (!says_alike(pins.ops, a.ops[o].name, b.ops[o].name)) return false;
  }
  for (std::size_t v = 0; v < values.size(); ++v) {
    const bool is_known = values[v].valid();
    if (is_known && !says_alike(pins.values, a.values[v].name, b.value(values[v]).name)) {
      return false;
    }
  }
  return true;
}

StrategyFile pins_of_part(const StrategyFile& step, const Graph& part) {
  std::set<std::string> ops, values;
  for (const Op& op : part.ops) ops.insert(op.name);
  for (const Value& value : part.values) values.insert(value.name);
  StrategyFile file = step;
  std::erase_if(file.pins.ops, [&](const auto& pin) { return ops.count(pin.first) == 0; });
  std::erase_if(file.pins.values, [&](const auto& pin) { return values.count(pin.first) == 0; });
  std::erase_if(file.op_types, [&](const auto& type) { return ops.count(type.first) == 0; });
  if (file.pins.values.empty()) return file;
  std::map<std::string, Reading> readings = readings_of(part);
  for (const std::vector<ValueId>* ends : {&part.inputs, &part.outputs}) {
    for (const ValueId end : *ends) {
      const std::string& name = part.value(end).name;
      const auto pin = file.pins.values.find(name);
      if (pin != file.pins.values.end()) drop_unread(readings[name], pin->second);
    }
  }
  return file;
}

}  // namespace autopar
