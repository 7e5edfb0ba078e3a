#include "search/boundary.hpp"

#include <algorithm>

#include "search/batch.hpp"

namespace autopar {

namespace {

Status keep(const std::string& text, const char* what, const Value& value, const Mesh& mesh,
            std::vector<Spec>& specs) {
  auto wanted = parse_spec(text, mesh);
  if (!wanted) {
    return input_error(std::string(what) + " of tensor '" + value.name +
                       "': " + wanted.error().message);
  }
  if (Status ok = verify(*wanted, value.shape, mesh); !ok) {
    return input_error(std::string(what) + " of tensor '" + value.name + "' with shape " +
                       to_text(value.shape) + ": " + ok.error().message);
  }
  specs = {*wanted};
  return Ok{};
}

Status keep_layout(const BoundaryLayout& layout, const char* what, const Value& value,
                   const Mesh& mesh, std::vector<Spec>& specs) {
  switch (layout.kind) {
    case BoundaryLayout::Kind::kFree:
      return Ok{};
    case BoundaryLayout::Kind::kFull:
      specs = {replicated(value.shape.size())};
      return Ok{};
    case BoundaryLayout::Kind::kDataParallel:
      specs = {data_parallel_spec(value.shape, mesh)};
      return Ok{};
    case BoundaryLayout::Kind::kGiven: {
      Status kept = keep(layout.spec_of.at(value.name), what, value, mesh, specs);
      if (kept || layout.file.empty()) return kept;
      return input_error(layout.file + ": " + kept.error().message);
    }
  }
  return Ok{};
}

// A pin of a value whose layout is fixed must be that layout.
Status keep_pin(const std::map<ValueId, SpecPin>& pins, ValueId id, bool is_fixed, const Mesh& mesh,
                std::vector<Spec>& specs) {
  const auto pin = pins.find(id);
  if (pin == pins.end()) return Ok{};
  if (!is_fixed) {
    specs = pin->second.specs;
    return Ok{};
  }
  if (pin->second.keeps(specs.front())) return Ok{};
  return input_error(pin->second.wish + " is not the layout " + to_text(specs.front(), mesh) +
                     " that is asked for the model's inputs and outputs; leave one of them out");
}

Status no_partial(const std::vector<Spec>& specs, const char* what, const Value& value) {
  if (value.accumulates) return Ok{};
  if (std::any_of(specs.begin(), specs.end(), [](const Spec& s) { return !s.partial.empty(); })) {
    return input_error(std::string(what) + " of tensor '" + value.name +
                       "' must not be a partial sum");
  }
  return Ok{};
}

}  // namespace

bool is_fixed_input(const BoundaryLayout& layout, const Value& value) {
  const bool of_all = layout.kind != BoundaryLayout::Kind::kGiven;
  if (of_all && value.kind == ValueKind::kParameter && !layout.parameters_too) return false;
  return is_fixed_output(layout, value);
}

bool is_fixed_output(const BoundaryLayout& layout, const Value& value) {
  switch (layout.kind) {
    case BoundaryLayout::Kind::kFree:
      return false;
    case BoundaryLayout::Kind::kFull:
    case BoundaryLayout::Kind::kDataParallel:
      return true;
    case BoundaryLayout::Kind::kGiven:
      return layout.spec_of.count(value.name) != 0;
  }
  return false;
}

Status restrict_source(const SearchRequest& request, const KeptPins& pins, ValueId id,
                       bool is_input, const Mesh& mesh, std::vector<Spec>& specs) {
  const Value& value = request.graph.value(id);
  const bool is_fixed = is_input && is_fixed_input(request.inputs, value);
  if (is_fixed) {
    AUTOPAR_RETURN_IF_ERROR(keep_layout(request.inputs, "layout of the input", value, mesh, specs));
  }
  AUTOPAR_RETURN_IF_ERROR(keep_pin(pins.stored, id, is_fixed, mesh, specs));
  return no_partial(specs, "spec", value);
}

void restrict_hub(const KeptPins& pins, ValueId id, std::vector<Spec>& specs) {
  const auto pin = pins.hub.find(id);
  if (pin != pins.hub.end()) specs = pin->second.specs;
}

Status restrict_output(const SearchRequest& request, const KeptPins& pins, ValueId id,
                       const Mesh& mesh, std::vector<Spec>& specs) {
  const Value& value = request.graph.value(id);
  const bool is_fixed = is_fixed_output(request.outputs, value);
  if (is_fixed) {
    AUTOPAR_RETURN_IF_ERROR(
        keep_layout(request.outputs, "layout of the output", value, mesh, specs));
  }
  AUTOPAR_RETURN_IF_ERROR(keep_pin(pins.output, id, is_fixed, mesh, specs));
  return no_partial(specs, "output_spec", value);
}

}  // namespace autopar
