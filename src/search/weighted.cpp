#include "search/weighted.hpp"

#include <algorithm>
#include <chrono>

#include "search/balanced_weights.hpp"
#include "search/meshes.hpp"
#include "search/outer_loop.hpp"
#include "search/small_step.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

// Of the first weighting. Most of the steps that are worth tuning are bound by compute; the other
// streams have so much of it that what is free for compute is not taken from them.
constexpr StreamTimes kFirstWeights{0.75, {}, 0.1, 0.05};
constexpr double kFirstLinkWeight = 0.1;   // of the outermost link
constexpr double kInnerLinkWeight = 0.02;  // of each other, from what compute has
// Of interleaved passes, whose collectives go beside compute only as far as there is some at that
// time: a second one, in which links count as much as compute. On 64 H100 (h100-megatron) it finds
// steps of 41.8 and 339.6 ms for a Llama of four layers of 7B's widths, in 64 and 1,024 samples;
// the others alone 46.4 and 342.7 ms.
constexpr StreamTimes kEvenWeights{0.45, {}, 0.05, 0.05};
constexpr double kEvenLinkWeights = 0.45;  // of all links together
constexpr int kWeightings = 2;
// Of the first, which is no bound on the time that is worth a proof: no more is searched for by
// less than that.
constexpr double kFirstGap = 1e-4;
// And gaps below that are left where plans were found by prices of the limit: what closes them took
// a third of the CPU time of a step of 8B in 24 GiB, and found no other plan.
constexpr double kFirstWorthClosing = 1e-2;
// Where the memory limit binds, further weightings look for plans where their bound is no more than
// this times the least.
constexpr double kNearBound = 1.01;
// Of the effort of the first, which each further one may take.
constexpr double kLaterEffort = 0.25;
constexpr SolveOptions::Until kLaterUntil = SolveOptions::Until::kLimit;
// Of small steps they look for plans within the limit, too. A step of 935 ops on 40 devices, which
// the host bounds, took 6.94 ms in half of what its fastest plan holds, by the first weighting, and
// takes 5.92 so; nine of 20 others take up to 24 % less. With a quarter of the effort the same
// plans took up to 40 CPU seconds in place of 28. Whether a limit binds the first weighting says
// little about the others.
constexpr SolveOptions::Until kLaterUntilOfSmall = SolveOptions::Until::kClose;
constexpr double kLaterEffortOfSmall = 0.1;
// Of a time limit, for the first of them.
constexpr double kFirstPart = 0.5;
// Where bound and time are so near, no other weighting is tried.
constexpr double kNear = 1e-3;
// Where they are further apart, and the plans that were found allow a larger bound, so many more.
constexpr int kMoreWeightings = 2;

// Where a plan is known that other ones have to beat: the bound of most steps is that of compute.
StreamTimes compute_weights() {
  StreamTimes weights;
  Seconds others = 0;
  for (Seconds* w : weights.all()) others += * w = StreamTimes::kLeastWeight;
  weights.compute += 1 - others;
  return weights;
}

StreamTimes even_weights(const Cluster& cluster) {
  StreamTimes weights = kEvenWeights;
  const std::size_t links = std::min<std::size_t>(cluster.tiers.size(), kLinks);
  for (std::size_t l = 0; l < links; ++l) {
    weights.links[l] = kEvenLinkWeights / static_cast<double>(links);
  }
  return weights;
}

class WeightedSearch {
 public:
  WeightedSearch(const SearchRequest& request, const Searcher& searcher)
      : request_(request), searcher_(searcher) {}

  Result<SearchOutcome> run() {
    if (request_.solve.cutoff < kInfinity) {
      AUTOPAR_TRY(none, none_is_cheaper());
      if (none) return *none;
    }
    SearchRequest first = request_;
    first.weights = first_weights(request_.cluster);
    // Who asks for more gets the gap that he asks for.
    if (request_.solve.most_effort <= 1) first.solve.gap = std::max(first.solve.gap, kFirstGap);
    if (first.solve.time_limit < kInfinity) first.solve.time_limit *= kFirstPart;
    MeshSearchReach reach;
    if (request_.solve.most_effort <= 1) reach.worth_closing = kFirstWorthClosing;
    AUTOPAR_TRY(found, search_on(first, searcher_, meshes_of(first), reach));
    best_ = std::move(found);
    busy_ = {best_.cost.step->busy};
    binds_ = best_.minimised.best > (1 + kNear) * best_.minimised.unlimited_lower_bound;
    if (request_.graph.copies > 1 && !is_over()) {
      AUTOPAR_RETURN_IF_ERROR(weigh(even_weights(request_.cluster)));
    }
    for (int w = 1; w < kWeightings && !is_over(); ++w) {
      AUTOPAR_RETURN_IF_ERROR(weigh(best_.cost.step->busy.sharp_weights()));
    }
    for (int w = 0; w < kMoreWeightings && !is_over(); ++w) {
      const auto weights = weights_of_more(busy_, findings_of(best_.trials).lower_bound);
      if (!weights) break;
      AUTOPAR_RETURN_IF_ERROR(weigh(*weights));
    }
    close();
    return std::move(best_);
  }

 private:
  // What the caller is told where bounds alone show that nothing is below the cutoff.
  Result<std::optional<Error>> none_is_cheaper() const {
    SearchRequest asked = request_;
    asked.weights = compute_weights();
    asked.limit_memory = false;  // nor have its problems tables of memory
    MeshSearch search(asked, searcher_, meshes_of(asked));
    if (searcher_.begin == nullptr) return std::optional<Error>();
    AUTOPAR_TRY(none, autopar::none_is_cheaper(search));
    if (!none) return std::optional<Error>();
    if (request_.findings != nullptr) *request_.findings = search.findings();
    return std::optional(no_plan(request_, search.tightest, false));
  }

  Seconds enough() const { return best_.cost.time() * (1 - std::max(kNear, request_.solve.gap)); }
  bool is_open(const MeshTrial& trial) const {
    return says_something(trial.end) && trial.lower_bound < enough();
  }

  bool is_over() const {
    const bool is_open = std::any_of(best_.trials.begin(), best_.trials.end(),
                                     [&](const MeshTrial& trial) { return this->is_open(trial); });
    const bool is_stopped = request_.solve.stop != nullptr && request_.solve.stop->load();
    return !is_open || is_stopped || time_left() <= 0;
  }

  Seconds time_left() const { return request_.solve.time_limit - seconds_since(start_); }

  // Another weighting, on the meshes that may have a better plan.
  Status weigh(const StreamTimes& weights) {
    SearchRequest asked = request_;
    SearchFindings findings;
    asked.weights = weights;
    asked.findings = &findings;
    asked.known_bounds.clear();  // those are of times
    asked.solve.cutoff = std::min(asked.solve.cutoff, best_.cost.step->busy.weighted(weights));
    const bool is_small = request_.graph.ops.size() <= kSmallStep;
    asked.solve.effort *= is_small ? kLaterEffortOfSmall : kLaterEffort;
    asked.solve.until = is_small ? kLaterUntilOfSmall : kLaterUntil;
    asked.solve.time_limit = time_left();
    std::vector<Mesh> meshes;
    for (const MeshTrial& trial : best_.trials) {
      if (is_open(trial)) meshes.push_back(trial.mesh);
    }
    auto found =
        search_on(asked, searcher_, meshes, {.searched_within = binds_ ? kNearBound : kInfinity});
    if (!found && found.error().code != ErrorCode::kInfeasible) return found.error();
    for (const MeshTrial& trial : findings.trials) merge(trial);
    best_.interrupted |= found && found->interrupted;
    if (found) busy_.push_back(found->cost.step->busy);
    if (!found || found->cost.time() >= best_.cost.time()) return Ok{};
    std::vector<MeshTrial> trials = std::move(best_.trials);
    const SearchOutcome::Minimised minimised = best_.minimised;
    best_ = std::move(*found);
    best_.trials = std::move(trials);
    best_.minimised = minimised;
    return Ok{};
  }

  // The larger bounds, the smaller time, the work of both.
  void merge(const MeshTrial& found) {
    const auto place =
        std::find_if(best_.trials.begin(), best_.trials.end(),
                     [&](const MeshTrial& trial) { return trial.mesh == found.mesh; });
    if (place == best_.trials.end() || found.end == TrialEnd::kNotTried) return;
    MeshTrial& trial = *place;
    trial.lower_bound = std::max(trial.lower_bound, found.lower_bound);
    trial.unlimited_lower_bound =
        std::max(trial.unlimited_lower_bound, found.unlimited_lower_bound);
    trial.stopped |= found.stopped;
    trial.build_seconds += found.build_seconds;
    trial.solve_seconds += found.solve_seconds;
    trial.evaluate_seconds += found.evaluate_seconds;
    trial.stages.insert(trial.stages.end(), found.stages.begin(), found.stages.end());
    if (found.end == TrialEnd::kPlan) {
      trial.end = TrialEnd::kPlan;
      trial.cost = std::min(trial.cost, found.cost);
    }
  }

  void close() {
    const SearchFindings findings = findings_of(best_.trials);
    const Seconds time = best_.cost.time();
    best_.lower_bound =
        findings.lower_bound >= time * (1 - kBoundRounding) ? time : findings.lower_bound;
    best_.unlimited_lower_bound = std::min(findings.unlimited_lower_bound, best_.lower_bound);
    if (request_.findings != nullptr) *request_.findings = findings;
  }

  const SearchRequest& request_;
  const Searcher& searcher_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  SearchOutcome best_;
  std::vector<StreamTimes> busy_;  // of the plans that were found
  // The memory limit makes the first plan dearer: what another weighting favours without it is not
  // likely to fit.
  bool binds_ = false;
};

}  // namespace

StreamTimes first_weights(const Cluster& cluster) {
  StreamTimes weights = kFirstWeights;
  const std::size_t links = std::min<std::size_t>(cluster.tiers.size(), kLinks);
  for (std::size_t l = 0; l < links; ++l) {
    weights.links[l] = l + 1 == links ? kFirstLinkWeight : kInnerLinkWeight;
    if (l + 1 < links) weights.compute -= kInnerLinkWeight;
  }
  return weights;
}

bool is_weighted(const SearchRequest& request, const Searcher& searcher) {
  return searcher.proves_bound && !request.narrowing && !request.graph.kernels.empty() &&
         !request.cluster.profile.ideal() && request.fill == Fill::kSearch;
}

Result<SearchOutcome> search_weighted(const SearchRequest& request, const Searcher& searcher) {
  return WeightedSearch(request, searcher).run();
}

}  // namespace autopar
