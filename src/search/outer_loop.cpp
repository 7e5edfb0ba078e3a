#include "search/outer_loop.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "support/parallel.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

// Of the time, where it is limited, for looking at all meshes before one is searched.
constexpr double kLookingPart = 0.5;

// Of what lies between bound and plan.
constexpr double kDoubt = 0.1;

// Above the bound that knows the memory limit, as a part of it: where plans are looked for. Of 19
// searches that the limit binds, all but one end with a gap below that.
constexpr double kPlansAbove = 0.01;

// A mesh on which the best plan can be beaten by no more than this part of what is open on all of
// them is left as it is: the gap would not get smaller by it, and the plan hardly cheaper. Of a
// step of U-Net within 330 MiB on 64 devices 10 of 31 CPU seconds went into two meshes that were
// less than 0.25 % below the plan, of which no part was found. ViT-L with SGD on 512 devices, 3.4 %
// above its bound, takes 37.09 ms so, and 37.01 without; ResNet-50 for faces there 7.85 and 7.86.
constexpr double kPartOfGap = 0.25;

// What is open moves while meshes wait that were raised just so far: until it moves by more than
// that part of it, they are not looked at again. Of a step of U-Net within 250 MiB on 64 devices
// two meshes were built and priced once more to raise bounds by 0.01 %.
constexpr double kSlack = 0.05;

// Where more was asked for than a default search finds, so many times the effort in each further
// round; and so many rounds that change nothing are the last.
constexpr double kMoreEffort = 4;
constexpr int kIdleRounds = 2;

class OuterLoop {
 public:
  explicit OuterLoop(MeshSearch& search) : search_(search) {}

  Status run() {
    const SolveOptions::Until until = search_.request.solve.until;
    std::vector<std::size_t> left;
    for (std::size_t m = 0; m < search_.outcome.trials.size(); ++m) {
      if (!is_left_out(m)) left.push_back(m);
    }
    if (search_.searcher.begin != nullptr && search_.outcome.trials.size() > 1 && !left.empty()) {
      AUTOPAR_RETURN_IF_ERROR(look_at_all(left));
      // Stopped by now, what was seen is what there is.
      const Begun* begun = search_.kept.most_promising();
      if (begun != nullptr && begun->solve.so_far.feasible && search_.stopped()) {
        search_.outcome.interrupted = true;
        return search_.keep_better(begun->built, begun->solve.so_far, *begun->model,
                                   search_.outcome.trials[begun->mesh]);
      }
      leave_those_above(left);
      // What a proof under the memory limit takes waits until all have their plans.
      AUTOPAR_RETURN_IF_ERROR(find_plans(left));
      if (until != SolveOptions::Until::kEnd || is_close()) return Ok{};
    }
    AUTOPAR_RETURN_IF_ERROR(search_all(left, until));
    return until == SolveOptions::Until::kEnd ? go_on() : Ok{};
  }

  // Coarse meshes come first: what is open there is so on finer ones, and they are looked at
  // sooner.
  Result<bool> none_is_cheaper() {
    const auto least = [&](std::size_t m) {
      return [this, m](Seconds time) { return search_.note_least_of_ops(m, time); };
    };
    const auto look = [&](std::size_t m) {
      return [this, m](Seconds time) -> Result<bool> {
        AUTOPAR_TRY(begun, search_.begin(m, time));
        return begun != nullptr;
      };
    };
    for (std::size_t m = 0; m < search_.outcome.trials.size(); ++m) {
      if (is_left_out(m)) continue;
      AUTOPAR_RETURN_IF_ERROR(in_time(search_.outcome.trials[m], 1, least(m)));
    }
    bool any = false;
    for (std::size_t m = 0; m < search_.outcome.trials.size(); ++m) {
      MeshTrial& trial = search_.outcome.trials[m];
      if (!is_cut_off(trial)) AUTOPAR_RETURN_IF_ERROR(in_time(trial, 1, look(m)));
      if (trial.end == TrialEnd::kPinsNotKept || trial.end == TrialEnd::kTooLarge) continue;
      if (!is_cut_off(trial)) return false;
      trial.end = TrialEnd::kPruned;
      any = true;
    }
    return any;
  }

 private:
  // A default search spends a fixed effort. Where a gap was asked for that it leaves open, or a
  // time that it leaves over, rounds of more effort follow; each begins with the best plan and the
  // bounds of those before it, so that what is found is never worse than what less effort finds.
  Status go_on() {
    int idle = 0;
    while (may_go_on() && idle < kIdleRounds) {
      search_.effort *= kMoreEffort;
      search_.forget_learnt();
      const std::pair before(search_.best, bound_of_open());
      std::vector<std::size_t> open;
      for (std::size_t m = 0; m < search_.outcome.trials.size(); ++m) {
        if (is_open(search_.outcome.trials[m])) open.push_back(m);
      }
      AUTOPAR_RETURN_IF_ERROR(search_all(open, SolveOptions::Until::kEnd));
      idle = std::pair(search_.best, bound_of_open()) == before ? idle + 1 : 0;
    }
    return Ok{};
  }

  bool may_go_on() const {
    const bool more = search_.effort * kMoreEffort <= search_.request.solve.most_effort;
    return more && search_.searcher.begin != nullptr && !search_.stopped() &&
           bound_of_open() < kInfinity;
  }

  // The best plan on it may be better than the best so far by more than the gap.
  bool is_open(const MeshTrial& trial) const {
    const bool closed = trial.end == TrialEnd::kPinsNotKept ||
                        trial.end == TrialEnd::kNothingFits || trial.end == TrialEnd::kTooLarge;
    const Seconds enough = search_.best * (1 - std::max(search_.request.solve.gap, kBoundRounding));
    return !closed && !(trial.lower_bound >= enough);
  }

  // Before it was looked at: a bound was known.
  bool is_left_out(std::size_t m) const {
    return search_.outcome.trials[m].end == TrialEnd::kPruned;
  }

  // Infinite: nothing is open.
  Seconds bound_of_open() const {
    Seconds least = kInfinity;
    for (const MeshTrial& trial : search_.outcome.trials) {
      if (is_open(trial)) least = std::min(least, trial.lower_bound);
    }
    return least;
  }

  bool is_close() const {
    return search_.best < kInfinity &&
           bound_of_open() >= (1 - search_.reach.worth_closing) * search_.best;
  }

  // A bound, and perhaps a plan, of every mesh. The most promising one's problem is kept.
  Status look_at_all(const std::vector<std::size_t>& meshes) {
    std::mutex mutex;
    std::map<std::size_t, Error> errors;
    in_parallel(threads_at_once(), meshes.size(), [&](std::size_t i) {
      if (search_.stopped()) return;
      const std::size_t m = meshes[i];
      const Seconds left =
          kLookingPart * search_.request.solve.time_limit - seconds_since(search_.start);
      Result<std::unique_ptr<Begun>> look =
          search_.begin(m, left / static_cast<double>(meshes.size() - i));
      const std::scoped_lock lock(mutex);
      const auto taken = unless_pins_refuse(search_.outcome.trials[m], take(std::move(look)));
      if (!taken) errors.emplace(m, taken.error());
    });
    if (!errors.empty()) return errors.begin()->second;
    return Ok{};
  }

  // Those that are for their bounds alone.
  void leave_those_above(std::vector<std::size_t>& meshes) {
    const auto bound_of = [&](std::size_t m) { return search_.outcome.trials[m].lower_bound; };
    Seconds least = kInfinity;
    for (std::size_t m : meshes) least = std::min(least, bound_of(m));
    const Seconds most = search_.reach.searched_within * least;
    std::erase_if(meshes, [&](std::size_t m) { return bound_of(m) > most; });
  }

  int threads_at_once() const {
    return std::min(static_cast<int>(search_.meshes_at_once()), search_.request.solve.threads);
  }

  Result<bool> take(Result<std::unique_ptr<Begun>> look) {
    if (!look) return look.error();
    if (*look == nullptr) return false;
    search_.outcome.interrupted |= (*look)->solve.so_far.interrupted;
    const double rank = rank_of(**look);
    search_.kept.keep(std::move(*look), rank);
    search_.make_room();
    return true;
  }

  // The best plan is likely to be where the bound is low, a little less so where what was found is
  // far above it. Where nothing was found, the limit is in the way, which says nothing of that.
  Seconds rank_of(const Begun& begun) const {
    const Seconds bound = search_.outcome.trials[begun.mesh].lower_bound;
    const Solution& found = begun.solve.so_far;
    return found.feasible ? bound + kDoubt * (found.cost - bound) : bound;
  }

  // The most promising one first, then those with the least bound. Leaves those that were deferred.
  Status search_all(std::vector<std::size_t>& meshes, SolveOptions::Until until) {
    const Begun* first = search_.kept.most_promising();
    const auto key = [&](std::size_t m) {
      return std::pair(first == nullptr || first->mesh != m, search_.outcome.trials[m].lower_bound);
    };
    std::stable_sort(meshes.begin(), meshes.end(),
                     [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      AUTOPAR_TRY(deferred, search_one(meshes[i], meshes.size() - i, until));
      if (deferred) waiting.push_back(meshes[i]);
    }
    meshes = std::move(waiting);
    return Ok{};
  }

  // A step further on the mesh with the least bound, until no mesh is left that could have a better
  // plan: one whose bound is raised by that waits for the others, in most cases for good. Leaves
  // those on which more can be done.
  Status find_plans(std::vector<std::size_t>& meshes) {
    using Until = SolveOptions::Until;
    constexpr Until kSteps[] = {Until::kProof, Until::kLimit, Until::kPlans, Until::kClose};
    const auto asked = std::find(std::begin(kSteps), std::end(kSteps), search_.request.solve.until);
    const auto steps =
        std::min(static_cast<std::size_t>(asked - std::begin(kSteps)) + 1, std::size(kSteps));
    std::vector<Waiting> waiting;
    for (std::size_t m : meshes) waiting.push_back({m});
    meshes.clear();
    const Begun* first = search_.kept.most_promising();
    const std::size_t promising = first == nullptr ? waiting.size() : first->mesh;
    const auto rank = [&](const Waiting& w) {
      return std::tuple(w.mesh != promising || w.steps > 0, bound_to_go_on(w), steps - w.steps,
                        w.mesh);
    };
    while (!waiting.empty()) {
      const auto next = std::min_element(
          waiting.begin(), waiting.end(),
          [&](const Waiting& one, const Waiting& other) { return rank(one) < rank(other); });
      const Until step = kSteps[next->steps];
      double far_enough = step == Until::kPlans ? far_enough_above(waiting) : kInfinity;
      if (!(bound_of(*next) < far_enough)) far_enough = kInfinity;  // nothing can cost nothing
      AUTOPAR_TRY(deferred, search_one(next->mesh, waiting.size(), step, far_enough));
      if (deferred && bound_of(*next) >= far_enough) continue;
      next->priced = step == Until::kPlans;
      if (deferred && ++next->steps < steps) continue;
      if (deferred) meshes.push_back(next->mesh);
      waiting.erase(next);
    }
    return Ok{};
  }

  struct Waiting {
    std::size_t mesh;
    std::size_t steps = 0;  // done
    bool priced = false;    // by the limit, and waits for its plans
  };

  Seconds bound_of(const Waiting& w) const { return search_.outcome.trials[w.mesh].lower_bound; }

  // Of two meshes that are about as promising, one whose problem is at hand goes on: another one's
  // has to be built again, and may turn out to be of no use by then.
  Seconds bound_to_go_on(const Waiting& w) const {
    return search_.kept.has(w.mesh) ? bound_of(w) : (1 + kPlansAbove) * bound_of(w);
  }

  // Plans are likely to be less than that above the least bound that knows the limit: prices of
  // another mesh need not prove more, unless these plans turn out to be dearer.
  double far_enough_above(const std::vector<Waiting>& waiting) const {
    double least = kInfinity;
    for (const Waiting& w : waiting) {
      if (w.priced) least = std::min(least, bound_of(w));
    }
    return (1 + kPlansAbove) * least;
  }

  bool is_cut_off(const MeshTrial& trial) const {
    return trial.lower_bound < kInfinity && trial.lower_bound >= search_.request.solve.cutoff;
  }

  bool is_vain(const MeshTrial& trial) const {
    const Seconds best = search_.best;
    if (!(best < kInfinity)) return false;
    return trial.lower_bound >= best * (1 - search_.request.solve.gap);
  }

  // What plans on that mesh have to be below, at least that part of what is open.
  Seconds worth_finding(const MeshTrial& trial, double part = kPartOfGap) const {
    const Seconds best = search_.best, least = bound_of_open();
    if (!(best < kInfinity) || !(trial.lower_bound > least)) return best;
    return best - part * (best - least);
  }

  // Whether more can be done on this mesh. Nothing is done where nothing is to be gained, nor once
  // its bound is far enough.
  Result<bool> search_one(std::size_t m, std::size_t meshes_left, SolveOptions::Until until,
                          double far_enough = kInfinity) {
    MeshTrial& trial = search_.outcome.trials[m];
    if (trial.end == TrialEnd::kPinsNotKept || trial.end == TrialEnd::kTooLarge) return false;
    if (is_vain(trial) || is_cut_off(trial)) {
      if (trial.end != TrialEnd::kPlan) trial.end = TrialEnd::kPruned;
      search_.kept.take(m);
      return false;
    }
    if (trial.lower_bound > worth_finding(trial, kPartOfGap + kSlack)) {
      // It waits: once less is open elsewhere, it may be what is left.
      if (until == SolveOptions::Until::kEnd && trial.end != TrialEnd::kPlan) {
        trial.end = TrialEnd::kPruned;
      }
      return until != SolveOptions::Until::kEnd;
    }
    const auto search = [&](Seconds time) {
      return search_.search_mesh(m, time, until, {far_enough, worth_finding(trial)});
    };
    AUTOPAR_TRY(deferred, in_time(trial, meshes_left, search));
    AUTOPAR_CHECK(until != SolveOptions::Until::kEnd || !deferred, "a search was deferred again");
    return deferred;
  }

  // Within a part of the time that is left.
  template <class Try>
  Result<bool> in_time(MeshTrial& trial, std::size_t meshes_left, const Try& attempt) {
    if (search_.stopped()) {
      search_.outcome.interrupted = true;
      return false;
    }
    const Seconds left = search_.request.solve.time_limit - seconds_since(search_.start);
    return unless_pins_refuse(trial, attempt(left / static_cast<double>(meshes_left)));
  }

  // Another mesh may keep what this one cannot. A searcher for which the problem is too large is
  // no answer to what was asked.
  Result<bool> unless_pins_refuse(MeshTrial& trial, Result<bool> result) const {
    const bool is_of_pins = has_wishes() && !search_.refuses_mesh;
    if (result || !is_of_pins || result.error().code != ErrorCode::kInput) return result;
    trial.end = TrialEnd::kPinsNotKept;
    trial.why = result.error().message;
    return false;
  }

  // What the user fixed may name axes that not every mesh has.
  bool has_wishes() const {
    return !search_.request.pins.ops.empty() || !search_.request.pins.values.empty() ||
           search_.request.inputs.kind == BoundaryLayout::Kind::kGiven ||
           search_.request.outputs.kind == BoundaryLayout::Kind::kGiven;
  }

  MeshSearch& search_;
};

}  // namespace

Status search_meshes(MeshSearch& search) { return OuterLoop(search).run(); }

Result<bool> none_is_cheaper(MeshSearch& search) { return OuterLoop(search).none_is_cheaper(); }

}  // namespace autopar
