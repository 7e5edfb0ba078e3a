#include "planning/pipelines/chunk_pins.hpp"

#include <map>
#include <set>

#include "planning/input_pins.hpp"

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

// A partial sum of another part is added up on its way to this one.
void drop_partial_sum(ValuePin& pin) {
  if (pin.spec.find('+') != std::string::npos) pin.spec.clear();
}

// Where the ops and values of a graph stand, by name.
std::map<std::string, std::size_t> places_of(const std::vector<Op>& ops) {
  std::map<std::string, std::size_t> places;
  for (std::size_t o = 0; o < ops.size(); ++o) places.emplace(ops[o].name, o);
  return places;
}
std::map<std::string, std::size_t> places_of(const std::vector<Value>& values) {
  std::map<std::string, std::size_t> places;
  for (std::size_t v = 0; v < values.size(); ++v) places.emplace(values[v].name, v);
  return places;
}

// Whether all that pins say of names of one graph they say of the others' names, too. `other`: by
// place, the name in the other graph; empty: it has none.
template <class Said>
bool says_of_others(const std::map<std::string, Said>& said,
                    const std::map<std::string, std::size_t>& places,
                    const std::vector<std::string>& other) {
  for (const auto& [name, pin] : said) {
    const std::string base = base_of(name);
    const auto at = places.find(places.count(name) != 0 ? name : base);
    if (at == places.end() || other[at->second].empty()) continue;
    const auto same = said.find(other[at->second] + name.substr(at->first.size()));
    if (same == said.end() || !(same->second == pin)) return false;
  }
  return true;
}

std::vector<std::string> names_of(const std::vector<Op>& ops) {
  std::vector<std::string> names;
  for (const Op& op : ops) names.push_back(op.name);
  return names;
}

}  // namespace

bool are_pinned_alike(const StrategyFile& step, const Graph& a, const Graph& b,
                      const std::vector<ValueId>& values) {
  const Pins& pins = step.pins;
  if (pins.ops.empty() && pins.values.empty()) return true;
  const bool ops = says_of_others(pins.ops, places_of(a.ops), names_of(b.ops)) &&
                   says_of_others(pins.ops, places_of(b.ops), names_of(a.ops));
  if (!ops || pins.values.empty()) return ops;
  std::vector<std::string> in_a(b.values.size()), in_b(a.values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (!values[v].valid()) continue;
    in_b[v] = b.value(values[v]).name;
    in_a[values[v].index()] = a.values[v].name;
  }
  return says_of_others(pins.values, places_of(a.values), in_b) &&
         says_of_others(pins.values, places_of(b.values), in_a);
}

StrategyFile pins_of_part(const StrategyFile& step, const Graph& part) {
  std::set<std::string> ops, values;
  for (const Op& op : part.ops) ops.insert(op.name);
  for (const Value& value : part.values) values.insert(value.name);
  const auto has = [](const std::set<std::string>& names, const std::string& name) {
    return names.count(name) != 0 || names.count(base_of(name)) != 0;
  };
  StrategyFile file = step;
  std::erase_if(file.pins.ops, [&](const auto& pin) { return !has(ops, pin.first); });
  std::erase_if(file.pins.values, [&](const auto& pin) { return !has(values, pin.first); });
  std::erase_if(file.op_types, [&](const auto& type) { return !has(ops, type.first); });
  if (file.pins.values.empty()) return file;
  std::map<std::string, Reading> readings = readings_of(part);
  for (const std::vector<ValueId>* ends : {&part.inputs, &part.outputs}) {
    for (const ValueId end : *ends) {
      const Value& value = part.value(end);
      const auto pin = file.pins.values.find(value.name);
      if (pin == file.pins.values.end()) continue;
      const bool is_told = value.producer.valid() && !value.of_micro_batch;  // by the step
      if (!is_told) drop_unread(readings[value.name], pin->second);
      if (!value.producer.valid() && value.of_micro_batch) drop_partial_sum(pin->second);
    }
  }
  return file;
}

}  // namespace autopar
