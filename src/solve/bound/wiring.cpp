#include "solve/bound/wiring.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>
#include <unordered_map>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::work;

// Read in twos, or in fours and half as many bytes. With the whole of it for the first S of the
// contest is not proven in 240 s (23 CPU seconds so); Mixtral in 4 GiB takes a fifth less.
template <class Real>
constexpr double kEntryWork = std::is_same_v<Real, float> ? kRowEntryWork / 4 : kRowEntryWork / 2;

// Sides of a class with the same key are in the same role.
using RoleKey = std::tuple<int, bool, int, int, int>;

template <class Real>
class WiringBuilder {
 public:
  using Side = typename Wiring<Real>::Side;
  using Place = typename Wiring<Real>::Place;

  WiringBuilder(const Network& net, const Fold& fold, Wiring<Real>& made)
      : net_(net),
        fold_(fold),
        made_(made),
        seen_(fold.edges_in.size(), SIZE_MAX),
        edges_of_(fold.first.size()) {}

  void run() {
    add_places();
    add_edges();
    for (std::size_t c = 0; c < made_.places.size(); ++c) {
      Place& place = made_.places[c];
      place.sides = made_.sides.size();
      if (place.count == 0) continue;
      if (fold_.alone) {
        add_sides_alone(static_cast<int>(c));
      } else {
        add_sides(static_cast<int>(c));
      }
      for (const RowUse& use : net_.node(place.node).uses) {
        made_.work_per_pass += use.end > use.begin ? place.count : 0;
      }
      made_.work_per_pass += effort::work::kVisitWork + 3 * place.count;
    }
  }

 private:
  void add_places() {
    made_.places.resize(fold_.first.size());
    for (int c : fold_.class_of) {
      if (c >= 0) ++made_.places[at(c)].copies;
    }
    for (std::size_t c = 0; c < made_.places.size(); ++c) {
      Place& place = made_.places[c];
      place.node = fold_.first[c];
      place.count = place.copies > 0 ? net_.label_count(place.node) : 0;
      place.theta = made_.labels;
      made_.labels += at(place.count);
    }
  }

  void add_edges() {
    made_.edge_in.assign(fold_.edges_in.size(), -1);
    made_.tables.assign(fold_.edges_in.size(), nullptr);
    made_.sides.reserve(2 * fold_.edges_in.size());
    for (std::size_t e = 0; e < net_.edges.size(); ++e) {
      const int folded = fold_.edge_of[e];
      if (folded < 0 || made_.edge_in[at(folded)] >= 0) continue;
      made_.edge_in[at(folded)] = static_cast<int>(e);
      const Edge& edge = net_.edges[e];
      made_.tables[at(folded)] = table_of(edge.table.core);
      edges_of_[at(fold_.class_of[at(edge.a)])].push_back(static_cast<int>(e));
      edges_of_[at(fold_.class_of[at(edge.b)])].push_back(static_cast<int>(e));
    }
  }

  Side side_of(int c, int e) const {
    const Edge& edge = net_.edge(e);
    const bool is_a = fold_.class_of[at(edge.a)] == c;
    const Core& core = net_.algebra.core(edge.table.core);
    const int folded = fold_.edge_of[at(e)];
    return {.edge = folded,
            .far = fold_.class_of[at(is_a ? edge.b : edge.a)],
            .classes = net_.algebra.labels(is_a ? edge.table.map_a : edge.table.map_b).data(),
            .count = is_a ? core.rows : core.columns,
            .far_count = is_a ? core.columns : core.rows,
            .by_rows = is_a,
            .copies = static_cast<Real>(fold_.edges_in[at(folded)] / made_.places[at(c)].copies)};
  }

  // Even shares, as TRW-S has them.
  void add_sides_alone(int c) {
    Place& place = made_.places[at(c)];
    std::vector<Side> sides;
    for (int e : edges_of_[at(c)]) {
      sides.push_back(side_of(c, e));
      ++(sides.back().far < c ? place.backward : place.forward);
    }
    const double share = 1.0 / std::max({1, place.backward, place.forward});
    for (const bool earlier : {true, false}) {
      for (const Side& side : sides) {
        if ((side.far < c) == earlier) add_side(side, {share, share}, -1);
      }
    }
  }

  // Copies count as earlier or later by their class; a role's value goes where most of it is.
  struct Roles {
    std::map<RoleKey, std::vector<Side>> sides;
    double even = 0;             // of a copy's value, to each edge, the same both ways
    double back = 0, forth = 0;  // all of it
    static bool mostly_earlier(const std::vector<Side>& sides, int c) {
      double earlier = 0, later = 0;
      for (const Side& side : sides) (side.far < c ? earlier : later) += side.copies;
      return earlier >= later;
    }
  };

  void add_sides(int c) {
    Place& place = made_.places[at(c)];
    const Roles roles = roles_of(c);
    std::map<const std::vector<Side>*, int> role_of;
    for (const auto& [key, sides] : roles.sides) {
      if (sides.size() < 2) continue;
      role_of[&sides] = static_cast<int>(made_.roles.size());
      made_.roles.push_back({});
    }
    for (const bool earlier : {true, false}) {
      for (const auto& [key, sides] : roles.sides) {
        std::array<double, 2> shares = {roles.even, earlier ? roles.back : roles.forth};
        if (Roles::mostly_earlier(sides, c) != earlier) shares = {0, 0};
        const auto role = role_of.find(&sides);
        for (const Side& side : sides) {
          if ((side.far < c) != earlier) continue;
          add_side(side, shares, role == role_of.end() ? -1 : role->second);
          ++(earlier ? place.backward : place.forward);
        }
      }
    }
  }

  Roles roles_of(int c) const {
    Roles roles;
    for (int e : edges_of_[at(c)]) {
      const Edge& edge = net_.edge(e);
      const Side side = side_of(c, e);
      const int mine = side.by_rows ? edge.table.map_a : edge.table.map_b;
      const int theirs = side.by_rows ? edge.table.map_b : edge.table.map_a;
      const int far_node = side.by_rows ? edge.b : edge.a;
      roles.sides[{edge.table.core, side.by_rows, mine, theirs, fold_.class_before[at(far_node)]}]
          .push_back(side);
    }
    double backward = 0, forward = 0;
    for (const auto& [key, sides] : roles.sides) {
      double& sum = Roles::mostly_earlier(sides, c) ? backward : forward;
      for (const Side& side : sides) sum += side.copies;
    }
    roles.back = 1 / std::max(1.0, backward);
    roles.forth = 1 / std::max(1.0, forward);
    roles.even = std::min(roles.back, roles.forth);
    return roles;
  }

  void add_side(Side side, const std::array<double, 2>& shares, int role) {
    const std::size_t index = made_.sides.size();
    side.shares = {static_cast<Real>(shares[0]), static_cast<Real>(shares[1])};
    side.role = role;
    side.incoming = made_.messages;
    made_.messages += at(side.count);
    std::size_t& other = seen_[at(side.edge)];
    if (other == SIZE_MAX) {
      other = index;
    } else {
      Side& twin = made_.sides[other];
      side.twin = other;
      side.outgoing = twin.incoming;
      twin.twin = index;
      twin.outgoing = side.incoming;
    }
    if (role >= 0) made_.roles[at(role)].push_back(index);
    made_.work_per_pass +=
        kEntryWork<Real> * side.count * side.far_count + effort::work::kVisitWork;
    made_.sides.push_back(side);
  }

  const Real* table_of(int core) {
    const Vector& values = net_.algebra.core(core).values;
    if constexpr (std::is_same_v<Real, double>) {
      return values.data();
    } else {
      auto [known, added] = tables_.try_emplace(core, nullptr);
      if (added) {
        made_.made.push_back(
            std::make_shared<const typename Wiring<Real>::Reals>(values.begin(), values.end()));
        known->second = made_.made.back()->data();
      }
      return known->second;
    }
  }

  const Network& net_;
  const Fold& fold_;
  Wiring<Real>& made_;
  std::unordered_map<int, const Real*> tables_;  // per core
  std::vector<std::size_t> seen_;                // per folded edge: the side that was first
  std::vector<std::vector<int>> edges_of_;       // per class, one of each folded edge
};

}  // namespace

template <class Real>
Wiring<Real>::Wiring(const Network& net, const Fold& fold) {
  WiringBuilder<Real>(net, fold, *this).run();
}

template struct Wiring<float>;
template struct Wiring<double>;

}  // namespace autopar::solver
