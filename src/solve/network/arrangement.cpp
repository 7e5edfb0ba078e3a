#include "solve/network/arrangement.hpp"

#include <cmath>
#include <set>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::order;

// Greedy: of the nodes next to those placed, always the one that adds least to the frontier. What a
// node adds is kept, and looked at again only where a neighbour, or a neighbour's last one, was
// placed: near-linear in nodes and edges.
class Arrangement {
 public:
  explicit Arrangement(const Network& net)
      : net_(net),
        placed_(net.nodes.size(), 0),
        open_(net.nodes.size(), 0),
        seen_(net.nodes.size(), 0),
        ranks_(net.nodes.size()),
        waiting_(net.nodes.size(), 0) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      neighbours_.emplace_back();
      bits_of_.push_back(0);
      if (net.nodes[n].gone) continue;
      bits_of_[n] = std::log2(net.label_count(static_cast<int>(n)));
      for (int e : net.nodes[n].edges) {
        neighbours_[n].push_back(other_end(net.edge(e), static_cast<int>(n)));
      }
      sort_unique(neighbours_[n]);
      open_[n] = static_cast<int>(neighbours_[n].size());
    }
  }

  std::vector<int> run() {
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (!net_.nodes[n].gone && is_hub(static_cast<int>(n))) place(static_cast<int>(n));
    }
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (net_.nodes[n].gone || placed_[n]) continue;
      place_next(far_end(static_cast<int>(n)));
      while (!candidates_.empty()) place_next(candidates_.begin()->second);
    }
    return order_;
  }

 private:
  // What grows least first, then the first.
  using Rank = std::pair<double, int>;

  bool is_hub(int n) const { return neighbours_[at(n)].size() > kHubEdges; }

  void place(int n) {
    placed_[at(n)] = 1;
    order_.push_back(n);
    for (int other : neighbours_[at(n)]) --open_[at(other)];
  }

  void place_next(int n) {
    if (waiting_[at(n)]) candidates_.erase(ranks_[at(n)]);
    waiting_[at(n)] = 0;
    place(n);
    if (open_[at(n)] == 1) rank_neighbours(n);
    for (int other : neighbours_[at(n)]) {
      if (!placed_[at(other)]) {
        rank(other);
      } else if (open_[at(other)] == 1) {
        rank_neighbours(other);
      }
    }
  }

  // Of those that wait, each to be looked at again.
  void rank_neighbours(int n) {
    for (int other : neighbours_[at(n)]) {
      if (waiting_[at(other)]) rank(other);
    }
  }

  void rank(int n) {
    const Rank now = {growth(n), n};
    if (waiting_[at(n)] && ranks_[at(n)] == now) return;
    if (waiting_[at(n)]) candidates_.erase(ranks_[at(n)]);
    waiting_[at(n)] = 1;
    ranks_[at(n)] = now;
    candidates_.insert(now);
  }

  // What placing n adds to the frontier, in bits.
  double growth(int n) const {
    double bits = open_[at(n)] > 0 ? bits_of_[at(n)] : 0;
    for (int other : neighbours_[at(n)]) {
      if (placed_[at(other)] && open_[at(other)] == 1) bits -= bits_of_[at(other)];
    }
    return bits;
  }

  // The last node that is reached from n, twice over.
  int far_end(int n) {
    for (int round = 0; round < 2; ++round) {
      std::vector<int> queue = {n};
      seen_[at(n)] = ++searches_;
      for (std::size_t i = 0; i < queue.size(); ++i) {
        for (int other : neighbours_[at(queue[i])]) {
          if (placed_[at(other)] || seen_[at(other)] == searches_) continue;
          seen_[at(other)] = searches_;
          queue.push_back(other);
        }
      }
      n = queue.back();
    }
    return n;
  }

  const Network& net_;
  std::vector<std::vector<int>> neighbours_;
  Vector bits_of_;
  std::vector<char> placed_;
  std::vector<int> open_;  // neighbours that are not placed
  std::vector<int> seen_;  // per node: by which search for a far end, from 1 on
  int searches_ = 0;
  std::set<Rank> candidates_;
  std::vector<Rank> ranks_;  // per node, of those that wait among the candidates
  std::vector<char> waiting_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> narrow_order(const Network& net) { return Arrangement(net).run(); }

}  // namespace autopar::solver
