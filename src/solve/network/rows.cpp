// Fewer rows: those that cannot be exceeded, and those that cannot be exceeded unless a
// neighbouring row is.
#include <algorithm>
#include <utility>

#include "solve/network/network.hpp"

namespace autopar::solver {
namespace {

double largest(const Vector& values) { return *std::max_element(values.begin(), values.end()); }

// By how much the uses of row r + 1 can at most exceed those of row r (up), and the other way.
struct Steps {
  Vector up, down;
};
Steps steps_between(const Network& net) {
  const std::size_t rows = net.capacity.size();
  Steps steps = {Vector(rows, 0.0), Vector(rows, 0.0)};
  for_each_owner(net, [&](const std::vector<RowUse>& uses, auto values_of) {
    std::vector<std::pair<int, int>> events;  // first row after the change, index of the use
    for (std::size_t u = 0; u < uses.size(); ++u) {
      events.emplace_back(uses[u].begin, static_cast<int>(u));
      events.emplace_back(uses[u].end, static_cast<int>(u));
    }
    std::sort(events.begin(), events.end());
    for (std::size_t i = 0; i < events.size();) {
      const int row = events[i].first;
      Vector change(values_of(uses[0]).size(), 0.0);
      for (; i < events.size() && events[i].first == row; ++i) {
        const RowUse& use = uses[at(events[i].second)];
        if (use.begin == use.end) continue;
        const Vector& values = values_of(use);
        const double sign = use.begin == row ? 1.0 : -1.0;
        for (std::size_t l = 0; l < change.size(); ++l) change[l] += sign * values[l];
      }
      if (row == 0 || at(row) >= rows) continue;
      steps.up[at(row) - 1] += largest(change);
      for (double& value : change) value = -value;
      steps.down[at(row) - 1] += largest(change);
    }
  });
  return steps;
}

// A priced row stays: the constant accounts for its whole capacity.
std::vector<char> rows_to_drop(const Network& net) {
  const std::size_t rows = net.capacity.size();
  std::vector<char> drop(rows, 0);
  Vector most(rows + 1, 0.0);
  for_each_owner(net, [&](const std::vector<RowUse>& uses, auto values_of) {
    for (const RowUse& use : uses) {
      const double bytes = largest(values_of(use));
      most[at(use.begin)] += bytes;
      most[at(use.end)] -= bytes;
    }
  });
  double sum = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    sum += most[r];
    drop[r] = net.multiplier[r] == 0 && sum <= net.capacity[r];
  }
  const Steps steps = steps_between(net);
  for (std::size_t r = 0; r + 1 < rows; ++r) {
    const double more = net.capacity[r + 1] - net.capacity[r];
    if (net.multiplier[r] == 0 && steps.down[r] <= -more) {
      drop[r] = 1;
    } else if (net.multiplier[r + 1] == 0 && steps.up[r] <= more) {
      drop[r + 1] = 1;
    }
  }
  return drop;
}

void remove_rows(Network& net, const std::vector<char>& drop) {
  std::vector<int> position(drop.size() + 1, 0);
  Vector capacity, multiplier;
  std::vector<int> times;
  for (std::size_t r = 0; r < drop.size(); ++r) {
    position[r] = static_cast<int>(capacity.size());
    if (drop[r]) continue;
    capacity.push_back(net.capacity[r]);
    multiplier.push_back(net.multiplier[r]);
    times.push_back(net.row_time[r]);
  }
  position[drop.size()] = static_cast<int>(capacity.size());
  const auto move = [&](std::vector<RowUse>& uses) {
    std::erase_if(uses, [&](RowUse& use) {
      use.begin = position[at(use.begin)];
      use.end = position[at(use.end)];
      return use.begin == use.end;
    });
  };
  for (Node& node : net.nodes) {
    move(node.uses);
    if (!node.gone) separate_uses(net, node);
  }
  for (Edge& edge : net.edges) move(edge.uses);
  net.capacity = std::move(capacity);
  net.multiplier = std::move(multiplier);
  net.row_time = std::move(times);
}

}  // namespace

void separate_uses(Network& net, Node& node) {
  if (node.uses.size() < 2) return;
  std::vector<RowUse> separate;
  for_each_stretch(net, node, [&](int begin, int end, const Vector& sum) {
    if (largest(sum) == 0) return;
    const int bytes = net.algebra.add_vector(sum);
    if (!separate.empty() && separate.back().bytes == bytes && separate.back().end == begin) {
      separate.back().end = end;
    } else {
      separate.push_back({begin, end, bytes});
    }
  });
  node.uses = std::move(separate);
}

std::vector<int> overfull_rows(const Vector& uses, const Vector& capacity, std::size_t most) {
  std::vector<std::pair<double, int>> worst;  // how much is missing, row
  bool within = true;
  for (std::size_t r = 0; r < uses.size(); ++r) {
    const double over = uses[r] - capacity[r];
    if (over > 0 && within) worst.emplace_back(over, static_cast<int>(r));
    if (over > 0 && over > worst.back().first) worst.back() = {over, static_cast<int>(r)};
    within = !(over > 0);
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (worst.size() > most) worst.resize(most);
  std::vector<int> rows;
  for (const auto& [over, row] : worst) rows.push_back(row);
  return rows;
}

void keep_rows(Network& net, const std::vector<int>& rows) {
  std::vector<char> drop(net.capacity.size(), 1);
  for (int row : rows) drop[at(row)] = 0;
  remove_rows(net, drop);
}

void drop_slack_rows(Network& net) {
  for (double capacity : net.capacity) net.impossible = net.impossible || capacity < 0;
  while (!net.impossible && !net.capacity.empty()) {
    const std::vector<char> drop = rows_to_drop(net);
    if (std::count(drop.begin(), drop.end(), 1) == 0) return;
    remove_rows(net, drop);
  }
}

}  // namespace autopar::solver
