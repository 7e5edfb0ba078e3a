#include "solve/windows/trellis.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::trellis;

constexpr double kUnits = 0x1p56;  // in the cutoff; sums stay below 2^63
constexpr Units kPriceSlop = 1 << 10;
constexpr double kMostKeys = 0x1p62;

struct Place {  // of a node in the key of a frontier
  int node = -1;
  std::uint64_t stride = 1;
  std::uint64_t count = 1;
  int label(std::uint64_t key) const { return static_cast<int>(key / stride % count); }
};

using Frontier = std::vector<Place>;

auto place_of(const Frontier& frontier, int n) {
  return std::find_if(frontier.begin(), frontier.end(),
                      [n](const Place& place) { return place.node == n; });
}

class TrellisBuilder {
 public:
  TrellisBuilder(const Network& net, const std::vector<int>& order, double cutoff, double most_arcs,
                 Budget& budget)
      : net_(net), order_(order), most_arcs_(most_arcs), budget_(budget), prices_(net.multiplier) {
    double credit = 0;
    for (std::size_t r = 0; r < net.capacity.size(); ++r) {
      credit += net.multiplier[r] * net.capacity[r];
    }
    trellis_.scale = kUnits / (std::abs(cutoff) + std::abs(credit));
    // Each arc is rounded, twice, and prices are products of doubles. What might be below the
    // cutoff stays.
    const Units slop = 2 * static_cast<Units>(order.size()) + kPriceSlop;
    trellis_.room = units(cutoff - net.constant) + slop;
  }

  std::optional<Trellis> run() {
    if (!find_frontiers()) return std::nullopt;
    // What leads to nothing below the cutoff is often seen only where the frontier is narrow again.
    std::size_t pruned = 0;
    double since = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (!extend(i)) return std::nullopt;
      since += static_cast<double>(trellis_.layers[i].arcs.size());
      if (since > kPruneArcs && (i + 1 == order_.size() || narrow(i))) {
        prune(pruned, i + 1);
        pruned = i + 1;
        since = 0;
      }
      if (arcs_ > most_arcs_ || budget_.over()) return std::nullopt;
    }
    prune(0, order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) fill(i);
    return std::move(trellis_);
  }

 private:
  struct Term {  // of an edge to an earlier node
    const Edge* edge;
    Place place;
    bool earlier_is_a;

    // Of one of the edge's cores.
    double entry(const Network& net, int core, int earlier, int later) const {
      return earlier_is_a ? entry_of(net, *edge, core, earlier, later)
                          : entry_of(net, *edge, core, later, earlier);
    }
  };

  Units units(double value) const { return std::llround(value * trellis_.scale); }

  bool find_frontiers() {
    std::vector<std::size_t> last(net_.nodes.size(), 0);
    std::vector<std::size_t> position(net_.nodes.size(), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) position[at(order_[i])] = i;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      last[at(order_[i])] = i;
      for (int e : net_.node(order_[i]).edges) {
        last[at(order_[i])] =
            std::max(last[at(order_[i])], position[at(other_end(net_.edge(e), order_[i]))]);
      }
    }
    frontiers_.push_back({});
    for (std::size_t i = 0; i < order_.size(); ++i) {
      Frontier next;
      double keys = 1;
      const auto keep = [&](int n) {
        if (last[at(n)] <= i) return;
        const auto count = static_cast<std::uint64_t>(net_.label_count(n));
        next.push_back({n, static_cast<std::uint64_t>(keys), count});
        keys *= static_cast<double>(count);
      };
      for (const Place& place : frontiers_.back()) keep(place.node);
      keep(order_[i]);
      if (keys > kMostKeys) return false;
      frontiers_.push_back(std::move(next));
    }
    return true;
  }

  std::vector<Term> terms_of(std::size_t i) const {
    std::vector<Term> terms;
    const int n = order_[i];
    for (int e : net_.node(n).edges) {
      const Edge& edge = net_.edge(e);
      const int other = other_end(edge, n);
      const auto known = place_of(frontiers_[i], other);
      if (known != frontiers_[i].end()) terms.push_back({&edge, *known, edge.a == other});
    }
    return terms;
  }

  // The edge's values, [label of the earlier node * labels of n + label of n].
  Vector values_of(const Term& term, int n) const {
    Vector values;
    for (int k = 0; k < static_cast<int>(term.place.count); ++k) {
      for (int l = 0; l < net_.label_count(n); ++l) {
        values.push_back(term.entry(net_, term.edge->table.core, k, l));
      }
    }
    return values;
  }

  // Forward: the frontiers that can be reached below the cutoff. False if they are too many for
  // what is on no path to be taken away afterwards.
  bool extend(std::size_t i) {
    const int n = order_[i];
    const std::vector<Term> terms = terms_of(i);
    std::vector<Vector> values;
    for (const Term& term : terms) values.push_back(values_of(term, n));
    std::vector<std::pair<Place, std::uint64_t>> kept;  // places before, strides after
    std::uint64_t stride = 0;
    for (const Place& place : frontiers_[i + 1]) {
      if (place.node == n) {
        stride = place.stride;
      } else {
        kept.emplace_back(*place_of(frontiers_[i], place.node), place.stride);
      }
    }
    TrellisLayer layer;
    layer.node = n;
    std::vector<std::uint64_t> keys;
    std::vector<Units> least;
    std::unordered_map<std::uint64_t, int> known;  // only looked up, so its order is no matter
    Vector sum;
    const double most = kMostBeforePruning * most_arcs_ - arcs_;
    for (std::size_t f = 0; f < keys_[i].size(); ++f) {
      if (static_cast<double>(std::max(layer.arcs.size(), keys.size())) > most) {
        budget_.add(kArcWork * static_cast<double>(keys.size() + layer.arcs.size()));
        return false;
      }
      if (least_[i][f] >= trellis_.room) continue;
      sum = net_.cost(n);
      for (std::size_t t = 0; t < terms.size(); ++t) {
        const double* row = values[t].data() + at(terms[t].place.label(keys_[i][f])) * sum.size();
        for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += row[l];
      }
      std::uint64_t base = 0;
      for (const auto& [place, after] : kept) {
        base += static_cast<std::uint64_t>(place.label(keys_[i][f])) * after;
      }
      for (std::size_t l = 0; l < sum.size(); ++l) {
        const double scaled = sum[l] * trellis_.scale;
        if (!(scaled < static_cast<double>(trellis_.room - least_[i][f]))) continue;
        const auto value = static_cast<Units>(scaled + 0.5);
        const Units total = least_[i][f] + value;
        const std::uint64_t key = base + l * stride;
        const auto [found, added] = known.try_emplace(key, static_cast<int>(keys.size()));
        const int to = found->second;
        if (added) {
          keys.push_back(key);
          least.push_back(trellis_.room);
        }
        least[at(to)] = std::min(least[at(to)], total);
        layer.arcs.push_back({static_cast<int>(f), to, static_cast<int>(l), value, 0});
      }
    }
    budget_.add(static_cast<double>(keys_[i].size() * sum.size() * (terms.size() + 2)) * 0.5);
    budget_.add(kArcWork * static_cast<double>(layer.arcs.size()));
    arcs_ += static_cast<double>(layer.arcs.size());
    widest_since_ = std::max(widest_since_, keys.size());
    trellis_.layers.push_back(std::move(layer));
    keys_.push_back(std::move(keys));
    least_.push_back(std::move(least));
    return true;
  }

  // The next layer is the first that is wider.
  bool narrow(std::size_t i) const {
    const auto keys = [&](std::size_t k) { return keys_[k].size(); };
    return keys(i + 1) <= kNarrow && 4 * keys(i + 1) <= widest_since_;
  }

  // Layers [begin, end), as if nothing came after them.
  void prune(std::size_t begin, std::size_t end) {
    std::vector<Units> to_go(keys_[end].size(), 0);
    for (std::size_t i = end; i-- > begin;) {
      arcs_ -= static_cast<double>(trellis_.layers[i].arcs.size());
      to_go = prune(i, std::move(to_go));
      arcs_ += static_cast<double>(trellis_.layers[i].arcs.size());
    }
    widest_since_ = 0;
  }

  // Backward: what is on no path below the cutoff goes. Frontiers keep their numbers. Returns the
  // least value to go per frontier before.
  std::vector<Units> prune(std::size_t i, std::vector<Units> to_go) {
    TrellisLayer& layer = trellis_.layers[i];
    std::vector<Units> before(keys_[i].size(), trellis_.room);
    std::erase_if(layer.arcs, [&](const TrellisArc& arc) {
      const Units rest = arc.value + to_go[at(arc.to)];
      if (least_[i][at(arc.from)] + rest >= trellis_.room) return true;
      before[at(arc.from)] = std::min(before[at(arc.from)], rest);
      return false;
    });
    std::stable_sort(layer.arcs.begin(), layer.arcs.end(),
                     [](const TrellisArc& a, const TrellisArc& b) { return a.to < b.to; });
    layer.begins.assign(to_go.size() + 1, 0);
    for (const TrellisArc& arc : layer.arcs) ++layer.begins[at(arc.to) + 1];
    for (std::size_t f = 0; f < to_go.size(); ++f) layer.begins[f + 1] += layer.begins[f];
    layer.to_go = std::move(to_go);
    if (i == 0) trellis_.least = before[0];
    return before;
  }

  // Uses of one node or edge, those of equal bytes as one.
  struct Owner {
    const Term* term = nullptr;  // of an edge; null: the node's own
    std::vector<RowsUsed> uses = {};
    std::vector<int> bytes = {};
  };

  static Owner owner_of(const Term* term, const std::vector<RowUse>& uses) {
    Owner owner = {.term = term};
    for (const RowUse& use : uses) {
      const auto apart = [&](const RowsUsed& other) {
        return std::all_of(other.rows.begin(), other.rows.end(), [&](const auto& rows) {
          return rows.second <= use.begin || use.end <= rows.first;
        });
      };
      std::size_t k = 0;
      while (k < owner.bytes.size() && !(owner.bytes[k] == use.bytes && apart(owner.uses[k]))) ++k;
      if (k == owner.bytes.size()) {
        owner.bytes.push_back(use.bytes);
        owner.uses.emplace_back();
      }
      owner.uses[k].rows.emplace_back(use.begin, use.end);
    }
    return owner;
  }

  double bytes_of(const Owner& owner, std::size_t use, std::uint64_t key, int label) const {
    if (owner.term == nullptr) return net_.algebra.vector(owner.bytes[use])[at(label)];
    const int other = owner.term->place.label(key);
    return owner.term->entry(net_, owner.bytes[use], other, label);
  }

  // The uses of the arcs that are left, and their costs without what the uses are priced at.
  void fill(std::size_t i) {
    TrellisLayer& layer = trellis_.layers[i];
    const std::vector<Term> terms = terms_of(i);
    std::vector<Owner> owners = {owner_of(nullptr, net_.node(layer.node).uses)};
    for (const Term& term : terms) owners.push_back(owner_of(&term, term.edge->uses));
    Vector prices;
    for (const Owner& owner : owners) {
      for (const RowsUsed& use : owner.uses) {
        layer.uses.push_back(use);
        double price = 0;
        for (const auto& [begin, end] : use.rows) price += prices_.of(begin, end);
        prices.push_back(price);
      }
    }
    for (TrellisArc& arc : layer.arcs) {
      double price = 0;
      std::size_t k = 0;
      for (const Owner& owner : owners) {
        for (std::size_t u = 0; u < owner.uses.size(); ++u, ++k) {
          const double bytes = bytes_of(owner, u, keys_[i][at(arc.from)], arc.label);
          layer.bytes.push_back(bytes);
          price += prices[k] * bytes;
        }
      }
      arc.cost = arc.value - units(price);
    }
    budget_.add(static_cast<double>(layer.arcs.size() * (1 + layer.uses.size())));
  }

  const Network& net_;
  const std::vector<int>& order_;
  double most_arcs_;
  Budget& budget_;
  PriceSums prices_;
  Trellis trellis_;
  std::vector<Frontier> frontiers_;                       // before each layer, and at the end
  std::vector<std::vector<std::uint64_t>> keys_ = {{0}};  // of the frontiers, the same way
  std::vector<std::vector<Units>> least_ = {{0}};         // value of the best path to them
  double arcs_ = 0;
  std::size_t widest_since_ = 0;
};

}  // namespace

std::optional<Trellis> build_trellis(const Network& net, const std::vector<int>& order,
                                     double cutoff, double most_arcs, Budget& budget) {
  return TrellisBuilder(net, order, cutoff, most_arcs, budget).run();
}

}  // namespace autopar::solver
