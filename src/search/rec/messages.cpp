#include "search/rec/messages.hpp"

#include <algorithm>
#include <limits>

namespace autopar::rec {

namespace {

// Stands for what is not allowed: more than any cost, and still a number to calculate with.
constexpr double kForbidden = 1e30;

struct Link {
  std::size_t node = 0;
  std::size_t port = 0;  // of the node
  std::size_t star = 0;
  const PortPrices* prices = nullptr;
  Row to_star;  // per role
  Row to_node;  // per choice
};

struct Messages {
  const LevelProblem& problem;
  std::vector<Link> links;
  // Variables: nodes, then stars.
  std::vector<std::vector<std::size_t>> links_of;
  std::vector<std::size_t> order;
  std::vector<std::size_t> position;
  Row belief;  // scratch

  explicit Messages(const LevelProblem& p) : problem(p) {
    links_of.resize(p.nodes.size() + p.stars.size());
    for (std::size_t n = 0; n < p.nodes.size(); ++n) {
      for (std::size_t i = 0; i < p.nodes[n].ports.size(); ++i) {
        const LevelPort& port = p.nodes[n].ports[i];
        const auto s = static_cast<std::size_t>(port.star);
        links_of[n].push_back(links.size());
        links_of[p.nodes.size() + s].push_back(links.size());
        links.push_back({n, i, s, port.prices.get(), Row(p.stars[s].base.size(), 0.0),
                         Row(p.nodes[n].cost->size(), 0.0)});
      }
    }
    set_order();
  }

  // Values just before their first reader or just after their producer.
  void set_order() {
    std::vector<bool> placed(problem.stars.size(), false);
    const auto place = [&](const LevelNode& node, bool produced) {
      for (const LevelPort& port : node.ports) {
        const auto s = static_cast<std::size_t>(port.star);
        if (port.produces != produced || placed[s]) continue;
        placed[s] = true;
        order.push_back(problem.nodes.size() + s);
      }
    };
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
      place(problem.nodes[n], false);
      order.push_back(n);
      place(problem.nodes[n], true);
    }
    position.assign(links_of.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  }

  void set_belief(std::size_t variable) {
    if (variable < problem.nodes.size()) {
      belief = *problem.nodes[variable].cost;
      for (double& b : belief) b = std::min(b, kForbidden);
      for (std::size_t l : links_of[variable]) {
        for (std::size_t c = 0; c < belief.size(); ++c) belief[c] += links[l].to_node[c];
      }
      return;
    }
    const Star& star = problem.stars[variable - problem.nodes.size()];
    belief.assign(star.base.size(), kForbidden);
    for (int role : star.roles) {
      const auto r = static_cast<std::size_t>(role);
      belief[r] = star.base[r];
      for (std::size_t l : links_of[variable]) belief[r] += links[l].to_star[r];
    }
  }

  // The node tells the star.
  void tell_star(Link& link, double share) const {
    Row& out = link.to_star;
    std::fill(out.begin(), out.end(), std::numeric_limits<double>::infinity());
    for (std::size_t c = 0; c < belief.size(); ++c) {
      const double mine = share * belief[c] - link.to_node[c];
      const Row& price = (*link.prices)[c];
      for (std::size_t r = 0; r < out.size(); ++r) out[r] = std::min(out[r], mine + price[r]);
    }
    normalise(out);
  }

  void tell_node(Link& link, double share) const {
    Row& out = link.to_node;
    for (std::size_t c = 0; c < out.size(); ++c) {
      const Row& price = (*link.prices)[c];
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t r = 0; r < belief.size(); ++r) {
        if (belief[r] >= kForbidden / 2) continue;
        least = std::min(least, share * belief[r] - link.to_star[r] + price[r]);
      }
      out[c] = least;
    }
    normalise(out);
  }

  static void normalise(Row& row) {
    const double least = *std::min_element(row.begin(), row.end());
    for (double& v : row) v -= least;
  }

  void visit(std::size_t variable, bool forward) {
    const std::vector<std::size_t>& mine = links_of[variable];
    const bool is_node = variable < problem.nodes.size();
    std::size_t after = 0;
    for (std::size_t l : mine) after += is_after(l, variable, is_node);
    const std::size_t most = std::max(after, mine.size() - after);
    if (most == 0) return;
    set_belief(variable);
    const double share = 1.0 / static_cast<double>(most);
    for (std::size_t l : mine) {
      if (is_after(l, variable, is_node) != forward) continue;
      if (is_node) {
        tell_star(links[l], share);
      } else {
        tell_node(links[l], share);
      }
    }
  }

  bool is_after(std::size_t l, std::size_t variable, bool is_node) const {
    const std::size_t other = is_node ? problem.nodes.size() + links[l].star : links[l].node;
    return position[other] > position[variable];
  }

  void run(int passes) {
    for (int p = 0; p < passes; ++p) {
      for (std::size_t v : order) visit(v, true);
      for (auto v = order.rbegin(); v != order.rend(); ++v) visit(*v, false);
    }
  }
};

}  // namespace

std::vector<std::vector<Row>> messages_to_stars(const LevelProblem& problem, int passes) {
  Messages messages(problem);
  messages.run(passes);
  std::vector<std::vector<Row>> told(problem.nodes.size());
  for (std::size_t n = 0; n < told.size(); ++n) told[n].resize(problem.nodes[n].ports.size());
  for (Link& link : messages.links) told[link.node][link.port] = std::move(link.to_star);
  return told;
}

}  // namespace autopar::rec
