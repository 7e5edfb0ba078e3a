#include "search/uniform/uniform.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "search/no_plan.hpp"
#include "support/parallel.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

// What the pins leave open matters little, and there are dozens of templates.
constexpr double kGap = 0.005;
// Of the effort of a default search, within the memory limit, where no template is closed: of an
// encoder and decoder of two layers on 4 devices the best template takes 154.2 us, after 12 CPU
// seconds; with all of it 152.2, after 78. Steps of 8B, ViT-L, BERT-Large and Mixtral: the same.
constexpr double kLimitedEffort = 0.1;
// Where all templates of one degree of tensor parallelism take so many times the best time, more of
// it is not tried: it only sends more.
constexpr double kFar = 1.5;
constexpr const char* kFarText = "1.5 times the best";
constexpr const char* kNoTimeText = "not tried: the time was up";

// Of how many degrees of tensor and context parallelism, the best first, experts are put in parts.
// Of a mixture of 16 experts on 64 H100 the best ones take 6.11 ms so, the second best 6.96 ms.
constexpr std::size_t kExpertDegrees = 2;

// Whether it has no plan that fits; then its memory, else its time.
using Rank = std::pair<bool, double>;

struct Attempt {
  Template wanted;
  bool found = false;
  Seconds cost = 0;
  Bytes memory = 0;
  Rank rank() const {
    if (found) return {false, cost};
    return {true, memory > 0 ? static_cast<double>(memory) : kInfinity};
  }
};

class Uniform {
 public:
  explicit Uniform(const SearchRequest& request)
      : request_(request), roles_(template_roles(request)) {}

  Result<SearchOutcome> run() {
    AUTOPAR_TRY(only, asked_template());
    if (only) {
      try_all({*only});
    } else {
      try_degrees();
      try_context();
      try_experts();
    }
    if (tried_.empty()) {
      return infeasible_error(
          "no template of the searcher uniform is possible: neither the batch of the data inputs "
          "nor its sequences divide over the devices, however many of them share a part of it; "
          "--searcher dp looks at all plans");
    }
    const std::size_t count = tried_.size();
    std::stable_sort(tried_.begin(), tried_.end(), [](const auto& a, const auto& b) {
      return std::pair(!a.found, a.cost) < std::pair(!b.found, b.cost);
    });
    if (!best_) return infeasible_error(why_none(count));
    SearchOutcome outcome = std::move(*best_);
    outcome.lower_bound = outcome.unlimited_lower_bound = 0;
    outcome.minimised.lower_bound = outcome.minimised.unlimited_lower_bound = 0;
    for (MeshTrial& trial : outcome.trials) trial.lower_bound = trial.unlimited_lower_bound = 0;
    outcome.interrupted = outcome.interrupted || is_stopped();
    const auto fit = std::count_if(tried_.begin(), tried_.end(),
                                   [](const SearcherTrial& trial) { return trial.found; });
    outcome.picked = {name_of_best_,
                      "the fastest of " + std::to_string(fit) + " templates that fit, of " +
                          std::to_string(count),
                      std::move(tried_)};
    outcome.searcher = "uniform";
    return outcome;
  }

 private:
  // Nothing: all.
  Result<std::optional<Template>> asked_template() const {
    const std::size_t colon = request_.searcher.find(':');
    if (colon == std::string::npos) return std::optional<Template>{};
    const std::string text = request_.searcher.substr(colon + 1);
    AUTOPAR_TRY(only, autopar::asked_template(text, request_.zero));
    const std::int64_t devices = request_.cluster.device_count();
    const std::int64_t asked = only.data * only.tensor * only.context;
    if (asked != devices) {
      return usage_error("template '" + text + "' is of " + std::to_string(asked) +
                         " devices, and there are " + std::to_string(devices));
    }
    AUTOPAR_RETURN_IF_ERROR(check_template(request_, roles_, only));
    return std::optional<Template>{only};
  }

  void try_degrees() {
    for (const std::int64_t tensor : tensor_degrees(request_, roles_)) {
      const std::vector<Template> alike = templates_of(request_, roles_, tensor);
      if (!alike.empty()) try_all(alike);
    }
  }

  // Of each degree of tensor parallelism the best levels so far, with the sequence in parts too.
  void try_context() {
    if (is_mesh_given()) return;
    for (const std::int64_t tensor : tensor_degrees(request_, roles_)) {
      if (is_hopeless_ && tensor >= last_tensor_) return;
      const auto best = std::min_element(attempts_.begin(), attempts_.end(),
                                         [&](const Attempt& a, const Attempt& b) {
                                           return std::pair(a.wanted.tensor != tensor, a.rank()) <
                                                  std::pair(b.wanted.tensor != tensor, b.rank());
                                         });
      const bool is_known = best != attempts_.end() && best->wanted.tensor == tensor;
      // Without others of its degree: what takes least memory.
      const Template wanted =
          is_known ? best->wanted
                   : Template{1, tensor, request_.stored_rules.empty() ? 3 : 0, tensor > 1};
      climb(with_context(request_, roles_, wanted),
            is_known ? best->rank() : Rank{true, kInfinity});
    }
  }

  // With the two best so far of each own degrees, experts in parts too.
  void try_experts() {
    if (is_mesh_given()) return;
    std::vector<Attempt> known = attempts_;
    std::stable_sort(known.begin(), known.end(),
                     [](const Attempt& a, const Attempt& b) { return a.rank() < b.rank(); });
    std::set<std::pair<std::int64_t, std::int64_t>> degrees;
    for (const Attempt& attempt : known) {
      const Template& wanted = attempt.wanted;
      if (!degrees.emplace(wanted.tensor, wanted.context).second) continue;
      if (degrees.size() > kExpertDegrees) return;
      climb(with_experts(request_, roles_, wanted), attempt.rank());
    }
  }

  // One after the other, as long as they get better.
  void climb(const std::vector<Template>& templates, Rank last) {
    for (const Template& wanted : templates) {
      if (is_stopped()) return;
      keep(wanted, unlimited(wanted));
      const Rank now = attempts_.back().rank();
      if (now > last) return;
      last = now;
    }
  }

  bool is_mesh_given() const { return request_.mesh.has_value(); }

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
    const bool has_first = tried_.empty();
    std::vector<std::optional<Result<SearchOutcome>>> found(alike.size());
    in_parallel(request_.solve.threads, alike.size(), [&](std::size_t i) {
      found[i] = i == 0 && has_first ? first(alike[i]) : unlimited(alike[i]);
    });
    Seconds least = kInfinity;
    for (std::size_t i = 0; i < alike.size(); ++i) {
      if (*found[i]) least = std::min(least, (*found[i])->cost.time());
      keep(alike[i], std::move(*found[i]));
    }
    is_hopeless_ = best_ && least > kFar * best_->cost.time();
    last_tensor_ = alike.front().tensor;
  }

  void add(const Template& wanted, SearcherTrial trial) {
    attempts_.push_back({wanted, trial.found, trial.cost, trial.memory});
    tried_.push_back(std::move(trial));
  }

  // Where its time is too short for any plan of it, without a limit: so that there is a plan.
  Result<SearchOutcome> first(const Template& wanted) const {
    auto found = searched(wanted, false, time_left());
    const bool is_late = !found && found.error().code == ErrorCode::kInfeasible && is_stopped();
    return is_late ? searched(wanted, false, kInfinity) : std::move(found);
  }

  Result<SearchOutcome> unlimited(const Template& wanted) const {
    if (is_stopped()) return infeasible_error(kNoTimeText);
    return searched(wanted, false, time_left());
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
      if (best_ && trial.cost >= best_->cost.time()) return add(wanted, std::move(trial));
      found = searched(wanted, true, time_left());
    }
    if (!found) {
      if (trial.error.empty()) trial.error = found.error().message;
      return add(wanted, std::move(trial));
    }
    trial.found = true;
    trial.error.clear();
    trial.cost = found->cost.time();
    trial.memory = found->cost.memory.total;
    if (!best_ || trial.cost < best_->cost.time()) {
      best_ = std::move(*found);
      name_of_best_ = trial.searcher;
    }
    add(wanted, std::move(trial));
  }

  Result<SearchOutcome> searched(const Template& wanted, bool limited, Seconds time) const {
    AUTOPAR_TRY(asked, as_template(request_, roles_, wanted));
    asked.limit_memory = limited;
    asked.solve.gap = std::max(asked.solve.gap, kGap);
    asked.solve.time_limit = time;
    asked.solve.cutoff = kInfinity;
    asked.solve.threads = 1;
    if (limited) {
      asked.solve.effort *= kLimitedEffort;
      asked.solve.until = SolveOptions::Until::kClose;
    }
    asked.solve.progress = nullptr;
    SearchFindings findings;  // its own: no baseline is asked for in its place
    asked.findings = &findings;
    return search(asked);
  }

  Seconds time_left() const {
    return std::max(1e-3, request_.solve.time_limit - seconds_since(start_));
  }
  bool is_stopped() const {
    return (request_.solve.stop != nullptr && request_.solve.stop->load()) || time_left() <= 1e-3;
  }

  std::string why_none(std::size_t templates) const {
    const SearcherTrial* least = nullptr;
    for (const SearcherTrial& trial : tried_) {
      if (trial.memory > 0 && (least == nullptr || trial.memory < least->memory)) least = &trial;
    }
    const auto late = std::count_if(tried_.begin(), tried_.end(), [](const SearcherTrial& trial) {
      return trial.error == kNoTimeText;
    });
    const std::string not_tried = late == 0
                                      ? ""
                                      : "; " + std::to_string(late) +
                                            " were not tried, since the time was up: a longer "
                                            "--time-limit may find one";
    if (least == nullptr) {
      return "none of " + std::to_string(templates) +
             " templates of the searcher uniform is possible; the first, " +
             tried_.front().searcher + ": " + tried_.front().error + not_tried;
    }
    return "none of " + std::to_string(templates) +
           " templates of the searcher uniform fits into " +
           size_text(static_cast<double>(plan_limit(request_))) + " per device; the smallest, " +
           least->searcher + ", takes " + size_text(static_cast<double>(least->memory)) + not_tried;
  }

  const SearchRequest& request_;
  const TemplateRoles roles_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<SearchOutcome> best_;
  std::string name_of_best_;
  std::vector<SearcherTrial> tried_;
  std::vector<Attempt> attempts_;  // those of tried_ that were priced, in their order
  bool is_hopeless_ = false;       // more tensor parallelism
  std::int64_t last_tensor_ = 0;   // that was tried
};

}  // namespace

Result<SearchOutcome> search_uniform(const SearchRequest& request) {
  return Uniform(request).run();
}

}  // namespace autopar
