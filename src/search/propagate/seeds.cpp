#include "search/boundary.hpp"
#include "search/propagate/propagate.hpp"

namespace autopar {

namespace {

class Finder {
 public:
  Finder(const SearchRequest& request, const MeshProblem& problem)
      : request_(request), graph_(request.graph), problem_(problem) {
    found_.of_op.assign(graph_.ops.size(), -1);
    found_.of_source.assign(graph_.values.size(), -1);
    found_.of_made = found_.of_source;
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
    for (ValueId id : graph_.inputs) {
      if (!is_fixed_input(request_.inputs, graph_.value(id))) continue;
      add_layout(id, "input", found_.of_source);
    }
    for (ValueId id : graph_.outputs) {
      if (!is_fixed_output(request_.outputs, graph_.value(id))) continue;
      add_layout(id, "output", found_.of_output);
    }
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
    const bool has_spec = !specs.spec.empty() || !specs.device_matrix.empty();
    const bool stored = has_spec && problem_.source_node[v] >= 0;
    const bool made = has_spec && graph_.values[v].producer.valid();
    const bool output = !specs.output_spec.empty() && problem_.output_node[v] >= 0;
    const bool read = (!specs.hub_spec.empty() || !specs.kept_spec.empty()) &&
                      graph_.values[v].kind != ValueKind::kConstant;
    if (!stored && !made && !read && !output) return;
    const int seed = add({"tensor '" + graph_.values[v].name + "'",
                          {},
                          ValueId(static_cast<std::int64_t>(v)),
                          false});
    if (stored) found_.of_source[v] = seed;
    if (made) found_.of_made[v] = seed;
    if (read) found_.of_hub[v] = seed;
    if (output) found_.of_output[v] = seed;
  }

  void add_layout(ValueId id, const char* what, std::vector<int>& of_value) {
    const std::string& name = graph_.value(id).name;
    if (of_value[id.index()] >= 0) return;
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
