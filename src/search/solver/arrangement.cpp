#include "search/solver/arrangement.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace autopar::solver {
namespace {

// A node with more neighbours than this is near everything; it says nothing about what is next.
constexpr std::size_t kHubEdges = 24;

class Arrangement {
 public:
  explicit Arrangement(const Network& net)
      : net_(net), placed_(net.nodes.size(), 0), open_(net.nodes.size(), 0) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      neighbours_.emplace_back();
      if (net.nodes[n].gone) continue;
      for (int e : net.nodes[n].edges) {
        neighbours_[n].push_back(other_end(net.edge(e), static_cast<int>(n)));
      }
      std::sort(neighbours_[n].begin(), neighbours_[n].end());
      neighbours_[n].erase(std::unique(neighbours_[n].begin(), neighbours_[n].end()),
                           neighbours_[n].end());
      open_[n] = static_cast<int>(neighbours_[n].size());
    }
  }

  std::vector<int> run() {
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (!net_.nodes[n].gone && neighbours_[n].size() > kHubEdges) place(static_cast<int>(n));
    }
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (net_.nodes[n].gone || placed_[n]) continue;
      place(far_end(static_cast<int>(n)));
      while (!candidates_.empty()) place(best_candidate());
    }
    return order_;
  }

 private:
  void place(int n) {
    placed_[at(n)] = 1;
    candidates_.erase(n);
    order_.push_back(n);
    const bool hub = neighbours_[at(n)].size() > kHubEdges;
    for (int other : neighbours_[at(n)]) {
      --open_[at(other)];
      if (!placed_[at(other)] && !hub) candidates_.insert(other);
    }
  }

  // What placing n adds to the frontier, in bits.
  double growth(int n) const {
    double bits = open_[at(n)] > 0 ? std::log2(net_.label_count(n)) : 0;
    for (int other : neighbours_[at(n)]) {
      if (placed_[at(other)] && open_[at(other)] == 1) bits -= std::log2(net_.label_count(other));
    }
    return bits;
  }

  int best_candidate() const {
    int best = -1;
    double least = 0;
    for (int n : candidates_) {
      const double bits = growth(n);
      if (best >= 0 && !(bits < least)) continue;
      best = n;
      least = bits;
    }
    return best;
  }

  // The last node that is reached from n, twice over.
  int far_end(int n) const {
    for (int round = 0; round < 2; ++round) {
      std::vector<char> seen = placed_;
      std::vector<int> queue = {n};
      seen[at(n)] = 1;
      for (std::size_t i = 0; i < queue.size(); ++i) {
        for (int other : neighbours_[at(queue[i])]) {
          if (seen[at(other)]) continue;
          seen[at(other)] = 1;
          queue.push_back(other);
        }
      }
      n = queue.back();
    }
    return n;
  }

  const Network& net_;
  std::vector<std::vector<int>> neighbours_;
  std::vector<char> placed_;
  std::vector<int> open_;  // neighbours that are not placed
  std::set<int> candidates_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> narrow_order(const Network& net) { return Arrangement(net).run(); }

}  // namespace autopar::solver
