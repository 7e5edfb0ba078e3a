#include <algorithm>
#include <map>
#include <numeric>
#include <regex>
#include <utility>

#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

// Sizes that tensor parallelism can have: those that divide all that it splits.
std::int64_t divisor_of_splits(const SearchRequest& request, const TemplateRoles& roles) {
  std::int64_t divisor = 0;
  bool columns = false, rows = false;
  for (const TemplateProduct& product : roles.products) {
    // What is split in columns and does not divide stays whole, as a router's few experts do.
    columns = columns || !product.in_rows;
    rows = rows || product.in_rows;
    const Rule& rule = request.rules.rules[product.op.index()];
    const auto factor = static_cast<std::size_t>(product.weight_factor);
    if (product.in_rows) divisor = std::gcd(divisor, rule.factors[factor].size);
  }
  return columns && rows ? divisor : 1;
}

std::int64_t divisor_of_batch(const SearchRequest& request, const TemplateRoles& roles) {
  std::int64_t divisor = 0;
  for (ValueId id : roles.data) divisor = std::gcd(divisor, request.graph.value(id).shape[0]);
  return divisor;
}

std::int64_t group_of(const Template& wanted) {
  return wanted.group == 0 ? wanted.data : wanted.group;
}

// Of one template, on its mesh: data parallelism, then tensor parallelism.
class TemplatePins {
 public:
  TemplatePins(const SearchRequest& request, const TemplateRoles& roles, const Template& wanted,
               SearchRequest& asked)
      : request_(request), roles_(roles), wanted_(wanted), asked_(asked), mesh_(*asked.mesh) {
    std::int64_t taken = 1;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const std::int64_t size = mesh_.axes[static_cast<std::size_t>(axis)].size;
      const bool is_data = taken < wanted.data;
      if (size > 1) (is_data ? data_ : tensor_).push_back(axis);
      if (size > 1 && is_data && taken >= wanted.data / group_of(wanted)) shard_.push_back(axis);
      taken *= size;
    }
  }

  // Whether the mesh has axes for the part of data parallelism over which things are split.
  bool has_group() const { return axes_size(mesh_, shard_) == group_of(wanted_); }

  void add() {
    for (const TemplateProduct& product : roles_.products) add_product(product);
    for (ValueId id : roles_.data) add_value(id, along_batch(id, false));
    if (!tensor_.empty()) {
      for (const auto* values : {&roles_.gathered, &roles_.sums}) {
        for (ValueId id : *values) add_value(id, along_batch(id, wanted_.sequence));
      }
    }
    if (request_.stored_rules.empty()) add_rules();
  }

 private:
  void add_product(const TemplateProduct& product) {
    const Rule& rule = request_.rules.rules[product.op.index()];
    OpPin pin;
    pin.assignment.emplace();
    const auto set = [&](const std::vector<int>& axes, std::int64_t parts, int factor) {
      if (factor < 0) return;
      const Factor& split = rule.factors[static_cast<std::size_t>(factor)];
      if (split.size % parts != 0) return;
      for (int axis : axes) {
        (*pin.assignment)[mesh_.axes[static_cast<std::size_t>(axis)].name] = split.name;
      }
    };
    set(data_, wanted_.data, product.batch_factor);
    set(tensor_, wanted_.tensor, product.weight_factor);
    asked_.pins.ops.try_emplace(request_.graph.op(product.op).name, std::move(pin));
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
    if (sequence && shape.size() >= 3) split(1, tensor_, wanted_.tensor);
    if (sequence && shape.size() == 2 && shape[0] % (taken * wanted_.tensor) == 0) {
      split(0, tensor_, wanted_.tensor);
    }
    return spec;
  }

  void add_value(ValueId id, const Spec& spec) {
    ValuePin pin;
    pin.spec = to_text(spec, mesh_);
    asked_.pins.values.try_emplace(request_.graph.value(id).name, std::move(pin));
  }

  // Tensor parallelism's part, and of that, where it is split, the part of data parallelism:
  // along the longest dimension that divides, one that is whole before others.
  Spec stored_spec(ValueId id, int tensor_dim, bool split) const {
    const Shape& shape = request_.graph.value(id).shape;
    Spec spec = replicated(shape.size());
    Shape left = shape;
    if (tensor_dim >= 0) {
      const auto dim = static_cast<std::size_t>(tensor_dim);
      if (shape[dim] % wanted_.tensor == 0) {
        for (int axis : tensor_) spec.dims[dim].push_back(axis);
        left[dim] /= wanted_.tensor;
      }
    }
    if (!split || shard_.empty()) return spec;
    int best = -1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (left[d] % group_of(wanted_) != 0) continue;
      const auto before = static_cast<std::size_t>(std::max(best, 0));
      const auto rank = [&](std::size_t i) { return std::pair(spec.dims[i].empty(), left[i]); };
      if (best < 0 || rank(d) > rank(before)) best = static_cast<int>(d);
    }
    if (best < 0) return spec;
    for (int axis : shard_) spec.dims[static_cast<std::size_t>(best)].push_back(axis);
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
      add_value(stored.value, stored_spec(stored.value, tensor_dim[of], split));
    }
  }

  const SearchRequest& request_;
  const TemplateRoles& roles_;
  const Template& wanted_;
  SearchRequest& asked_;
  const Mesh& mesh_;
  std::vector<int> data_, tensor_;  // axes
  AxisList shard_;                  // of data_: what is split lies over these
};

// Degrees of data parallelism that there are meshes for.
bool has_mesh(const SearchRequest& request, std::int64_t data) {
  if (!request.mesh) return true;
  std::int64_t outer = 1;
  for (const Axis& axis : request.mesh->axes) {
    if (outer == data) return true;
    outer *= axis.size;
  }
  return outer == data;
}

}  // namespace

std::string to_text(const Template& wanted) {
  return "dp=" + std::to_string(wanted.data) + " tp=" + std::to_string(wanted.tensor) +
         (wanted.sequence ? " sp" : "") + " zero=" + std::to_string(wanted.zero) +
         (wanted.group == 0 ? "" : "/" + std::to_string(wanted.group));
}

Result<Template> parse_template(const std::string& text) {
  static const std::regex pattern(
      "dp=([1-9][0-9]{0,6}) tp=([1-9][0-9]{0,6})( sp)? zero=([0-3])(/([1-9][0-9]{0,6}))?");
  std::smatch found;
  if (!std::regex_match(text, found, pattern)) {
    return usage_error("template '" + text +
                       "': expected words such as dp=8 tp=8 sp zero=1, or zero=1/4 where that many "
                       "devices of data parallelism split what is stored");
  }
  Template wanted;
  wanted.data = std::stoll(found[1]);
  wanted.tensor = std::stoll(found[2]);
  wanted.sequence = found[3].matched;
  wanted.zero = std::stoi(found[4]);
  if (found[6].matched) wanted.group = std::stoll(found[6]);
  if (wanted.group > 0 && wanted.data % wanted.group != 0) {
    return usage_error("template '" + text + "': " + std::to_string(wanted.group) +
                       " does not divide dp=" + std::to_string(wanted.data));
  }
  if (wanted.group == wanted.data) wanted.group = 0;
  return wanted;
}

std::vector<Template> templates_of(const SearchRequest& request, const TemplateRoles& roles) {
  const std::int64_t devices = request.cluster.device_count();
  const std::int64_t splits = divisor_of_splits(request, roles);
  const std::int64_t batch = divisor_of_batch(request, roles);
  const bool trains = std::any_of(
      roles.stored.begin(), roles.stored.end(),
      [](const TemplateStored& stored) { return stored.kind == TemplateStored::Kind::kState; });
  std::vector<Template> found;
  for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor != 0 || splits % tensor != 0) continue;
    const std::int64_t data = devices / tensor;
    if (batch % data != 0 || !has_mesh(request, data)) continue;
    for (const int zero : {0, 1, 3}) {
      const bool has_level = zero == 0 || (data > 1 && (zero == 3 || trains));
      if (!has_level || (zero > 0 && !request.stored_rules.empty())) continue;
      for (const bool sequence : {false, true}) {
        if (!sequence || tensor > 1) found.push_back({data, tensor, zero, sequence});
      }
    }
  }
  return found;
}

Result<SearchRequest> as_template(const SearchRequest& request, const TemplateRoles& roles,
                                  const Template& wanted) {
  SearchRequest asked = request;
  if (!asked.mesh) {
    const std::int64_t group = group_of(wanted);
    AUTOPAR_TRY(mesh, make_mesh(request.cluster, {wanted.data / group, group, wanted.tensor}));
    asked.mesh = std::move(mesh);
  }
  asked.searcher = "dp";
  TemplatePins pins(request, roles, wanted, asked);
  if (!pins.has_group()) {
    return input_error("the mesh " + to_text(*asked.mesh) + " has no axes for " + to_text(wanted));
  }
  pins.add();
  return asked;
}

}  // namespace autopar
