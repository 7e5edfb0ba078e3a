#include "solve/network/blocks.hpp"

#include <algorithm>

namespace autopar::solver {
namespace {

class Blocks {
 public:
  Blocks(const Network& net, const std::vector<char>& left_out)
      : net_(net),
        left_out_(left_out),
        block_(net.edges.size(), -1),
        depth_(net.nodes.size(), -1),
        low_(net.nodes.size(), 0) {}

  std::vector<int> run() {
    for (std::size_t n = 0; n < net_.nodes.size(); ++n) {
      if (!net_.nodes[n].gone && !left_out_[n] && depth_[n] < 0) visit(static_cast<int>(n));
    }
    return std::move(block_);
  }

 private:
  struct Visit {
    int node;
    int by;  // the edge that led here
    std::size_t next = 0;
  };

  // Depth first, on a stack of its own: graphs can be deep.
  void visit(int root) {
    std::vector<Visit> path = {{root, -1}};
    depth_[at(root)] = low_[at(root)] = 0;
    while (!path.empty()) {
      Visit& here = path.back();
      const std::vector<int>& edges = net_.node(here.node).edges;
      if (here.next < edges.size()) {
        const int e = edges[here.next++];
        if (e != here.by) follow(e, path);
        continue;
      }
      const Visit done = here;
      path.pop_back();
      if (path.empty()) break;
      int& low = low_[at(path.back().node)];
      low = std::min(low, low_[at(done.node)]);
      if (low_[at(done.node)] >= depth_[at(path.back().node)]) close(done.by);
    }
  }

  void follow(int e, std::vector<Visit>& path) {
    const int here = path.back().node;
    const int there = other_end(net_.edge(e), here);
    if (left_out_[at(there)]) return;
    if (depth_[at(there)] < 0) {
      open_.push_back(e);
      depth_[at(there)] = low_[at(there)] = depth_[at(here)] + 1;
      path.push_back({there, e});
    } else if (depth_[at(there)] < depth_[at(here)]) {
      open_.push_back(e);
      low_[at(here)] = std::min(low_[at(here)], depth_[at(there)]);
    }
  }

  void close(int edge) {
    while (true) {
      const int e = open_.back();
      open_.pop_back();
      block_[at(e)] = count_;
      if (e == edge) break;
    }
    ++count_;
  }

  const Network& net_;
  const std::vector<char>& left_out_;
  std::vector<int> block_;
  std::vector<int> depth_, low_;
  std::vector<int> open_;  // edges that are in no block yet
  int count_ = 0;
};

}  // namespace

std::vector<int> blocks_of_edges(const Network& net, const std::vector<char>& left_out) {
  return Blocks(net, left_out).run();
}

}  // namespace autopar::solver
