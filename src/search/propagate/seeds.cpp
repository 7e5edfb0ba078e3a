#include "search/propagate/propagate.hpp"

namespace autopar {

namespace {

// A layout that is asked for all inputs (or outputs), or for this one.
bool is_fixed(const BoundaryLayout& layout, const std::string& name) {
  switch (layout.kind) {
    case BoundaryLayout::Kind::kFree:
      return false;
    case BoundaryLayout::Kind::kFull:
    case BoundaryLayout::Kind::kDataParallel:
      return true;
    case BoundaryLayout::Kind::kGiven:
      return layout.spec_of.count(name) != 0;
  }
  return false;
}

class Finder {
 public:
  Finder(const SearchRequest& request, const MeshProblem& problem)
      : request_(request), graph_(request.graph), problem_(problem) {
    found_.of_op.assign(graph_.ops.size(), -1);
    found_.of_source.assign(graph_.values.size(), -1);
    found_.of_hub = found_.of_source;
    found_.of_output = found_.of_source;
  }

  Seeds find() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (request_.pins.ops.count(graph_.ops[o].name) == 0) continue;
      found_.of_op[o] =
          add({"op '" + graph_.ops[o].name + "'", OpId(static_cast<std::int64_t>(o)), {}, false});
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) add_pinned(v);
    for (ValueId id : graph_.inputs) add_layout(id, "input", request_.inputs, found_.of_source);
    for (ValueId id : graph_.outputs) add_layout(id, "output", request_.outputs, found_.of_output);
    return std::move(found_);
  }

 private:
  int add(Seeds::Seed seed) {
    found_.seeds.push_back(std::move(seed));
    return static_cast<int>(found_.seeds.size()) - 1;
  }

  void add_pinned(std::size_t v) {
    const auto pin = request_.pins.values.find(graph_.values[v].name);
    if (pin == request_.pins.values.end()) return;
    const ValuePin& specs = pin->second;
    const bool stored = !specs.spec.empty() && problem_.source_node[v] >= 0;
    const bool read = !specs.hub_spec.empty() && problem_.hub_node[v] >= 0;
    const bool output = !specs.output_spec.empty() && problem_.output_node[v] >= 0;
    if (!stored && !read && !output) return;
    const int seed = add({"tensor '" + graph_.values[v].name + "'",
                          {},
                          ValueId(static_cast<std::int64_t>(v)),
                          false});
    if (stored) found_.of_source[v] = seed;
    if (read) found_.of_hub[v] = seed;
    if (output) found_.of_output[v] = seed;
  }

  void add_layout(ValueId id, const char* what, const BoundaryLayout& layout,
                  std::vector<int>& of_value) {
    const std::string& name = graph_.value(id).name;
    if (!is_fixed(layout, name) || of_value[id.index()] >= 0) return;
    of_value[id.index()] = add({std::string(what) + " '" + name + "'", {}, id, true});
  }

  const SearchRequest& request_;
  const Graph& graph_;
  const MeshProblem& problem_;
  Seeds found_;
};

}  // namespace

Seeds seeds_of(const SearchRequest& request, const MeshProblem& problem) {
  return Finder(request, problem).find();
}

}  // namespace autopar
