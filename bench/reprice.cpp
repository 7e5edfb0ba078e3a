// reprice LIST: prices plans again and again, for bench/fit_steps.py. Each line of LIST is the
// files of a plan, model, cluster and strategy, with tabs between. They are read once. Then each
// line of standard input is what to price all of them with,
//
//   {"profile": {...}, "tiers": {"NAME": {"bandwidth_bytes_per_s": 1, "latency_s": 1, ...}}}
//
// a profile as in models/profiles and what else than the cluster's the tiers of that name have. It
// is answered by one line, an array with an object for each plan: seconds of the step, how long its
// streams are busy, and bytes per device of what is stored and of all else.
#include <spdlog/spdlog.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "autopar/cost.hpp"
#include "autopar/files.hpp"
#include "io/files/profile.hpp"
#include "planning/hub_ops.hpp"
#include "planning/input_pins.hpp"
#include "planning/inputs.hpp"
#include "planning/training_choice.hpp"

using namespace autopar;

namespace {

struct Plan {
  std::unique_ptr<Inputs> inputs;
  Strategy strategy;
  PlanOptions options;
};

// As `autopar apply` reads them.
Result<Plan> read_plan(const std::string& model, const std::string& cluster,
                       const std::string& strategy) {
  Plan plan;
  PlanOptions& options = plan.options;
  CommonOptions common;
  common.quiet = true;
  options.model = model;
  options.cluster = cluster;
  AUTOPAR_TRY(file, read_strategy(strategy));
  if (!file.training.empty()) {
    AUTOPAR_TRY(training, training_choice_of(file));
    options.training = std::move(training);
    options.train = true;
  }
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  AUTOPAR_RETURN_IF_ERROR(take_checkpoints(file, *inputs));
  AUTOPAR_TRY(repeated, parse_recompute_option(options.recompute, &file));
  if (repeated && *repeated != Recompute::kNone) {
    AUTOPAR_TRY(done, repeat_ops(*inputs, *repeated));
    static_cast<void>(done);
  }
  AUTOPAR_RETURN_IF_ERROR(share_in_phases(*inputs, options.cost_model));
  AUTOPAR_TRY(request, make_request(*inputs, options, common));
  AUTOPAR_RETURN_IF_ERROR(add_pins(file, *inputs, request));
  AUTOPAR_RETURN_IF_ERROR(share_pinned_hubs(file, *inputs, request));
  AUTOPAR_TRY(complete,
              complete_strategy(inputs->model.graph, inputs->rules, inputs->cluster, file));
  plan.strategy = std::move(complete);
  plan.inputs = std::move(inputs);
  return plan;
}

Status take(const std::string& line, Plan& plan) {
  Inputs& inputs = *plan.inputs;
  AUTOPAR_TRY(document, parse_json(line, "standard input"));
  AUTOPAR_TRY(asked, Json(document, "standard input", "").at("profile"));
  AUTOPAR_TRY(profile, profile_of(asked));
  inputs.cluster.profile = profile;
  const nlohmann::json tiers = nlohmann::json::parse(line).value("tiers", nlohmann::json::object());
  for (Tier& tier : inputs.cluster.tiers) {
    const nlohmann::json numbers = tiers.value(tier.name, nlohmann::json::object());
    tier.bandwidth_bytes_per_s = numbers.value("bandwidth_bytes_per_s", tier.bandwidth_bytes_per_s);
    tier.latency_s = numbers.value("latency_s", tier.latency_s);
    tier.ring_step_s = numbers.value("ring_step_s", tier.ring_step_s);
  }
  find_kernels(inputs, plan.options);
  return Ok{};
}

Result<nlohmann::json> price(Plan& plan, const std::string& line) {
  AUTOPAR_RETURN_IF_ERROR(take(line, plan));
  const Cluster& cluster = plan.inputs->cluster;
  RooflineModel model(cluster, plan.strategy.mesh);
  AUTOPAR_TRY(cost,
              evaluate(plan.inputs->model.graph, plan.inputs->rules, plan.strategy, model,
                       plan.options.updates, cluster.profile.room_in(cluster.device.memory_bytes)));
  nlohmann::json found = {{"seconds", cost.time()},
                          {"stored_bytes", cost.memory.parameters + cost.memory.constants},
                          {"other_bytes", cost.memory.activations + cost.memory.reshards}};
  if (cost.step) {
    found["compute_seconds"] = cost.step->compute;
    found["communication_seconds"] = cost.step->communication;
    found["host_seconds"] = cost.step->host;
  }
  return found;
}

int failed(const Error& error) {
  std::cerr << "reprice: error: " << error.message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: reprice LIST\n";
    return 2;
  }
  spdlog::set_level(spdlog::level::off);
  std::ifstream list(argv[1]);
  std::vector<Plan> plans;
  for (std::string line; std::getline(list, line);) {
    std::stringstream parts(line);
    std::string model, cluster, strategy;
    std::getline(parts, model, '\t');
    std::getline(parts, cluster, '\t');
    std::getline(parts, strategy, '\t');
    auto plan = read_plan(model, cluster, strategy);
    if (!plan) return failed(plan.error());
    plans.push_back(std::move(*plan));
  }
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json all = nlohmann::json::array();
    for (Plan& plan : plans) {
      auto found = price(plan, line);
      if (!found) return failed(found.error());
      all.push_back(std::move(*found));
    }
    std::cout << all.dump() << std::endl;
  }
  return 0;
}
