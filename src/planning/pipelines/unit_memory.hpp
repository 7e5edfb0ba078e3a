// What memory costs the units of a chunk: a bound on chunks that must fit.
//
// Between the forward and the backward pass a chunk holds what all of its units store, and what
// they keep for the backward pass of every micro-batch in flight. With a price per byte on that,
// units are searched by themselves, and
//
//   a chunk of n such units takes at least n x (least of time + price x bytes) - price x room
//
// for any price (Lagrange multipliers; Everett, "Generalized Lagrange multiplier method", 1963).
// The price for which this is most is found by intersecting lines. Bytes of values that cross the
// ends of a unit, and of what other units store as well, are left out. The least is over all meshes
// that are tried and levels of recomputation.
//
// The least is concave in the prices of what is stored and of what is kept, and grows with each of
// them by at least the fewest bytes that a plan has of it. So what was found at some prices is a
// bound at others: most ways are never searched at a price, and bounds at prices beside those that
// were searched are read off.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "autopar/recompute.hpp"
#include "autopar/search.hpp"
#include "planning/parts_of_step.hpp"
#include "planning/pipelines/priced_unit.hpp"
#include "planning/pipelines/unit_mix.hpp"
#include "planning/pipelines/unit_parts.hpp"
#include "planning/pipelines/unit_shelf.hpp"

namespace autopar {

// A way to plan a unit, before it is looked at: nothing of it takes less than `floor`. `by_paths`:
// at prices by what waits for what in plans that memory costs nothing.
struct UnitWay {
  Recompute recompute = Recompute::kNone;
  std::string mesh;
  Seconds floor = 0;
  bool by_paths = false;
};

class UnitMemory : public PricedUnit {
 public:
  // The search problem of a way; without nodes: it says nothing, as another way is the same.
  using Problems = std::function<Result<std::optional<PricedProblem>>(Graph& graph, UnitWay way)>;

  // `unit` must live as long; `own`: its stored values that count, `shared`: the others that do
  // not, as a chunk of several units has them once. `devices`: of every mesh. `problems` has to
  // make the same of the same: what it made is on the shelf, or is made again.
  UnitMemory(const Graph& unit, std::set<std::string> own, std::set<std::string> shared,
             std::vector<UnitWay> ways, std::int64_t devices, Problems problems,
             std::function<bool()> is_stopped, std::shared_ptr<UnitShelf> shelf, int threads = 1);
  ~UnitMemory() override { shelf_->clear(owner_); }
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;

  Result<UnitPoint> least(std::int64_t in_flight, double price) override;
  Seconds known_least(std::int64_t in_flight, double price) const override;

  const std::vector<UnitWay>& ways() const { return ways_; }
  // The fewest micro-batches in flight, of so many or more, at which plans were looked for with a
  // price; that number where there are none.
  std::int64_t looked_at_for(std::int64_t in_flight) const;
  // The plan of that way at that price; null: there is none.
  Result<std::shared_ptr<const UnitParts>> parts(Recompute recompute, const std::string& mesh,
                                                 std::int64_t in_flight, double price);
  // The same as a strategy of the way's graph; nothing: there is none.
  Result<std::optional<Strategy>> strategy(std::size_t way, std::int64_t in_flight, double price);
  // All that were found so far, with what they take; each once. By prices that are left those that
  // they do not mislead.
  Result<std::vector<UnitPlan>> plans();
  Result<std::shared_ptr<const UnitParts>> parts_of(const UnitPlan& plan) const;
  // At which one of them was found.
  struct Asked {
    std::int64_t in_flight = 0;
    double price = 0;
  };
  Asked asked_of(const UnitPlan& plan) const {
    const Look& look = searched_of(plan).looks[plan.way][plan.look];
    return {look.in_flight, look.price};
  }

 private:
  // Of copies that lie otherwise than what they are made from.
  struct EdgeBytes {
    int from = -1, to = -1;
    CostTable bytes;
    bool is_stored = false;  // once, not for every micro-batch in flight
  };
  // The fewest bytes that plans have between the passes.
  struct FewestBytes {
    double stored = 0, kept = 0;
    double of(std::int64_t in_flight) const {
      return stored + static_cast<double>(in_flight) * kept;
    }
  };
  struct Unit {
    Graph graph;
    FewestBytes fewest;
    MeshProblem built;                              // without uses
    decltype(PricedProblem::seconds) seconds;       // of a step, by its choices
    std::vector<std::vector<double>> stored, kept;  // bytes per node and choice
    std::vector<EdgeBytes> edges;
    double bytes() const;  // that it takes itself, about
  };
  using SharedUnit = std::shared_ptr<const Unit>;
  struct Look {
    std::int64_t in_flight;
    double price;
    UnitPoint point;
    double stored, kept;  // of its bytes
    std::vector<int> choices;
    std::optional<Seconds> seconds = {};  // of a step, once it was asked for
    bool is(std::size_t way, std::int64_t flying, double at_price) const {
      return point.way == way && in_flight == flying && price == at_price;
    }
  };
  // What is known, per way.
  struct Searched {
    explicit Searched(std::size_t ways)
        : has_unit(ways), is_open(ways), fewest(ways), looks(ways) {}
    std::vector<char> has_unit, is_open;
    std::vector<FewestBytes> fewest;
    std::vector<std::deque<Look>> looks;
  };
  class HeldBytes;
  const Searched& searched_of(const UnitPlan& plan) const { return plan.is_of_left ? left_ : now_; }
  static UnitParts parts_in(const Unit& unit, const Look& look);
  Status open(std::size_t way);
  // Null: a way that says nothing.
  Result<SharedUnit> built(std::size_t way, bool by_paths) const;
  // From the shelf, or built again. Precondition: has_unit.
  Result<SharedUnit> unit_of(const Searched& searched, std::size_t way) const;
  UnitShelf::Key key_of(std::size_t way, bool is_of_left) const {
    return {owner_, is_of_left ? ways_.size() + way : way};
  }
  FewestBytes fewest_on_any_mesh(const Unit& unit) const;
  Result<Look*> look(std::size_t way, std::int64_t in_flight, double price);
  Look* known_look(std::size_t way, std::int64_t in_flight, double price);
  static Look solved(const Unit& unit, std::size_t way, std::int64_t in_flight, double price);
  // At the same time, where there are threads for it; look() takes them then.
  Status solve_two(std::size_t way, std::size_t other, std::int64_t in_flight, double price);
  std::pair<std::size_t, Seconds> lowest_way(const std::vector<char>& is_done, Seconds below,
                                             std::int64_t in_flight, double price) const;
  // Whether a plan takes much longer than its prices by paths say.
  Result<bool> is_misled(std::size_t way, Look& look) const;
  // Goes on without such prices: what was found by them is of plans alone.
  Status leave_paths(std::int64_t in_flight);
  Result<UnitPoint> least_of_ways(std::int64_t in_flight, double price);
  Status find_seconds(const Searched& searched, std::size_t way, Look& look) const;
  std::size_t mesh_number(std::size_t way) const;
  Seconds floor_of(std::size_t way, std::int64_t in_flight, double price) const;
  FewestBytes fewest_of(std::size_t way) const;

  const Graph& graph_;
  const std::set<std::string> own_, shared_;
  std::vector<UnitWay> ways_;
  const double devices_;
  const Problems problems_;
  std::map<Recompute, FewestBytes> fewest_;  // of those that are open
  Searched now_, left_;
  const std::shared_ptr<UnitShelf> shelf_;
  const std::uint64_t owner_;
  const int threads_;
  std::vector<Look> ahead_;  // solved and not yet asked for
};

}  // namespace autopar
