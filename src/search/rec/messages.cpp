#include "search/rec/messages.hpp"

#include <algorithm>
#include <limits>

namespace autopar::rec {

namespace {

// Messages are numbered like the ports.
struct Messages {
  // A node or a star, and its messages to and from those that come earlier, then later.
  struct Variable {
    bool is_node = false;
    std::size_t id = 0;
    std::size_t begin = 0, middle = 0, end = 0;  // in `links`
  };
  struct Link {
    const PortPrices* prices = nullptr;
    double* to_star = nullptr;  // per role
    double* to_node = nullptr;  // per choice
    std::size_t roles = 0, choices = 0;
  };

  const LevelProblem& problem;
  PortRows to_star;
  std::vector<double> to_node;
  std::vector<Link> link_of_port;
  std::vector<Variable> order;
  std::vector<std::size_t> links;   // ports, by variable
  std::vector<double> belief, sum;  // scratch

  explicit Messages(const LevelProblem& p) : problem(p) {
    std::size_t roles = 0, choices = 0, most = 1;
    link_of_port.resize(p.ports.size());
    for (std::size_t n = 0; n < p.nodes.size(); ++n) {
      for (std::size_t i = p.first_port(n); i < p.first_port(n + 1); ++i) {
        Link& link = link_of_port[i];
        link.prices = &p.prices[static_cast<std::size_t>(p.ports[i].prices)];
        link.roles = p.roles(p.ports[i].star);
        link.choices = p.choices(n);
        most = std::max({most, link.roles, link.choices});
        to_star.first.push_back(static_cast<int>(roles));
        roles += link.roles;
        choices += link.choices;
      }
    }
    to_star.values.assign(roles, 0.0);
    to_node.assign(choices, 0.0);
    belief.resize(most);
    sum.resize(most);
    choices = 0;
    for (std::size_t i = 0; i < link_of_port.size(); ++i) {
      link_of_port[i].to_star = to_star.values.data() + static_cast<std::size_t>(to_star.first[i]);
      link_of_port[i].to_node = to_node.data() + choices;
      choices += link_of_port[i].choices;
    }
    set_order();
  }

  // Values just before their first reader or just after their producer.
  void set_order() {
    constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> node_at(problem.nodes.size()), star_at(problem.star_count(), kNowhere);
    const auto place = [&](std::size_t n, bool produced) {
      for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
        const auto s = static_cast<std::size_t>(problem.ports[i].star);
        if (problem.ports[i].produces != produced || star_at[s] != kNowhere) continue;
        star_at[s] = order.size();
        order.push_back({false, s});
      }
    };
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
      place(n, false);
      node_at[n] = order.size();
      order.push_back({true, n});
      place(n, true);
    }
    count_links(node_at, star_at);
  }

  void count_links(const std::vector<std::size_t>& node_at,
                   const std::vector<std::size_t>& star_at) {
    const auto each = [&](const auto& visit) {
      for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
        for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
          const std::size_t star = star_at[static_cast<std::size_t>(problem.ports[i].star)];
          visit(order[node_at[n]], star > node_at[n], i);
          visit(order[star], node_at[n] > star, i);
        }
      }
    };
    // First how many, then which.
    each([](Variable& v, bool after, std::size_t) { ++(after ? v.end : v.middle); });
    std::size_t next = 0;
    for (Variable& v : order) {
      const std::size_t before = v.middle, after = v.end;
      v.begin = v.middle = next;
      v.end = next + before;
      next += before + after;
    }
    links.resize(next);
    // While filling, `middle` and `end` are where the next one goes.
    each([&](Variable& v, bool after, std::size_t i) { links[after ? v.end++ : v.middle++] = i; });
  }

  void set_belief(const Variable& v) {
    if (v.is_node) {
      const Row& cost = problem.costs[static_cast<std::size_t>(problem.nodes[v.id].cost)];
      std::copy(cost.begin(), cost.end(), belief.begin());
      for (std::size_t l = v.begin; l < v.end; ++l) {
        const double* told = link_of_port[links[l]].to_node;
        for (std::size_t c = 0; c < cost.size(); ++c) belief[c] += told[c];
      }
      return;
    }
    const auto first = static_cast<std::size_t>(problem.first_role[v.id]);
    const std::size_t roles = problem.roles(static_cast<int>(v.id));
    std::copy_n(problem.base.begin() + static_cast<std::ptrdiff_t>(first), roles, belief.begin());
    for (std::size_t l = v.begin; l < v.end; ++l) {
      const double* told = link_of_port[links[l]].to_star;
      for (std::size_t r = 0; r < roles; ++r) belief[r] += told[r];
    }
  }

  // The inner loops go over pairs of roles (rows are padded), so that they fill SSE registers.
  void tell_star(const Link& link, double share) {
    for (std::size_t c = 0; c < link.choices; ++c) sum[c] = share * belief[c] - link.to_node[c];
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < link.roles; r += 2) {
      const double* price = link.prices->row(0) + r;
      double a = std::numeric_limits<double>::infinity(), b = a;
      for (std::size_t c = 0; c < link.choices; ++c, price += link.roles) {
        a = std::min(a, sum[c] + price[0]);
        b = std::min(b, sum[c] + price[1]);
      }
      link.to_star[r] = a;
      link.to_star[r + 1] = b;
      least = std::min(least, std::min(a, b));
    }
    for (std::size_t r = 0; r < link.roles; ++r) link.to_star[r] -= least;
  }

  void tell_node(const Link& link, double share) {
    for (std::size_t r = 0; r < link.roles; ++r) {
      const bool never = belief[r] >= kForbidden / 2;
      sum[r] = never ? kForbidden : share * belief[r] - link.to_star[r];
    }
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < link.choices; ++c) {
      const double* price = link.prices->row(c);
      double a = std::numeric_limits<double>::infinity(), b = a;
      for (std::size_t r = 0; r < link.roles; r += 2) {
        a = std::min(a, sum[r] + price[r]);
        b = std::min(b, sum[r + 1] + price[r + 1]);
      }
      link.to_node[c] = std::min(a, b);
      least = std::min(least, link.to_node[c]);
    }
    for (std::size_t c = 0; c < link.choices; ++c) link.to_node[c] -= least;
  }

  void visit(const Variable& v, bool forward) {
    const std::size_t first = forward ? v.middle : v.begin, last = forward ? v.end : v.middle;
    if (first == last) return;
    set_belief(v);
    const double share = 1.0 / static_cast<double>(std::max(v.end - v.middle, v.middle - v.begin));
    for (std::size_t l = first; l < last; ++l) {
      const Link& link = link_of_port[links[l]];
      if (v.is_node) {
        tell_star(link, share);
      } else {
        tell_node(link, share);
      }
    }
  }

  void run(int passes) {
    for (int p = 0; p < passes; ++p) {
      for (const Variable& v : order) visit(v, true);
      for (auto v = order.rbegin(); v != order.rend(); ++v) visit(*v, false);
    }
  }
};

}  // namespace

PortRows messages_to_stars(const LevelProblem& problem, int passes) {
  Messages messages(problem);
  messages.run(passes);
  return std::move(messages.to_star);
}

}  // namespace autopar::rec
