// The plans that a double recursion makes on the way: on which meshes, with which prices on bytes.
#pragma once

#include <chrono>
#include <limits>

#include "search/pins.hpp"
#include "search/rec/recursion.hpp"
#include "support/stopwatch.hpp"

namespace autopar::rec {

// The plans of one mesh.
struct Attempt {
  Mesh mesh;
  Decisions found = {};                           // the last ones
  std::vector<std::vector<Assignment>> all = {};  // that were ever found, per op
  // Of its first plan, where that does not fit: its time without the memory limit, and when it has
  // its peak.
  Seconds unlimited = kInfinity;
  int peak_time = -1;
};

struct Attempts {
  const SearchRequest& request;
  Wiring wiring;
  Stopwatch clock = {};
  Seconds cuts_seconds = 0, recursion_seconds = 0, values_seconds = 0;
  std::optional<SearchOutcome> best = {};
  std::optional<Error> error = {};
  std::vector<MeshTrial> trials = {};
  std::vector<MeshTrial> refused = {};  // meshes that cannot keep the pins

  // Where others have plans, one that is stopped before it has any ends without.
  bool may_end_without = request.findings != nullptr;

  explicit Attempts(const SearchRequest& r) : request(r), wiring(wiring_of(r)) {}

  // Plans of the mesh that the request names, or of those that the cost model insists on, or of
  // those that the cuts of the whole machine lead to (with pins of all that these may need): the
  // ones that are estimated to be no more than a little dearer than the best, that first. Errors:
  // where pins or layouts cannot be kept on any of them.
  Result<std::vector<Attempt>> make(const BytePrices& prices);

  Status recurse_on(Attempt& attempt, BytePrices prices);

  // Where values lie between the ops of a plan, which has one assignment per op (or a few).
  struct ValuesOptions {
    bool all_stored_specs = false;
    const Decisions* stored = nullptr;  // stored as these say, where the user does not
    bool limited = true;                // by the memory
    double gap = 0;
    double cutoff = kInfinity;
  };
  Result<SearchOutcome> with_values(const Attempt& attempt, bool all_assignments,
                                    const ValuesOptions& options);

  // Whether it is a plan.
  bool keep(Result<SearchOutcome> found);

  // A finite one: while plans are still looked for, the least memory that one needs is of no
  // interest.
  double cutoff() const { return best ? best->cost.total() : std::numeric_limits<double>::max(); }
  double limit() const;
  // Then a recursion takes less time than to place the values of its plan.
  bool is_large() const { return request.graph.ops.size() > kFewOps; }
  Seconds time_left() const;
  // By the time limit or an interrupt.
  bool stopped() const;

 private:
  RecursionOptions options_of(BytePrices prices) const;
  Result<Allowed> allowed_on(const KeptPins& kept, CostModel& model) const;
  void refuse(const Mesh& mesh, const Error& why);
  Status make_joined(const BytePrices& prices, std::vector<Attempt>& made);
};

}  // namespace autopar::rec
