#include "search/uniform/uniform.hpp"

#include <algorithm>
#include <chrono>
#include <future>

#include "search/no_plan.hpp"

namespace autopar {

namespace {

// What the pins leave open matters little, and there are dozens of templates.
constexpr double kGap = 0.005;
// Where all templates of one degree of tensor parallelism take so many times the best time, more of
// it is not tried: it only sends more.
constexpr double kFar = 1.5;
constexpr const char* kFarText = "1.5 times the best";

class Uniform {
 public:
  explicit Uniform(const SearchRequest& request)
      : request_(request), roles_(template_roles(request)) {}

  Result<SearchOutcome> run() {
    AUTOPAR_TRY(templates, asked_templates());
    if (templates.empty()) {
      return infeasible_error(
          "no template of the searcher uniform is possible: the batch of the "
          "data inputs does not divide over the devices, however many of them "
          "share a part of it; --searcher dp looks at all plans");
    }
    for (auto begin = templates.begin(); begin != templates.end();) {
      const auto end = std::find_if(begin, templates.end(),
                                    [&](const Template& t) { return t.tensor != begin->tensor; });
      try_all({begin, end});
      begin = end;
    }
    std::stable_sort(tried_.begin(), tried_.end(), [](const auto& a, const auto& b) {
      return std::pair(!a.found, a.cost) < std::pair(!b.found, b.cost);
    });
    if (!best_) return infeasible_error(why_none(templates.size()));
    SearchOutcome outcome = std::move(*best_);
    outcome.lower_bound = outcome.unlimited_lower_bound = 0;
    outcome.minimised.lower_bound = outcome.minimised.unlimited_lower_bound = 0;
    for (MeshTrial& trial : outcome.trials) trial.lower_bound = trial.unlimited_lower_bound = 0;
    outcome.interrupted = outcome.interrupted || is_stopped();
    const auto fit = std::count_if(tried_.begin(), tried_.end(),
                                   [](const SearcherTrial& trial) { return trial.found; });
    outcome.picked = {name_of_best_,
                      "the fastest of " + std::to_string(fit) + " templates that fit, of " +
                          std::to_string(templates.size()),
                      std::move(tried_)};
    outcome.searcher = "uniform";
    return outcome;
  }

 private:
  Result<std::vector<Template>> asked_templates() const {
    const std::size_t colon = request_.searcher.find(':');
    if (colon == std::string::npos) return templates_of(request_, roles_);
    const std::string text = request_.searcher.substr(colon + 1);
    AUTOPAR_TRY(only, parse_template(text));
    const std::int64_t devices = request_.cluster.device_count();
    if (only.data * only.tensor != devices) {
      return usage_error("template '" + text + "' is of " +
                         std::to_string(only.data * only.tensor) + " devices, and there are " +
                         std::to_string(devices));
    }
    return std::vector<Template>{only};
  }

  // Of one degree of tensor parallelism; side by side without the memory limit, which is looked at
  // in their order.
  void try_all(const std::vector<Template>& alike) {
    if (is_hopeless_) {
      for (const Template& wanted : alike) {
        tried_.push_back({to_text(wanted), false, 0,
                          "not tried: all with tp=" + std::to_string(last_tensor_) +
                              " take more than " + kFarText});
      }
      return;
    }
    const std::size_t threads = static_cast<std::size_t>(std::max(1, request_.solve.threads));
    Seconds least = kInfinity;
    for (std::size_t begin = 0; begin < alike.size(); begin += threads) {
      std::vector<std::future<Result<SearchOutcome>>> found;
      const std::size_t end = std::min(alike.size(), begin + threads);
      for (std::size_t i = begin; i < end; ++i) {
        found.push_back(std::async(threads > 1 ? std::launch::async : std::launch::deferred,
                                   [this, &wanted = alike[i]] { return unlimited(wanted); }));
      }
      for (std::size_t i = begin; i < end; ++i) {
        auto outcome = found[i - begin].get();
        if (outcome) least = std::min(least, outcome->cost.time());
        keep(alike[i], std::move(outcome));
      }
    }
    is_hopeless_ = best_ && least > kFar * best_->cost.time();
    last_tensor_ = alike.front().tensor;
  }

  Result<SearchOutcome> unlimited(const Template& wanted) const {
    if (is_stopped()) return infeasible_error("not tried: the time was up");
    return searched(wanted, false);
  }

  void keep(const Template& wanted, Result<SearchOutcome> found) {
    SearcherTrial trial;
    trial.searcher = to_text(wanted);
    const bool is_beside =
        found && request_.limit_memory && found->cost.memory.total > plan_limit(request_);
    if (is_beside) {
      trial.memory = found->cost.memory.total;
      trial.cost = found->cost.time();
      trial.error = "does not fit: " + size_text(static_cast<double>(trial.memory));
      // With the limit it is no faster.
      if (best_ && trial.cost >= best_->cost.time()) return tried_.push_back(std::move(trial));
      found = searched(wanted, true);
    }
    if (!found) {
      if (trial.error.empty()) trial.error = found.error().message;
      return tried_.push_back(std::move(trial));
    }
    trial.found = true;
    trial.error.clear();
    trial.cost = found->cost.time();
    trial.memory = found->cost.memory.total;
    if (!best_ || trial.cost < best_->cost.time()) {
      best_ = std::move(*found);
      name_of_best_ = trial.searcher;
    }
    tried_.push_back(std::move(trial));
  }

  Result<SearchOutcome> searched(const Template& wanted, bool limited) const {
    AUTOPAR_TRY(asked, as_template(request_, roles_, wanted));
    asked.limit_memory = limited;
    asked.solve.gap = std::max(asked.solve.gap, kGap);
    asked.solve.time_limit = time_left();
    asked.solve.cutoff = kInfinity;
    asked.solve.threads = 1;
    asked.solve.progress = nullptr;
    SearchFindings findings;  // its own: no baseline is asked for in its place
    asked.findings = &findings;
    return search(asked);
  }

  Seconds time_left() const {
    const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start_;
    return std::max(1e-3, request_.solve.time_limit - used.count());
  }
  bool is_stopped() const {
    return (request_.solve.stop != nullptr && request_.solve.stop->load()) || time_left() <= 1e-3;
  }

  std::string why_none(std::size_t templates) const {
    const SearcherTrial* least = nullptr;
    for (const SearcherTrial& trial : tried_) {
      if (trial.memory > 0 && (least == nullptr || trial.memory < least->memory)) least = &trial;
    }
    if (least == nullptr) {
      return "none of " + std::to_string(templates) +
             " templates of the searcher uniform is possible; the first, " +
             tried_.front().searcher + ": " + tried_.front().error;
    }
    return "none of " + std::to_string(templates) +
           " templates of the searcher uniform fits into " +
           size_text(static_cast<double>(plan_limit(request_))) + " per device; the smallest, " +
           least->searcher + ", takes " + size_text(static_cast<double>(least->memory));
  }

  const SearchRequest& request_;
  const TemplateRoles roles_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<SearchOutcome> best_;
  std::string name_of_best_;
  std::vector<SearcherTrial> tried_;
  bool is_hopeless_ = false;      // more tensor parallelism
  std::int64_t last_tensor_ = 0;  // that was tried
};

}  // namespace

Result<SearchOutcome> search_uniform(const SearchRequest& request) {
  return Uniform(request).run();
}

}  // namespace autopar
