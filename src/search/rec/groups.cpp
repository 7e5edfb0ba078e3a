#include "search/rec/groups.hpp"

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

namespace autopar::rec {

namespace {

constexpr int kRounds = 2;  // with more, fewer are alike, and plans were no better

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Splitmix64 by Steele, Lea and Flood: a number of the whole range for every number.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return mixed(mixed(a) ^ b); }

// Numbers colours in the order of first appearance; those that differ otherwise are made to differ.
class Numbers {
 public:
  template <class Same>  // whether the one at hand is the same as the first of a number
  int of(std::uint64_t colour, const Same& same) {
    while (true) {
      const int next = static_cast<int>(known_.size());
      const int number = known_.try_emplace(colour, next).first->second;
      if (number == next || same(index(number))) return number;
      colour = mixed(colour);
    }
  }

 private:
  std::unordered_map<std::uint64_t, int> known_;
};

// What is seen from each op and star, as far as the rounds go. Colours are hashes: where two that
// differ have the same, ops that could decide on their own decide alike, no more than that.
struct Colours {
  const Wiring& wiring;
  std::vector<std::uint64_t> op, star;

  Colours(const Wiring& w, const std::vector<int>& mark_of_star) : wiring(w) {
    for (int c : wiring.class_of_op) op.push_back(mixed(index(c)));
    for (std::size_t s = 0; s < wiring.stars.size(); ++s) {
      const auto kind = index(wiring.stars[s].kind);
      star.push_back(mixed(kind, mark_of_star.empty() ? 0 : index(mark_of_star[s])));
    }
  }

  void refine() {
    std::vector<std::uint64_t> seen(star.size(), 0);
    for (std::size_t o = 0; o < op.size(); ++o) {
      for (const Touch& touch : wiring.touches_of_op[o]) {
        seen[index(touch.star)] += mixed(op[o], index(touch.kind));
      }
    }
    for (std::size_t s = 0; s < star.size(); ++s) {
      const StarOf& of = wiring.stars[s];
      if (of.update_of >= 0) seen[s] += mixed(star[index(of.update_of)], 1);
      if (of.updated_by >= 0) seen[s] += mixed(star[index(of.updated_by)], 2);
    }
    for (std::size_t o = 0; o < op.size(); ++o) {
      std::uint64_t all = op[o];
      for (const Touch& touch : wiring.touches_of_op[o]) {
        all = mixed(mixed(all, star[index(touch.star)]), index(touch.kind));
      }
      op[o] = all;
    }
    for (std::size_t s = 0; s < star.size(); ++s) star[s] = mixed(star[s], seen[s]);
  }
};

void add_ops(const Wiring& wiring, const Colours& colours, Groups& groups) {
  Numbers numbers;
  for (std::size_t o = 0; o < wiring.class_of_op.size(); ++o) {
    const int group = numbers.of(colours.op[o], [&](std::size_t g) {
      return wiring.class_of_op[index(groups.ops[g].first)] == wiring.class_of_op[o];
    });
    if (index(group) == groups.ops.size()) groups.ops.push_back({static_cast<int>(o)});
    groups.group_of_op.push_back(group);
    ++groups.ops[index(group)].count;
  }
}

void add_stars(const Wiring& wiring, const std::vector<int>& mark_of_star, const Colours& colours,
               Groups& groups) {
  Numbers numbers;
  const auto looks = [&](std::size_t s) {
    return std::pair(wiring.stars[s].kind, mark_of_star.empty() ? 0 : mark_of_star[s]);
  };
  for (std::size_t s = 0; s < wiring.stars.size(); ++s) {
    const int group = numbers.of(colours.star[s], [&](std::size_t g) {
      return looks(index(groups.stars[g].first)) == looks(s);
    });
    if (index(group) == groups.stars.size()) groups.stars.push_back({static_cast<int>(s)});
    groups.group_of_star.push_back(group);
    ++groups.stars[index(group)].count;
  }
}

void add_ports(const Wiring& wiring, Groups& groups) {
  std::vector<std::map<std::pair<int, int>, Groups::Port>> ports(groups.ops.size());
  for (std::size_t o = 0; o < wiring.touches_of_op.size(); ++o) {
    for (const Touch& touch : wiring.touches_of_op[o]) {
      const int star = groups.group_of_star[index(touch.star)];
      auto& known = ports[index(groups.group_of_op[o])];
      const auto port = known.try_emplace({star, touch.kind}, Groups::Port{star, &touch, 0}).first;
      ++port->second.count;
    }
  }
  for (std::size_t g = 0; g < ports.size(); ++g) {
    groups.ops[g].first_port = static_cast<int>(groups.ports.size());
    for (const auto& [key, port] : ports[g]) groups.ports.push_back(port);
  }
}

void add_updates(const Wiring& wiring, Groups& groups) {
  std::map<std::pair<int, int>, double> updates;
  for (std::size_t s = 0; s < wiring.stars.size(); ++s) {
    const int by = wiring.stars[s].updated_by;
    if (by >= 0) ++updates[{groups.group_of_star[s], groups.group_of_star[index(by)]}];
  }
  for (const auto& [stars, count] : updates) {
    groups.updates.push_back({stars.first, stars.second, count});
  }
}

}  // namespace

Groups each_alone(const Wiring& wiring) {
  Groups groups;
  for (std::size_t o = 0; o < wiring.class_of_op.size(); ++o) {
    groups.group_of_op.push_back(static_cast<int>(o));
    groups.ops.push_back({static_cast<int>(o), 1, static_cast<int>(groups.ports.size())});
    for (const Touch& touch : wiring.touches_of_op[o]) {
      groups.ports.push_back({touch.star, &touch, 1});
    }
  }
  for (std::size_t s = 0; s < wiring.stars.size(); ++s) {
    groups.group_of_star.push_back(static_cast<int>(s));
    groups.stars.push_back({static_cast<int>(s), 1});
  }
  add_updates(wiring, groups);
  return groups;
}

Groups alike(const Wiring& wiring, const std::vector<int>& mark_of_star) {
  Colours colours(wiring, mark_of_star);
  for (int round = 0; round < kRounds; ++round) colours.refine();
  Groups groups;
  add_ops(wiring, colours, groups);
  add_stars(wiring, mark_of_star, colours, groups);
  add_ports(wiring, groups);
  add_updates(wiring, groups);
  return groups;
}

}  // namespace autopar::rec
