// Which templates there are of a request.
#include <algorithm>
#include <numeric>

#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

// Sizes that tensor parallelism can have: those that divide all that it splits.
std::int64_t divisor_of_splits(const SearchRequest& request, const TemplateRoles& roles) {
  std::int64_t divisor = 0;
  bool columns = false, rows = false;
  for (const TemplateProduct& product : roles.products) {
    // What is split in columns and does not divide stays whole.
    if (product.weight_factor < 0) continue;
    columns = columns || !product.in_rows;
    rows = rows || product.in_rows;
    const Rule& rule = request.rules.rules[product.op.index()];
    const auto factor = static_cast<std::size_t>(product.weight_factor);
    if (product.in_rows) divisor = std::gcd(divisor, rule.factors[factor].size);
  }
  return columns && rows ? divisor : 1;
}

std::int64_t divisor_of_batch(const SearchRequest& request, const TemplateRoles& roles) {
  // What has one of it, as masks do, is the same for all samples.
  std::int64_t divisor = 0;
  for (const auto* values : {&roles.data, &roles.handed}) {
    for (ValueId id : *values) {
      const std::int64_t samples = request.graph.value(id).shape[0];
      if (samples != 1) divisor = std::gcd(divisor, samples);
    }
  }
  return std::max<std::int64_t>(divisor, 1);
}

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

bool trains(const TemplateRoles& roles) {
  return std::any_of(roles.stored.begin(), roles.stored.end(), [](const TemplateStored& stored) {
    return stored.kind == TemplateStored::Kind::kState;
  });
}

// Of all products with a weight that have a sequence beside the batch; 0: none.
std::int64_t divisor_of_sequence(const SearchRequest& request, const TemplateRoles& roles) {
  std::int64_t divisor = 0;
  for (const TemplateProduct& product : roles.products) {
    if (product.sequence_factor < 0) continue;
    const Rule& rule = request.rules.rules[product.op.index()];
    const auto factor = static_cast<std::size_t>(product.sequence_factor);
    divisor = std::gcd(divisor, rule.factors[factor].size);
  }
  return divisor;
}

std::int64_t divisor_of_experts(const SearchRequest& request, const TemplateRoles& roles) {
  std::int64_t divisor = 0;
  for (const TemplateExperts& product : roles.experts) {
    const Rule& rule = request.rules.rules[product.op.index()];
    divisor = std::gcd(divisor, rule.factors[static_cast<std::size_t>(product.expert_factor)].size);
  }
  return divisor;
}

}  // namespace

Status check_template(const SearchRequest& request, const TemplateRoles& roles,
                      const Template& wanted) {
  const auto check = [&](std::int64_t whole, std::int64_t parts,
                         const std::string& what) -> Status {
    if (whole % parts == 0) return Ok{};
    return usage_error("template '" + to_text(wanted) + "': " + what + " of " +
                       std::to_string(whole) + " does not divide into " + std::to_string(parts));
  };
  AUTOPAR_RETURN_IF_ERROR(
      check(divisor_of_batch(request, roles), wanted.data, "a batch, or micro-batch,"));
  const std::int64_t sequence = divisor_of_sequence(request, roles);
  const std::int64_t experts = divisor_of_experts(request, roles);
  if (wanted.context > 1 && sequence == 0) {
    return usage_error("template '" + to_text(wanted) +
                       "': the model has no sequence beside the batch, which cp could split");
  }
  if (wanted.expert > 1 && experts == 0) {
    return usage_error("template '" + to_text(wanted) +
                       "': the model has no group of experts' weights, [experts, ., .], which ep "
                       "could split");
  }
  AUTOPAR_RETURN_IF_ERROR(check(sequence, wanted.context, "a sequence"));
  return check(experts, wanted.expert, "a group of experts");
}

std::vector<std::int64_t> tensor_degrees(const SearchRequest& request, const TemplateRoles& roles) {
  const std::int64_t devices = request.cluster.device_count();
  const std::int64_t splits = divisor_of_splits(request, roles);
  std::vector<std::int64_t> found;
  for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor == 0 && splits % tensor == 0) found.push_back(tensor);
  }
  return found;
}

std::vector<Template> templates_of(const SearchRequest& request, const TemplateRoles& roles,
                                   std::int64_t tensor) {
  const std::int64_t data = request.cluster.device_count() / tensor;
  if (divisor_of_batch(request, roles) % data != 0 || !has_mesh(request, data)) return {};
  std::vector<Template> found;
  const std::vector<int> levels =
      request.zero ? std::vector<int>{*request.zero} : std::vector<int>{0, 1, 3};
  for (const int zero : levels) {
    const bool has_level = zero == 0 || (data > 1 && (zero == 3 || trains(roles)));
    if (!has_level && !request.zero) continue;
    for (const bool sequence : {false, true}) {
      if (!sequence || tensor > 1) found.push_back({data, tensor, zero, sequence});
    }
  }
  return found;
}

std::vector<Template> with_context(const SearchRequest& request, const TemplateRoles& roles,
                                   const Template& wanted) {
  const std::int64_t parts = request.cluster.device_count() / wanted.tensor;
  const std::int64_t batch = divisor_of_batch(request, roles);
  const std::int64_t sequence = divisor_of_sequence(request, roles);
  std::vector<Template> found;
  if (sequence == 0) return found;
  for (std::int64_t context = 2; context <= parts; context *= 2) {
    Template split = wanted;
    split.context = context;
    split.data = parts / context;
    const std::int64_t pieces = context * (wanted.sequence ? wanted.tensor : 1);
    if (parts % context != 0 || batch % split.data != 0 || sequence % pieces != 0) continue;
    found.push_back(split);
  }
  return found;
}

std::vector<Template> with_experts(const SearchRequest& request, const TemplateRoles& roles,
                                   const Template& wanted) {
  const std::int64_t most = std::gcd(divisor_of_experts(request, roles), wanted.data);
  std::vector<Template> found;
  for (std::int64_t expert = 2; expert <= most; ++expert) {
    if (most % expert != 0) continue;
    found.push_back(wanted);
    found.back().expert = expert;
  }
  return roles.experts.empty() ? std::vector<Template>{} : found;
}

}  // namespace autopar
