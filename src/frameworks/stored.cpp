#include "frameworks/stored.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace autopar {

namespace {

// One of what is stored, and how it is split over the devices of data and context parallelism.
struct Lying {
  std::string name;
  double elements = 1;
  std::int64_t group = 1;
  std::vector<std::string> axes;   // in that group
  std::int64_t experts = 1;        // of experts: the parts that expert parallelism makes of them
  std::vector<std::int64_t> left;  // its dimensions, but for what other axes split
};

class Stored {
 public:
  Stored(const SaidPlan& plan, const std::vector<AxisRoles>& roles) : plan_(plan), roles_(roles) {}

  StoredUse run() {
    const std::set<std::string> parameters(plan_.parameters.begin(), plan_.parameters.end());
    std::vector<Lying> weights, states, accumulators;
    for (const std::string& name : plan_.parameters) {
      const std::string copy = copy_of(name);
      add(copy.empty() ? name : copy, weights);
      if (!copy.empty()) add(name, states);
    }
    for (const std::string& name : plan_.states) {
      const std::string of = parameter_of(name, parameters);
      if (!of.empty() && copy_of(of) != name) add(name, states);
    }
    for (const std::string& name : plan_.accumulators) add(name, accumulators);
    StoredUse use;
    use.weight_group = group_of_most(weights);
    use.state_group = group_of_most(states);
    const std::int64_t accumulated = group_of_most(accumulators);
    use.zero = use.weight_group > 1                     ? 3
               : accumulated > 1 && use.state_group > 1 ? 2
               : use.state_group > 1                    ? 1
                                                        : 0;
    tell(weights, use.weight_group, "weights that passes read", use);
    tell(states, use.state_group, "optimizer states and masters", use);
    if (use.zero < 3) tell(accumulators, use.zero == 2 ? use.state_group : 1, "accumulators", use);
    tell_of_place(states, use.state_group, "optimizer states and masters", use);
    tell_of_place(weights, use.weight_group, "weights that passes read", use);
    return use;
  }

 private:
  std::string copy_of(const std::string& parameter) const {
    for (const char* prefix : {"bf16.", "fp16."}) {
      if (plan_.tensors.count(prefix + parameter) != 0) return prefix + parameter;
    }
    return "";
  }

  // "adam.m.w" is of w; the names of parameters may have dots as well.
  static std::string parameter_of(const std::string& state, const std::set<std::string>& known) {
    for (std::size_t dot = state.find('.'); dot != std::string::npos;
         dot = state.find('.', dot + 1)) {
      const std::string rest = state.substr(dot + 1);
      if (known.count(rest) != 0) return rest;
    }
    return "";
  }

  const AxisUse* use_of(const std::string& axis) const {
    for (const AxisRoles& roles : roles_) {
      if (const AxisUse* use = roles.of(axis)) return use;
    }
    return nullptr;
  }

  void add(const std::string& name, std::vector<Lying>& list) const {
    const auto at = plan_.tensors.find(name);
    if (at == plan_.tensors.end()) return;
    const SaidTensor& tensor = at->second;
    Lying lying;
    lying.name = name;
    lying.left = tensor.shape;
    for (std::size_t d = 0; d < std::min(tensor.shape.size(), tensor.dims.size()); ++d) {
      lying.elements *= static_cast<double>(tensor.shape[d]);
      for (const std::string& axis : tensor.dims[d]) {
        const AxisUse* use = use_of(axis);
        if (use == nullptr) continue;
        const bool of_experts = use->is_expert && tensor.shape.size() == 3 && d == 0;
        if (of_experts) lying.experts *= use->size;
        if (use->role == AxisRole::kTensor || of_experts) {
          lying.left[d] /= use->size;
        } else {
          lying.group *= use->size;
          lying.axes.push_back(axis);
        }
      }
    }
    if (lying.elements > 1) list.push_back(std::move(lying));
  }

  static std::int64_t group_of_most(const std::vector<Lying>& list) {
    std::map<std::int64_t, double> elements;
    const bool has_others = std::any_of(list.begin(), list.end(),
                                        [](const Lying& lying) { return lying.experts == 1; });
    for (const Lying& lying : list) {
      if (has_others && lying.experts > 1) continue;
      elements[lying.group * lying.experts] += lying.elements;
    }
    std::int64_t best = 1;
    double most = 0;
    for (const auto& [group, count] : elements) {
      if (count > most) std::tie(best, most) = std::tie(group, count);
    }
    return best;
  }

  // Of a group those who hold the same experts.
  static std::int64_t expected(const Lying& lying, std::int64_t group) {
    return std::max<std::int64_t>(1, group / lying.experts);
  }

  static bool divides(const Lying& lying, std::int64_t group) {
    return std::any_of(lying.left.begin(), lying.left.end(),
                       [&](std::int64_t size) { return size % group == 0; });
  }

  static void tell(const std::vector<Lying>& list, std::int64_t group, const std::string& what,
                   StoredUse& use) {
    std::vector<std::string> odd;
    double elements = 0, all = 0;
    for (const Lying& lying : list) {
      all += lying.elements;
      const std::int64_t own = expected(lying, group);
      if (lying.group == own || !divides(lying, own)) continue;
      odd.push_back(lying.name);
      elements += lying.elements;
    }
    if (odd.empty()) return;
    char part[32];
    std::snprintf(part, sizeof part, "%.2g %%", 100 * elements / all);
    const std::string how =
        group == 1 ? "split over devices of data parallelism, and most are whole on each"
                   : "not split over " + std::to_string(group) +
                         " devices of data parallelism, as most are";
    use.deviations.push_back(std::to_string(odd.size()) + " of " + std::to_string(list.size()) +
                             " " + what + " (" + part + " of their elements) are " + how + ": " +
                             listed_names(odd));
  }

  // A part of data parallelism is told as neighbours: the innermost axes of it.
  void tell_of_place(const std::vector<Lying>& list, std::int64_t group, const std::string& what,
                     StoredUse& use) const {
    if (group == 1) return;
    std::set<std::string> inner;
    std::int64_t size = 1;
    const std::vector<SaidAxis>& mesh = plan_.stages.front().mesh;
    for (auto axis = mesh.rbegin(); axis != mesh.rend() && size < group; ++axis) {
      const AxisUse* found = roles_.front().of(axis->name);
      if (found == nullptr || found->role == AxisRole::kTensor) continue;
      inner.insert(axis->name);
      size *= axis->size;
    }
    for (const Lying& lying : list) {
      if (lying.group != group || lying.experts > 1) continue;
      const std::set<std::string> axes(lying.axes.begin(), lying.axes.end());
      if (size == group && axes == inner) return;
      use.deviations.push_back(what + " are split over devices of data parallelism that do not " +
                               "follow each other: " + lying.name);
      return;
    }
  }

  const SaidPlan& plan_;
  const std::vector<AxisRoles>& roles_;
};

}  // namespace

StoredUse stored_use(const SaidPlan& plan, const std::vector<AxisRoles>& roles) {
  return Stored(plan, roles).run();
}

}  // namespace autopar
