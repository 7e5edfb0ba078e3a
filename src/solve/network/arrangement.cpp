#include "solve/network/arrangement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "solve/effort.hpp"
#include "solve/network/blocks.hpp"

namespace autopar::solver {
namespace {

using namespace effort::arrangement;
using namespace effort::order;

// Greedy: of the nodes next to those placed, always the one that adds least to the frontier. What a
// node adds is kept, and looked at again only where a neighbour, or a neighbour's last one, was
// placed: near-linear in nodes and edges.
class Arrangement {
 public:
  // By blocks: those that have been begun are finished first, the last one before the others.
  Arrangement(const Network& net, bool by_blocks)
      : net_(net),
        by_blocks_(by_blocks),
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
      std::sort(neighbours_[n].begin(), neighbours_[n].end());
      neighbours_[n].erase(std::unique(neighbours_[n].begin(), neighbours_[n].end()),
                           neighbours_[n].end());
      open_[n] = static_cast<int>(neighbours_[n].size());
    }
    if (by_blocks) find_blocks();
  }

  std::vector<int> run() {
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (!net_.nodes[n].gone && is_hub(static_cast<int>(n))) place(static_cast<int>(n));
    }
    for (std::size_t n = 0; n < neighbours_.size(); ++n) {
      if (net_.nodes[n].gone || placed_[n]) continue;
      place_next(far_end(static_cast<int>(n)));
      while (!candidates_.empty()) place_next(std::get<2>(*candidates_.begin()));
    }
    return order_;
  }

  // Any order at all.
  void follow(const std::vector<int>& order) {
    for (int n : order) place(n);
  }

  // How many labellings of the frontiers there are at most, all in all.
  double width() const { return width_; }

 private:
  // The most urgent first, then what grows least, then the first.
  using Rank = std::tuple<int, double, int>;

  bool is_hub(int n) const { return neighbours_[at(n)].size() > kHubEdges; }

  void place(int n) {
    bits_ += growth(n);
    width_ += std::exp2(bits_ + bits_of_[at(n)]);
    note_begun(n);
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
    for (int block : std::exchange(newly_begun_, {})) {
      for (int e : edges_of_[at(block)]) {
        for (int end : {net_.edge(e).a, net_.edge(e).b}) {
          if (waiting_[at(end)]) rank(end);
        }
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
    const double bits = growth(n);
    const Rank now = {-urgency(n, bits), bits, n};
    if (waiting_[at(n)] && ranks_[at(n)] == now) return;
    if (waiting_[at(n)]) candidates_.erase(ranks_[at(n)]);
    waiting_[at(n)] = 1;
    ranks_[at(n)] = now;
    candidates_.insert(now);
  }

  void find_blocks() {
    std::vector<char> hub(net_.nodes.size(), 0);
    for (std::size_t n = 0; n < hub.size(); ++n) hub[n] = neighbours_[n].size() > kHubEdges;
    block_ = blocks_of_edges(net_, hub);
    begun_.assign(net_.edges.size(), -1);
    edges_of_.resize(net_.edges.size());
    for (std::size_t e = 0; e < block_.size(); ++e) {
      if (block_[e] >= 0) edges_of_[at(block_[e])].push_back(static_cast<int>(e));
    }
    find_pendants();
  }

  // Trees that hang on the rest: nodes without more than one neighbour, and so on without these.
  void find_pendants() {
    pendant_.assign(net_.nodes.size(), 0);
    std::vector<int> left(net_.nodes.size(), 0), queue;
    for (std::size_t n = 0; n < left.size(); ++n) {
      if (net_.nodes[n].gone || neighbours_[n].size() > kHubEdges) continue;
      for (int other : neighbours_[n]) left[n] += neighbours_[at(other)].size() > kHubEdges ? 0 : 1;
      if (left[n] <= 1) queue.push_back(static_cast<int>(n));
    }
    for (std::size_t i = 0; i < queue.size(); ++i) {
      pendant_[at(queue[i])] = 1;
      for (int other : neighbours_[at(queue[i])]) {
        if (neighbours_[at(other)].size() <= kHubEdges && --left[at(other)] == 1) {
          queue.push_back(other);
        }
      }
    }
  }

  // When the block was begun through which n is reached; nothing that ends with n has to wait, nor
  // do trees: their root could not leave the frontier before.
  int urgency(int n, double growth) const {
    if (!by_blocks_) return 0;
    if (growth <= 0 || pendant_[at(n)]) return std::numeric_limits<int>::max();
    int latest = -1;
    for (int e : net_.node(n).edges) {
      if (placed_[at(other_end(net_.edge(e), n))] && block_[at(e)] >= 0) {
        latest = std::max(latest, begun_[at(block_[at(e)])]);
      }
    }
    return latest;
  }

  void note_begun(int n) {
    if (!by_blocks_) return;
    for (int e : net_.node(n).edges) {
      if (block_[at(e)] < 0 || !placed_[at(other_end(net_.edge(e), n))]) continue;
      int& begun = begun_[at(block_[at(e)])];
      if (begun >= 0) continue;
      begun = static_cast<int>(order_.size());
      newly_begun_.push_back(block_[at(e)]);
    }
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
  bool by_blocks_;
  double bits_ = 0, width_ = 0;  // of the frontier now; of all
  std::vector<std::vector<int>> neighbours_;
  Vector bits_of_;
  std::vector<char> placed_;
  std::vector<int> open_;   // neighbours that are not placed
  std::vector<int> block_;  // per edge
  std::vector<char> pendant_;
  std::vector<int> begun_;                  // per block: place in the order, or -1
  std::vector<std::vector<int>> edges_of_;  // per block
  std::vector<int> newly_begun_;            // blocks, by the last node
  std::vector<int> seen_;                   // per node: by which search for a far end, from 1 on
  int searches_ = 0;
  std::set<Rank> candidates_;
  std::vector<Rank> ranks_;  // per node, of those that wait among the candidates
  std::vector<char> waiting_;
  std::vector<int> order_;
};

bool is_hub(const Network& net, int n) { return net.node(n).edges.size() > kHubEdges; }

// Per node of the order, what it is connected to other than by hubs: the place of the first node.
std::vector<std::size_t> components(const Network& net, const std::vector<int>& order) {
  std::vector<std::size_t> of_node(net.nodes.size(), SIZE_MAX), result;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (of_node[at(order[i])] == SIZE_MAX) {
      std::vector<int> reached = {order[i]};
      of_node[at(order[i])] = i;
      for (std::size_t k = 0; k < reached.size(); ++k) {
        if (is_hub(net, reached[k])) continue;
        for (int e : net.node(reached[k]).edges) {
          const int other = other_end(net.edge(e), reached[k]);
          if (of_node[at(other)] != SIZE_MAX || is_hub(net, other)) continue;
          of_node[at(other)] = i;
          reached.push_back(other);
        }
      }
    }
    result.push_back(of_node[at(order[i])]);
  }
  return result;
}

// Calls visit(row) for all rows that n or an edge of it uses for a short time.
template <class Visit>
void for_short_uses(const Network& net, int n, Visit visit) {
  const auto look = [&](const std::vector<RowUse>& uses) {
    for (const RowUse& use : uses) {
      if (2 * at(use.end - use.begin) > net.capacity.size() + 1) continue;
      for (int r = use.begin; r < use.end; ++r) visit(at(r));
    }
  };
  look(net.node(n).uses);
  for (int e : net.node(n).edges) look(net.edge(e).uses);
}

// Parts that are connected to the rest by hubs at most go where the largest part has done with
// their rows, so that no row has to be told apart for longer than it must.
std::vector<int> near_their_rows(const Network& net, const std::vector<int>& order) {
  std::vector<std::size_t> component = components(net, order);
  std::vector<std::size_t> sizes(order.size(), 0);
  for (std::size_t c : component) ++sizes[c];
  const std::size_t largest =
      static_cast<std::size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (is_hub(net, order[i])) component[i] = largest;
  }
  std::vector<std::size_t> done(net.capacity.size(), 0), place(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (component[i] != largest) continue;
    for_short_uses(net, order[i], [&](std::size_t row) { done[row] = i; });
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::size_t& its = place[component[i]];
    for_short_uses(net, order[i], [&](std::size_t row) { its = std::max(its, done[row]); });
  }
  std::vector<std::size_t> numbers(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) numbers[i] = i;
  const auto key = [&](std::size_t i) {
    return component[i] == largest ? 2 * i : 2 * place[component[i]] + 1;
  };
  std::stable_sort(numbers.begin(), numbers.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(key(a), component[a]) < std::pair(key(b), component[b]);
  });
  std::vector<int> result;
  for (std::size_t i : numbers) result.push_back(order[i]);
  return result;
}

}  // namespace

std::vector<int> narrow_order(const Network& net) {
  Arrangement plain(net, false);
  std::vector<int> best = plain.run();
  if (plain.width() > kNarrow) {
    double width = plain.width();
    const auto keep_narrower = [&](const Arrangement& other, std::vector<int> order) {
      if (!(other.width() < width)) return;
      width = other.width();
      best = std::move(order);
    };
    Arrangement by_blocks(net, true);
    std::vector<int> order = by_blocks.run();
    keep_narrower(by_blocks, std::move(order));
    // The greedy order takes the small steps first, into all of many like branches at once; the
    // nodes' own order follows the model's, which finishes one before the next.
    std::vector<int> numbers = best;
    std::sort(numbers.begin(), numbers.end());
    Arrangement by_number(net, false);
    by_number.follow(numbers);
    keep_narrower(by_number, std::move(numbers));
  }
  return net.capacity.empty() || best.empty() ? best : near_their_rows(net, best);
}

}  // namespace autopar::solver
