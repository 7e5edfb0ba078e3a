#include <algorithm>

#include "frameworks/stored.hpp"

namespace autopar {

namespace {

std::string to_text(const Degrees& degrees) {
  std::string text = "dp=" + std::to_string(degrees.data) + " tp=" + std::to_string(degrees.tensor);
  if (degrees.context > 1) text += " cp=" + std::to_string(degrees.context);
  if (degrees.expert > 1) text += " ep=" + std::to_string(degrees.expert);
  return text;
}

void add(ParallelForm& form, bool of_ops, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) form.deviations.push_back({of_ops, text});
}

// Stages of which most have the same degrees; the others are named.
Degrees common_degrees(const std::vector<AxisRoles>& roles, ParallelForm& form) {
  Degrees best;
  std::size_t most = 0;
  for (const AxisRoles& stage : roles) {
    const auto alike = static_cast<std::size_t>(
        std::count_if(roles.begin(), roles.end(),
                      [&](const AxisRoles& other) { return other.degrees() == stage.degrees(); }));
    if (alike > most) std::tie(best, most) = std::pair(stage.degrees(), alike);
  }
  for (std::size_t s = 0; s < roles.size(); ++s) {
    if (roles[s].degrees() != best) {
      form.deviations.push_back({false, "stage " + std::to_string(s) + ": has " +
                                            to_text(roles[s].degrees()) + ", where most have " +
                                            to_text(best)});
    }
    for (const std::string& axis : roles[s].idle()) {
      form.deviations.push_back(
          {false, "stage " + std::to_string(s) +
                      ": most products do the same on all devices of the axis " + axis +
                      ", which templates use for data parallelism"});
    }
  }
  return best;
}

// Tensor parallelism is told as neighbours: its axes are the innermost.
void check_order(const SaidPlan& plan, const std::vector<AxisRoles>& roles, ParallelForm& form) {
  for (std::size_t s = 0; s < roles.size(); ++s) {
    bool behind_tensor = false;
    for (const SaidAxis& axis : plan.stages[s].mesh) {
      const AxisUse* use = roles[s].of(axis.name);
      if (use == nullptr || axis.size == 1) continue;
      const bool is_tensor = use->role == AxisRole::kTensor;
      if (behind_tensor && !is_tensor) {
        form.deviations.push_back(
            {false, "stage " + std::to_string(s) + ": the axis " + axis.name +
                        " of data parallelism lies within those of tensor parallelism, " +
                        "which templates lay innermost"});
        break;
      }
      behind_tensor |= is_tensor;
    }
  }
}

// Of a chunk whose parts repeat differently what comes first, which repeats most, counts.
void read_recompute(const SaidPlan& plan, ParallelForm& form) {
  std::map<std::string, int> votes;
  for (const std::string& recompute : plan.recompute) {
    ++votes[recompute.substr(0, recompute.find(','))];
  }
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (most == votes.end()) return;
  if (most->first == "by name") {
    form.deviations.push_back({false, "which ops it repeats in its backward pass it says by name"});
    return;
  }
  form.recompute = most->first;
  for (std::size_t c = 0; c < plan.recompute.size(); ++c) {
    if (plan.recompute[c] == form.recompute) continue;
    form.deviations.push_back(
        {false, "chunk " + std::to_string(c) + ": repeats " + plan.recompute[c] +
                    " in its backward pass, where most repeat " + form.recompute});
  }
}

void read_batch(const SaidPlan& plan, ParallelForm& form) {
  for (const std::string& name : plan.data) {
    const auto at = plan.tensors.find(name);
    if (at == plan.tensors.end() || at->second.shape.empty()) continue;
    const std::vector<std::int64_t>& shape = at->second.shape;
    if (shape.size() >= 2 && form.sequence_length == 0) form.sequence_length = shape[1];
    if (form.batch > 0) continue;
    form.batch = shape[0] * plan.micro_batches;
    if (shape[0] % form.data == 0) {
      form.micro_batch = shape[0] / form.data;
    } else {
      form.deviations.push_back(
          {false, name + ": a micro-batch of " + std::to_string(shape[0]) +
                      " samples does not divide over dp=" + std::to_string(form.data)});
    }
  }
}

std::int64_t node_devices(const SaidPlan& plan) {
  const std::vector<SaidAxis>& mesh = plan.stages.front().mesh;
  std::int64_t devices = 1;
  for (auto axis = mesh.rbegin(); axis != mesh.rend(); ++axis) {
    if (axis->tier != mesh.back().tier) break;
    devices *= axis->size;
  }
  return devices;
}

}  // namespace

ParallelForm form_of(const SaidPlan& plan) {
  ParallelForm form;
  const Layers layers = layers_of(plan);
  std::vector<AxisRoles> roles;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) roles.emplace_back(plan, s);
  const Degrees degrees = common_degrees(roles, form);
  form.data = degrees.data;
  form.tensor = degrees.tensor;
  form.context = degrees.context;
  form.expert = degrees.expert;
  form.expert_tensor = degrees.expert_tensor;
  form.schedule = plan.schedule;
  form.stages = static_cast<std::int64_t>(plan.stages.size());
  form.chunks_per_stage = static_cast<std::int64_t>(plan.stages.front().chunks.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].chunks.size() == plan.stages.front().chunks.size()) continue;
    form.deviations.push_back({false, "stage " + std::to_string(s) + ": has " +
                                          std::to_string(plan.stages[s].chunks.size()) +
                                          " chunks, where the first has " +
                                          std::to_string(form.chunks_per_stage)});
  }
  check_order(plan, roles, form);
  add(form, true, product_deviations(plan, layers, roles));
  const SequenceUse sequence = sequence_use(plan, roles);
  form.sequence = sequence.is_split;
  add(form, true, sequence.deviations);
  const StoredUse stored = stored_use(plan, roles);
  form.zero = stored.zero;
  form.state_group = stored.state_group;
  form.weight_group = stored.weight_group;
  add(form, false, stored.deviations);
  form.node_devices = node_devices(plan);
  read_recompute(plan, form);
  read_batch(plan, form);
  form.layers = static_cast<std::int64_t>(layers.count);
  form.chunks = chunk_layers(plan, layers);
  for (std::size_t c = 0; c < form.chunks.size(); ++c) {
    if (form.chunks[c].is_between) continue;
    form.deviations.push_back({false, "chunk " + std::to_string(c) + ": ends within a layer"});
  }
  return form;
}

std::string to_text(const ParallelForm& form) {
  std::string text = to_text(Degrees{form.data, form.tensor, form.context, form.expert});
  if (form.stages > 1) text += " pp=" + std::to_string(form.stages);
  if (form.chunks_per_stage > 1) text += " v=" + std::to_string(form.chunks_per_stage);
  if (form.sequence) text += " sp";
  text += " zero=" + std::to_string(form.zero);
  const std::int64_t all = form.data * form.context;
  if (form.zero > 0 && form.state_group < all) text += "/" + std::to_string(form.state_group);
  return text;
}

}  // namespace autopar
