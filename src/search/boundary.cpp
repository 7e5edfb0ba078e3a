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

Status keep_layout(const BoundaryLayout& layout, bool batched, const char* what, const Value& value,
                   const Mesh& mesh, std::vector<Spec>& specs) {
  switch (layout.kind) {
    case BoundaryLayout::Kind::kFree:
      return Ok{};
    case BoundaryLayout::Kind::kFull:
      specs = {replicated(value.shape.size())};
      return Ok{};
    case BoundaryLayout::Kind::kDataParallel:
      specs = {batched ? data_parallel_spec(value.shape, mesh) : replicated(value.shape.size())};
      return Ok{};
    case BoundaryLayout::Kind::kGiven: {
      const auto it = layout.spec_of.find(value.name);
      if (it == layout.spec_of.end()) return Ok{};
      Status kept = keep(it->second, what, value, mesh, specs);
      if (kept || layout.file.empty()) return kept;
      return input_error(layout.file + ": " + kept.error().message);
    }
  }
  return Ok{};
}

// Whether the layout, not the search, says how this value lies.
bool is_fixed(const BoundaryLayout& layout, const Value& value) {
  if (layout.kind == BoundaryLayout::Kind::kGiven) return layout.spec_of.count(value.name) != 0;
  return layout.kind != BoundaryLayout::Kind::kFree;
}

// A pin of a value whose layout is fixed must be that layout.
Status keep_both(const std::string& text, const char* what, const BoundaryLayout& layout,
                 const Value& value, const Mesh& mesh, std::vector<Spec>& specs) {
  const std::vector<Spec> fixed = specs;
  AUTOPAR_RETURN_IF_ERROR(keep(text, what, value, mesh, specs));
  if (!is_fixed(layout, value) || specs == fixed) return Ok{};
  return input_error("pin of tensor '" + value.name + "': its " + what + " " + text +
                     " is not the layout " + to_text(fixed.front(), mesh) +
                     " that is asked for the model's inputs and outputs; leave one of them out");
}

const ValuePin* pin_of(const SearchRequest& request, const Value& value) {
  const auto it = request.pins.values.find(value.name);
  return it == request.pins.values.end() ? nullptr : &it->second;
}

Status no_partial(const std::vector<Spec>& specs, const char* what, const Value& value) {
  if (std::any_of(specs.begin(), specs.end(), [](const Spec& s) { return !s.partial.empty(); })) {
    return input_error(std::string(what) + " of tensor '" + value.name +
                       "' must not be a partial sum");
  }
  return Ok{};
}

}  // namespace

Status restrict_source(const SearchRequest& request, const Value& value, bool is_input,
                       const Mesh& mesh, std::vector<Spec>& specs) {
  if (is_input) {
    AUTOPAR_RETURN_IF_ERROR(keep_layout(request.inputs, value.kind == ValueKind::kInput,
                                        "layout of the input", value, mesh, specs));
  }
  const ValuePin* pin = pin_of(request, value);
  if (pin && !pin->spec.empty()) {
    const BoundaryLayout layout = is_input ? request.inputs : BoundaryLayout{};
    AUTOPAR_RETURN_IF_ERROR(keep_both(pin->spec, "spec", layout, value, mesh, specs));
  }
  return no_partial(specs, "spec", value);
}

Status restrict_hub(const SearchRequest& request, const Value& value, const Mesh& mesh,
                    std::vector<Spec>& specs) {
  const ValuePin* pin = pin_of(request, value);
  if (pin && !pin->hub_spec.empty()) {
    AUTOPAR_RETURN_IF_ERROR(keep(pin->hub_spec, "hub_spec", value, mesh, specs));
    if (value.kind != ValueKind::kActivation) return no_partial(specs, "hub_spec", value);
  }
  return Ok{};
}

Status restrict_output(const SearchRequest& request, const Value& value, bool only_reader,
                       const Mesh& mesh, std::vector<Spec>& specs) {
  AUTOPAR_RETURN_IF_ERROR(
      keep_layout(request.outputs, true, "layout of the output", value, mesh, specs));
  const ValuePin* pin = pin_of(request, value);
  if (pin && !pin->output_spec.empty()) {
    AUTOPAR_RETURN_IF_ERROR(
        keep_both(pin->output_spec, "output_spec", request.outputs, value, mesh, specs));
  } else if (pin && only_reader && !pin->hub_spec.empty()) {
    AUTOPAR_RETURN_IF_ERROR(
        keep_both(pin->hub_spec, "hub_spec", request.outputs, value, mesh, specs));
  }
  return no_partial(specs, "output_spec", value);
}

}  // namespace autopar
