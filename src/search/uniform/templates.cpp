#include <algorithm>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

std::int64_t replicas(const Template& wanted) { return wanted.data * wanted.context; }
std::int64_t group_of(const Template& wanted) {
  return wanted.group == 0 ? replicas(wanted) : wanted.group;
}

// Of one template, on its mesh: data parallelism, of whose inner axes experts are split over some,
// then context parallelism, then tensor parallelism.
class TemplatePins {
 public:
  TemplatePins(const SearchRequest& request, const TemplateRoles& roles, const Template& wanted,
               SearchRequest& asked)
      : request_(request), roles_(roles), wanted_(wanted), asked_(asked), mesh_(*asked.mesh) {
    const std::int64_t outside_experts = wanted.data / wanted.expert;
    const std::int64_t outside_group = replicas(wanted) / group_of(wanted);
    TemplateAxes axes = axes_of(mesh_, wanted);
    data_ = std::move(axes.data);
    context_ = std::move(axes.context);
    tensor_ = std::move(axes.tensor);
    std::int64_t taken = 1;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const std::int64_t size = mesh_.axes[static_cast<std::size_t>(axis)].size;
      const bool is_data = taken < wanted.data;
      const bool is_replica = taken < replicas(wanted);
      if (size > 1 && is_data)
        (taken >= outside_experts ? experts_ : beside_experts_).push_back(axis);
      if (size > 1 && is_replica && taken >= outside_group) shard_.push_back(axis);
      taken *= size;
    }
    for (int axis : shard_) {
      const bool is_of_experts =
          std::find(experts_.begin(), experts_.end(), axis) != experts_.end();
      if (!is_of_experts) shard_of_experts_.push_back(axis);
    }
  }

  // Whether the mesh has axes for each kind of parallelism, and for what is split over a group.
  bool has_axes() const {
    return axes_size(mesh_, data_) == wanted_.data &&
           axes_size(mesh_, context_) == wanted_.context &&
           axes_size(mesh_, shard_) == group_of(wanted_) &&
           axes_size(mesh_, experts_) == wanted_.expert;
  }

  void add() {
    for (const TemplateProduct& product : roles_.products) add_product(product);
    if (wanted_.expert > 1) add_experts();
    for (ValueId id : roles_.data) add_value(id, along_batch(id, false));
    for (ValueId id : roles_.handed) add_value(id, along_batch(id, wanted_.sequence));
    if (!tensor_.empty() || !context_.empty()) {
      for (const auto* values : {&roles_.gathered, &roles_.sums}) {
        for (ValueId id : *values) add_value(id, along_batch(id, wanted_.sequence));
      }
    }
    if (request_.stored_rules.empty()) add_rules();
  }

 private:
  // What is set is kept out of the assignment where it does not divide.
  void set(OpPin& pin, const Rule& rule, const AxisList& axes, int factor) const {
    if (factor < 0) return;
    const Factor& split = rule.factors[static_cast<std::size_t>(factor)];
    if (split.size % axes_size(mesh_, axes) != 0) return;
    for (int axis : axes) {
      (*pin.assignment)[mesh_.axes[static_cast<std::size_t>(axis)].name] = split.name;
    }
  }

  void add_op(OpId op, OpPin pin) {
    asked_.pins.ops.try_emplace(request_.graph.op(op).name, std::move(pin));
  }

  void add_product(const TemplateProduct& product) {
    const Rule& rule = request_.rules.rules[product.op.index()];
    OpPin pin;
    pin.assignment.emplace();
    set(pin, rule, data_, product.batch_factor);
    set(pin, rule, context_, product.sequence_factor);
    set(pin, rule, tensor_, product.weight_factor);
    add_op(product.op, std::move(pin));
  }

  // Of experts tensor parallelism splits the same as elsewhere, and context parallelism the tokens
  // of an expert.
  void add_experts() {
    for (const TemplateExperts& product : roles_.experts) {
      const Rule& rule = request_.rules.rules[product.op.index()];
      OpPin pin;
      pin.assignment.emplace();
      set(pin, rule, beside_experts_, product.batch_factor);
      set(pin, rule, experts_, product.expert_factor);
      set(pin, rule, context_, product.token_factor);
      set(pin, rule, tensor_, product.weight_factor);
      add_op(product.op, std::move(pin));
    }
    // With others, what is sent to experts is a sum over parts of the sequence: left to the search.
    if (!tensor_.empty() || !context_.empty()) return;
    for (const TemplateRoute& route : roles_.routes) {
      OpPin pin;
      pin.assignment.emplace();
      set(pin, request_.rules.rules[route.op.index()], data_, route.batch_factor);
      add_op(route.op, std::move(pin));
    }
  }

  // Dimension 0 over the axes of data; the next one, or the same where there are only two, over
  // those of tensor parallelism.
  Spec along_batch(ValueId id, bool sequence) const {
    const Shape& shape = request_.graph.value(id).shape;
    Spec spec = replicated(shape.size());
    const auto split = [&](std::size_t dim, const std::vector<int>& axes, std::int64_t parts) {
      if (shape[dim] % parts != 0) return false;
      for (int axis : axes) spec.dims[dim].push_back(axis);
      return true;
    };
    if (shape.empty()) return spec;
    const std::int64_t taken = split(0, data_, wanted_.data) ? wanted_.data : 1;
    std::int64_t left = shape.size() >= 2 ? shape[1] : 1;  // of the sequence
    const bool has_context = shape.size() >= 2 && !context_.empty();
    if (has_context && split(1, context_, wanted_.context)) left /= wanted_.context;
    if (!sequence) return spec;
    if (shape.size() >= 3 && left % wanted_.tensor == 0) split(1, tensor_, wanted_.tensor);
    if (shape.size() == 2 && !has_context && shape[0] % (taken * wanted_.tensor) == 0) {
      split(0, tensor_, wanted_.tensor);
    }
    return spec;
  }

  void add_value(ValueId id, const Spec& spec) {
    ValuePin pin;
    pin.spec = to_text(spec, mesh_);
    asked_.pins.values.try_emplace(request_.graph.value(id).name, std::move(pin));
  }

  // Tensor parallelism's part, of experts that of expert parallelism, and of that, where it is
  // split, the part of data parallelism: along the longest dimension that divides, one that is
  // whole before others.
  Spec stored_spec(ValueId id, int tensor_dim, bool is_of_experts, bool split) const {
    const Shape& shape = request_.graph.value(id).shape;
    Spec spec = replicated(shape.size());
    Shape left = shape;
    const bool has_experts = is_of_experts && shape[0] % wanted_.expert == 0;
    if (has_experts) {
      for (int axis : experts_) spec.dims[0].push_back(axis);
      left[0] /= wanted_.expert;
    }
    const AxisList& all = has_experts ? shard_of_experts_ : shard_;
    if (tensor_dim >= 0) {
      const auto dim = static_cast<std::size_t>(tensor_dim);
      if (shape[dim] % wanted_.tensor == 0) {
        for (int axis : tensor_) spec.dims[dim].push_back(axis);
        left[dim] /= wanted_.tensor;
      }
    }
    if (!split) return spec;
    // What does not divide into all parts lies over the inner ones of these axes.
    for (std::size_t outer = 0; outer < all.size(); ++outer) {
      AxisList shard;
      for (std::size_t a = outer; a < all.size(); ++a) shard.push_back(all[a]);
      const std::int64_t parts = axes_size(mesh_, shard);
      int best = -1;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (left[d] % parts != 0) continue;
        const auto before = static_cast<std::size_t>(std::max(best, 0));
        const auto rank = [&](std::size_t i) { return std::pair(spec.dims[i].empty(), left[i]); };
        if (best < 0 || rank(d) > rank(before)) best = static_cast<int>(d);
      }
      if (best < 0) continue;
      for (int axis : shard) spec.dims[static_cast<std::size_t>(best)].push_back(axis);
      return spec;
    }
    return spec;
  }

  void add_rules() {
    std::map<ValueId, int> tensor_dim;
    for (const TemplateStored& stored : roles_.stored) tensor_dim[stored.value] = stored.tensor_dim;
    for (const TemplateStored& stored : roles_.stored) {
      using Kind = TemplateStored::Kind;
      if (stored.kind == Kind::kAccumulator && wanted_.zero != 2) {
        if (stored.of.valid()) {
          asked_.stored_rules[stored.value] = {StoredRule::Kind::kLike, stored.of};
        }
        continue;
      }
      const int level = stored.kind == Kind::kRead ? 3 : stored.kind == Kind::kState ? 1 : 2;
      const bool split = wanted_.zero >= level;
      const ValueId of = stored.of.valid() ? stored.of : stored.value;
      add_value(stored.value,
                stored_spec(stored.value, tensor_dim[of], stored.is_of_experts, split));
    }
  }

  const SearchRequest& request_;
  const TemplateRoles& roles_;
  const Template& wanted_;
  SearchRequest& asked_;
  const Mesh& mesh_;
  AxisList data_, context_, tensor_;
  AxisList experts_, beside_experts_;  // of data_
  AxisList shard_;                     // of data_ and context_: what is split lies over these
  AxisList shard_of_experts_;          // without experts_
};

}  // namespace

std::string to_text(const Template& wanted) {
  const auto degree = [](const char* name, std::int64_t degree) {
    return degree == 1 ? "" : name + std::to_string(degree);
  };
  return "dp=" + std::to_string(wanted.data) + " tp=" + std::to_string(wanted.tensor) +
         degree(" cp=", wanted.context) + degree(" ep=", wanted.expert) +
         (wanted.sequence ? " sp" : "") + " zero=" + std::to_string(wanted.zero) +
         (wanted.group == 0 ? "" : "/" + std::to_string(wanted.group));
}

Result<Template> parse_template(const std::string& text) {
  static const std::regex pattern(
      "(dp|tp|cp|ep)=([1-9][0-9]{0,6})|(sp)|(zero)=([0-3])(/([1-9][0-9]{0,6}))?");
  const auto wrong = [&](const std::string& word) {
    return usage_error("template '" + text + "': '" + word +
                       "': expected words such as dp=8 tp=8 sp zero=1, dp=8 tp=4 cp=2 zero=1, dp=8 "
                       "ep=4 zero=1, or zero=1/4 where that many devices of data and context "
                       "parallelism split what is stored, each once");
  };
  Template wanted;
  std::set<std::string> seen;
  std::istringstream words(text);
  std::smatch found;
  for (std::string word; words >> word;) {
    if (!std::regex_match(word, found, pattern)) return wrong(word);
    const std::string name = found[1].str() + found[3].str() + found[4].str();
    if (!seen.insert(name).second) return wrong(word);
    if (name == "dp") wanted.data = std::stoll(found[2]);
    if (name == "tp") wanted.tensor = std::stoll(found[2]);
    if (name == "cp") wanted.context = std::stoll(found[2]);
    if (name == "ep") wanted.expert = std::stoll(found[2]);
    if (name == "sp") wanted.sequence = true;
    if (name == "zero") wanted.zero = std::stoi(found[5]);
    if (found[7].matched) wanted.group = std::stoll(found[7]);
  }
  if (seen.empty()) return wrong("");
  const auto check = [&](std::int64_t part, const std::string& of, std::int64_t whole) -> Status {
    if (whole % part == 0) return Ok{};
    return usage_error("template '" + text + "': " + std::to_string(part) + " does not divide " +
                       of + "=" + std::to_string(whole));
  };
  AUTOPAR_RETURN_IF_ERROR(check(wanted.expert, "dp", wanted.data));
  if (wanted.group > 0) {
    AUTOPAR_RETURN_IF_ERROR(
        check(wanted.group, wanted.context > 1 ? "dp*cp" : "dp", replicas(wanted)));
  }
  if (wanted.group == replicas(wanted)) wanted.group = 0;
  return wanted;
}

Result<Template> asked_template(const std::string& text, std::optional<int> zero) {
  AUTOPAR_TRY(wanted, parse_template(text));
  if (!zero) return wanted;
  const bool is_said = text.find("zero=") != std::string::npos;
  if (is_said && (wanted.zero != *zero || wanted.group > 0)) {
    return usage_error("template '" + text +
                       "' says how weights and states are stored, and so does "
                       "--zero " +
                       (*zero == 0 ? "off" : std::to_string(*zero)) + "; leave one of them out");
  }
  wanted.zero = *zero;
  return wanted;
}

namespace {

// The degrees of a template and what it splits over less of the devices, outermost first; an error
// where these do not nest.
// `even`: of the group so many split what does not divide into more parts.
Result<std::vector<std::int64_t>> mesh_sizes(const Template& wanted, std::int64_t even) {
  std::vector<std::int64_t> inner = {
      1, wanted.context, even, group_of(wanted), wanted.context * wanted.expert, replicas(wanted)};
  std::sort(inner.begin(), inner.end());
  std::vector<std::int64_t> sizes = {wanted.tensor};
  for (std::size_t i = 1; i < inner.size(); ++i) {
    if (inner[i] % inner[i - 1] != 0) {
      return input_error("template '" + to_text(wanted) + "': groups of " +
                         std::to_string(inner[i - 1]) + " and of " + std::to_string(inner[i]) +
                         " devices do not nest");
    }
    sizes.push_back(inner[i] / inner[i - 1]);
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// Into how many parts, that divide those of the group, what is stored goes best: so that a device
// has least of what the level of the template splits. The group, where next to all of it divides so
// far.
std::int64_t even_parts(const Graph& graph, const TemplateRoles& roles, const Template& wanted) {
  constexpr double kLess = 0.99;  // of the bytes; chosen: a mesh of more axes is searched longer
  const std::int64_t group = group_of(wanted);
  if (wanted.zero == 0) return group;
  std::int64_t best = group;
  double least = kInfinity;
  for (std::int64_t parts = group; parts >= 1; --parts) {
    if (group % parts != 0) continue;
    double bytes = 0;
    for (const TemplateStored& stored : roles.stored) {
      Shape left = graph.value(stored.value).shape;
      if (stored.tensor_dim >= 0) {
        std::int64_t& dim = left[static_cast<std::size_t>(stored.tensor_dim)];
        if (dim % wanted.tensor == 0) dim /= wanted.tensor;
      }
      const auto divides = [&](std::int64_t into) {
        return std::any_of(left.begin(), left.end(),
                           [&](std::int64_t dim) { return dim % into == 0; });
      };
      const std::int64_t into = divides(group) ? group : divides(parts) ? parts : 1;
      bytes += static_cast<double>(graph.value(stored.value).bytes()) / static_cast<double>(into);
    }
    if (bytes >= (best == group ? kLess : 1) * least) continue;
    least = bytes;
    best = parts;
  }
  return best;
}

// Where the cluster has such a mesh, with axes for what divides less than the group.
Result<Mesh> mesh_for(const SearchRequest& request, const TemplateRoles& roles,
                      const Template& wanted) {
  const std::int64_t group = group_of(wanted);
  const std::int64_t even = even_parts(request.graph, roles, wanted);
  if (even != group) {
    const auto finer = mesh_sizes(wanted, even);
    if (finer) {
      auto mesh = make_mesh(request.cluster, *finer);
      if (mesh) return mesh;
    }
  }
  AUTOPAR_TRY(sizes, mesh_sizes(wanted, group));
  return make_mesh(request.cluster, sizes);
}

}  // namespace

Result<SearchRequest> as_template(const SearchRequest& request, const TemplateRoles& roles,
                                  const Template& wanted) {
  SearchRequest asked = request;
  if (!asked.mesh) {
    AUTOPAR_TRY(mesh, mesh_for(request, roles, wanted));
    asked.mesh = std::move(mesh);
  }
  asked.searcher = "dp";
  TemplatePins pins(request, roles, wanted, asked);
  if (!pins.has_axes()) {
    return input_error("the mesh " + to_text(*asked.mesh) + " has no axes for " + to_text(wanted));
  }
  pins.add();
  return asked;
}

}  // namespace autopar
