#include "search/no_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "autopar/memory.hpp"

namespace autopar {

std::string size_text(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = bytes;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[64];
  if (unit == 0) {
    std::snprintf(text, sizeof text, "%.0f bytes", bytes);
  } else {
    std::snprintf(text, sizeof text, "%.2f %s (%.0f bytes)", value, units[unit], bytes);
  }
  return text;
}

Seconds beyond(Seconds time_limit) {
  constexpr double kPart = 0.08;    // a limit is kept to a tenth, and other things take time, too
  constexpr Seconds kLeast = 0.25;  // a baseline of some thousand ops
  return std::max(kPart * time_limit, kLeast);
}

Bytes memory_limit(const SearchRequest& request) {
  return request.memory_limit > 0 ? request.memory_limit : request.cluster.device.memory_bytes;
}

Bytes plan_limit(const SearchRequest& request) {
  const Bytes limit = memory_limit(request);
  return request.fits_surely ? request.cluster.profile.room_in(limit) : limit;
}

Result<StrategyCost> evaluate(const SearchRequest& request, const Strategy& strategy,
                              CostModel& model) {
  return evaluate(request.graph, request.rules, strategy, model, request.updates,
                  plan_limit(request));
}

namespace {

constexpr const char* kTry = ". Try ";

std::string or_fewer_pins(const SearchRequest& request) {
  const bool has_pins = !request.pins.ops.empty() || !request.pins.values.empty();
  return has_pins ? "or fewer pins" : "or a smaller batch";
}

// What else a user may try than what is last said.
std::string try_more(const SearchRequest& request, const std::string& last) {
  const bool is_step = std::any_of(request.graph.ops.begin(), request.graph.ops.end(),
                                   [](const Op& op) { return op.phase == Phase::kUpdate; });
  std::string text = kTry;
  text += "more devices, --memory with a larger size, ";
  if (is_step) text += "more --micro-batches, ";
  return text + last;
}

}  // namespace

Status check_memory(const SearchRequest& request) {
  if (!request.limit_memory) return Ok{};
  const Bytes limit = memory_limit(request);
  const std::int64_t devices = request.cluster.device_count();
  const LeastMemory least =
      least_memory(request.graph, updated_inputs(request.graph, request.updates), devices);
  const bool may_fit = least.bytes <= limit;
  if (may_fit && least.bytes <= plan_limit(request)) return Ok{};
  const auto time = static_cast<std::size_t>(least.time);
  const std::string split = " per device: with every tensor split over all " +
                            std::to_string(devices) + " devices, what is alive during op '" +
                            request.graph.ops[time].name + "' still takes " +
                            size_text(static_cast<double>(least.bytes)) + " of each";
  const std::string into = size_text(static_cast<double>(limit));
  if (!may_fit) {
    return infeasible_error("no plan fits into " + into + split +
                            try_more(request, "or a smaller batch"));
  }
  const Profile& profile = request.cluster.profile;
  const Bytes upper = profile.upper_memory(static_cast<Bytes>(least.bytes));
  return infeasible_error("no plan surely fits into " + into + split + ", and up to " +
                          size_text(static_cast<double>(upper)) + " with what profile '" +
                          profile.name + "' adds for the runtime" +
                          try_more(request, "a smaller batch, or --profile ideal"));
}

// One sentence; of reasons that equally many meshes have, that of the mesh with the fewest axes.
std::optional<Error> pins_not_kept(const std::vector<MeshTrial>& trials) {
  std::map<std::string, std::size_t> meshes_of;  // by the reason
  int most_axes = 0;
  for (const MeshTrial& trial : trials) {
    if (trial.end != TrialEnd::kPinsNotKept) return std::nullopt;
    ++meshes_of[trial.why];
    most_axes = std::max(most_axes, trial.mesh.rank());
  }
  if (meshes_of.size() == 1) return input_error(trials.front().why);
  const auto weight = [&](const MeshTrial& trial) {
    return std::pair(meshes_of[trial.why], -trial.mesh.rank());
  };
  const auto usual = std::max_element(
      trials.begin(), trials.end(),
      [&](const MeshTrial& a, const MeshTrial& b) { return weight(a) < weight(b); });
  return input_error(usual->why + " (on mesh " + to_text(usual->mesh) + "; none of the " +
                     std::to_string(trials.size()) + " meshes of up to " +
                     std::to_string(most_axes) +
                     " axes keeps all pins; --mesh fixes one, --max-axes tries more)");
}

std::optional<Error> too_large(const std::vector<MeshTrial>& trials) {
  const MeshTrial* first = nullptr;
  for (const MeshTrial& trial : trials) {
    if (trial.end == TrialEnd::kTooLarge && first == nullptr) first = &trial;
    if (trial.end != TrialEnd::kTooLarge && trial.end != TrialEnd::kPinsNotKept) {
      return std::nullopt;
    }
  }
  if (first == nullptr) return std::nullopt;
  return input_error("no mesh is small enough to be searched: on mesh " + to_text(first->mesh) +
                     " " + first->why +
                     ". Try --searcher auto, which has other searchers beside the exact one, a "
                     "mesh of fewer axes (--mesh, --max-axes), or a cluster of fewer tiers: those "
                     "of one speed can be one");
}

Error no_plan(const SearchRequest& request, const Tightest& tightest, bool interrupted) {
  const auto limit = static_cast<double>(plan_limit(request));
  if (tightest.peak == kInfinity && interrupted) {
    return infeasible_error("no plan that fits into " + size_text(limit) +
                            " per device was found before the search was stopped. Try a longer "
                            "--time-limit, --searcher rec, or more devices");
  }
  if (tightest.meshes > 0 && tightest.without_any == tightest.meshes) {
    const std::string other = request.searcher != "dp"
                                  ? "--searcher dp"
                                  : "--cost-model roofline, where another is asked for";
    return infeasible_error(
        "searcher " + request.searcher +
        " has no plan, however much memory there is: how ops may be split by it, or by cost "
        "model " +
        request.cost_model +
        ", does not go with how tensors are to lie (pins, --zero, --inputs, --outputs). Try " +
        other + ", or leave some of that out");
  }
  if (tightest.peak == kInfinity) {
    return infeasible_error("no plan fits into " + size_text(limit) +
                            " per device; no plan was found at all" +
                            try_more(request, or_fewer_pins(request)));
  }
  const bool proven = tightest.proven && !interrupted;
  std::string text = "no plan " + std::string(proven ? "fits" : "was found that fits") + " into " +
                     size_text(limit) + " per device: the smallest peak found is " +
                     size_text(tightest.peak) + " on mesh " + to_text(tightest.mesh);
  const auto time = static_cast<std::size_t>(std::max(0, tightest.time));
  if (tightest.time >= 0 && time < request.graph.ops.size()) {
    text += ", during op '" + request.graph.ops[time].name + "'";
  }
  if (interrupted) text += "; the search was stopped early";
  return infeasible_error(text + try_more(request, or_fewer_pins(request)));
}

Error fits_not_surely(const SearchRequest& request, const SearchOutcome& found) {
  const Profile& profile = request.cluster.profile;
  const Bytes bytes = found.cost.memory.total;
  return infeasible_error(
      "no plan surely fits into " + size_text(static_cast<double>(memory_limit(request))) +
      " per device: the best that may, on mesh " + to_text(found.strategy.mesh) + ", holds " +
      size_text(static_cast<double>(bytes)) + ", and up to " +
      size_text(static_cast<double>(profile.upper_memory(bytes))) + " with what profile '" +
      profile.name + "' adds for the runtime" +
      try_more(request, "a smaller batch, or --profile ideal"));
}

std::size_t advice_of(const std::string& message) {
  return std::min(message.rfind(kTry), message.size());
}

}  // namespace autopar
