#include "solve/network/presolve.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "solve/effort.hpp"
#include "solve/network/algebra.hpp"

namespace autopar::solver {
namespace {

using namespace effort::presolve;

enum State : char { kGone, kDying, kLeft };  // of a label; dying ones still count as partners

// A table between two nodes, seen through maps from their present labels to its rows and columns.
struct MappedTable {
  const CostTable* table = nullptr;
  int map_a = 0, map_b = 0;
  std::shared_ptr<const CostTable> made = nullptr;  // where it is none of the problem's
};
struct MappedUse {
  int begin = 0, end = 0;
  MappedTable part;
};
struct Link {
  int a = kNone, b = kNone;
  std::optional<MappedTable> cost;
  std::vector<MappedUse> uses = {};
  bool gone = false;
  // Per label: partners that are left; and how many labels that are left have several.
  std::vector<int> support_a = {}, support_b = {};
  int several_a = 0, several_b = 0;
};

// There is no function where every table allows several partners.
bool worth_trying(const Problem& problem) {
  std::vector<char> tight(problem.tables.size(), 0);
  for (std::size_t t = 0; t < tight.size(); ++t) {
    const CostTable& table = problem.tables[t];
    const auto forbidden = std::count(table.values.begin(), table.values.end(), kInfinity);
    tight[t] = 2 * static_cast<std::size_t>(forbidden) >= table.values.size();
  }
  std::size_t count = 0;
  for (const ProblemEdge& edge : problem.edges) {
    count += edge.cost_table >= 0 && tight[at(edge.cost_table)] ? 1 : 0;
  }
  return static_cast<double>(count) >=
         (1 - effort::presolve::kWorthwhile) * static_cast<double>(problem.nodes.size());
}

// What is left has a table for each link, written out for its labels: it is of no use where equal
// tables that many edges share would become more entries than there were (a step of ResNet-50: 11
// million of them, 87 million then).
// Source of the propagation: Mohr, Henderson, "Arc and path consistency revisited", Artificial
// Intelligence 1986 (AC-4): O(entries of the tables). Every merge looks at the tables of the node
// that goes once more.
class Presolve {
 public:
  explicit Presolve(const Problem& problem)
      : problem_(problem), state_(problem.nodes.size()), links_of_(problem.nodes.size()) {
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
      cost_.push_back(problem.nodes[n].cost);
      state_[n].assign(cost_[n].size(), kLeft);
      left_.push_back(static_cast<int>(cost_[n].size()));
    }
    parent_.assign(problem.nodes.size(), kNone);
    from_parent_.resize(problem.nodes.size());
    further_uses_.resize(problem.nodes.size());
  }

  std::optional<Presolved> run() {
    add_links();
    for (std::size_t n = 0; n < cost_.size(); ++n) {
      for (std::size_t l = 0; l < cost_[n].size(); ++l) {
        if (cost_[n][l] == kInfinity) kill(static_cast<int>(n), static_cast<int>(l));
      }
    }
    propagate();
    for (int e = 0; e < static_cast<int>(links_.size()); ++e) candidates_.push_back(e);
    while (!candidates_.empty() && !impossible_ && work_ <= work_limit_) {
      const int e = candidates_.front();
      candidates_.pop_front();
      merge_function(e);
      propagate();
    }
    const double merged = static_cast<double>(merged_.size());
    const bool few =
        merged < (1 - effort::presolve::kWorthwhile) * static_cast<double>(cost_.size());
    if (impossible_ || few || entries_left() > entries_of(problem_)) return std::nullopt;
    return result();
  }

 private:
  static double entries_of(const Problem& problem) {
    double entries = 0;
    for (const CostTable& table : problem.tables) {
      entries += static_cast<double>(table.values.size());
    }
    return entries;
  }

  // Of the tables of what is left, each link's its own.
  double entries_left() const {
    double entries = 0;
    for (const Link& link : links_) {
      const auto tables = static_cast<double>((link.cost ? 1 : 0) + link.uses.size());
      if (!link.gone) entries += tables * left_[at(link.a)] * left_[at(link.b)];
    }
    return entries;
  }

  void add_links() {
    maps_.reserve(1024);
    double entries = 0;
    for (const ProblemEdge& edge : problem_.edges) {
      Link link = {.a = edge.from, .b = edge.to, .cost = std::nullopt};
      const int a = identity(edge.from), b = identity(edge.to);
      if (edge.cost_table >= 0) link.cost = {&problem_.tables[at(edge.cost_table)], a, b};
      for (const EdgeUse& use : edge.uses) {
        link.uses.push_back({use.begin, use.end, {&problem_.tables[at(use.table)], a, b}});
      }
      entries += static_cast<double>(cost_[at(link.a)].size() * cost_[at(link.b)].size());
      attach(std::move(link));
    }
    work_limit_ = work_ + kMostWork * entries;
  }

  int identity(int n) {
    const std::size_t count = cost_[at(n)].size();
    if (identities_.size() <= count) identities_.resize(count + 1, kNone);
    int& id = identities_[count];
    if (id == kNone) {
      id = static_cast<int>(maps_.size());
      Labels labels(count);
      for (std::size_t l = 0; l < count; ++l) labels[l] = static_cast<int>(l);
      maps_.push_back(std::move(labels));
    }
    return id;
  }

  static std::uint64_t key(int a, int b) {
    const auto low = static_cast<std::uint64_t>(std::min(a, b));
    return (low << 32) | static_cast<std::uint64_t>(std::max(a, b));
  }

  // Adds a link, or adds it to the one that there is between the same nodes.
  void attach(Link link) {
    const auto [known, added] = link_between_.emplace(key(link.a, link.b), 0);
    int e = known->second;
    if (added || links_[at(e)].gone) {
      e = known->second = static_cast<int>(links_.size());
      links_of_[at(link.a)].push_back(e);
      links_of_[at(link.b)].push_back(e);
      links_.push_back(std::move(link));
    } else {
      join(links_[at(e)], link);
    }
    count(links_[at(e)]);
    candidates_.push_back(e);
  }

  void join(Link& kept, Link& extra) {
    if (kept.a != extra.a) turn(extra);
    kept.uses.insert(kept.uses.end(), extra.uses.begin(), extra.uses.end());
    if (!kept.cost || !extra.cost) {
      if (extra.cost) kept.cost = extra.cost;
      return;
    }
    const std::size_t rows = cost_[at(kept.a)].size(), columns = cost_[at(kept.b)].size();
    CostTable sum = {static_cast<int>(rows), static_cast<int>(columns), {}};
    sum.values.reserve(rows * columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        sum.values.push_back(value(*kept.cost, i, j) + value(*extra.cost, i, j));
      }
    }
    work_ += static_cast<double>(sum.values.size());
    kept.cost = own(std::move(sum), identity(kept.a), identity(kept.b));
  }

  void turn(Link& link) {
    std::swap(link.a, link.b);
    const auto turn_part = [&](MappedTable& part) {
      part = own(transposed(*part.table), part.map_b, part.map_a);
    };
    if (link.cost) turn_part(*link.cost);
    for (MappedUse& use : link.uses) turn_part(use.part);
  }

  static MappedTable own(CostTable table, int map_a, int map_b) {
    auto made = std::make_shared<const CostTable>(std::move(table));
    return {made.get(), map_a, map_b, made};
  }

  static CostTable transposed(const CostTable& table) {
    CostTable result = {table.columns, table.rows, {}};
    result.values.reserve(table.values.size());
    for (int j = 0; j < table.columns; ++j) {
      for (int i = 0; i < table.rows; ++i) result.values.push_back(table.at(i, j));
    }
    return result;
  }

  double value(const MappedTable& part, std::size_t i, std::size_t j) const {
    return part.table->at(maps_[at(part.map_a)][i], maps_[at(part.map_b)][j]);
  }
  bool possible(const Link& link, std::size_t i, std::size_t j) const {
    return !link.cost || value(*link.cost, i, j) < kInfinity;
  }

  // Partners of all labels that are left. As long as none is gone, links of one of the problem's
  // tables have the same.
  void count(Link& link) {
    const std::vector<State>& rows = state_[at(link.a)];
    const std::vector<State>& columns = state_[at(link.b)];
    const bool is_whole = !is_any_gone_ && link.cost && link.cost->made == nullptr &&
                          link.cost->map_a == identity(link.a) &&
                          link.cost->map_b == identity(link.b);
    const auto known = is_whole ? counted_.find(link.cost->table) : counted_.end();
    if (known != counted_.end()) {
      std::tie(link.support_a, link.support_b) = known->second;
    } else {
      link.support_a.assign(rows.size(), 0);
      link.support_b.assign(columns.size(), 0);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = 0; rows[i] != kGone && j < columns.size(); ++j) {
          if (columns[j] == kGone || !possible(link, i, j)) continue;
          ++link.support_a[i];
          ++link.support_b[j];
        }
      }
      work_ += static_cast<double>(rows.size() * columns.size());
      if (is_whole) counted_.emplace(link.cost->table, std::pair(link.support_a, link.support_b));
    }
    link.several_a = link.several_b = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == kLeft && link.support_a[i] == 0) kill(link.a, static_cast<int>(i));
      link.several_a += link.support_a[i] > 1 ? 1 : 0;
    }
    for (std::size_t j = 0; j < columns.size(); ++j) {
      if (columns[j] == kLeft && link.support_b[j] == 0) kill(link.b, static_cast<int>(j));
      link.several_b += link.support_b[j] > 1 ? 1 : 0;
    }
  }

  void kill(int n, int label) {
    if (state_[at(n)][at(label)] != kLeft) return;
    state_[at(n)][at(label)] = kDying;
    impossible_ = impossible_ || --left_[at(n)] == 0;
    killed_.emplace_back(n, label);
  }

  void propagate() {
    while (!killed_.empty() && !impossible_) {
      const auto [n, label] = killed_.front();
      killed_.pop_front();
      state_[at(n)][at(label)] = kGone;
      is_any_gone_ = true;
      for (int e : links_of_[at(n)]) {
        if (!links_[at(e)].gone) take_support(e, n, at(label));
      }
    }
  }

  void take_support(int e, int n, std::size_t label) {
    Link& link = links_[at(e)];
    const bool is_a = link.a == n;
    int& mine = (is_a ? link.support_a : link.support_b)[label];
    if (mine > 1) --(is_a ? link.several_a : link.several_b);
    mine = 0;
    const int other = is_a ? link.b : link.a;
    std::vector<int>& support = is_a ? link.support_b : link.support_a;
    int& several = is_a ? link.several_b : link.several_a;
    for (std::size_t j = 0; j < support.size(); ++j) {
      if (support[j] == 0) continue;
      if (!possible(link, is_a ? label : j, is_a ? j : label)) continue;
      if (--support[j] == 1) --several;
      if (support[j] == 0) kill(other, static_cast<int>(j));
    }
    work_ += static_cast<double>(support.size());
    if (link.several_a == 0 || link.several_b == 0) candidates_.push_back(e);
  }

  void merge_function(int e) {
    const Link& link = links_[at(e)];
    if (link.gone || (link.several_a != 0 && link.several_b != 0)) return;
    const auto degree = [&](int n) { return links_of_[at(n)].size(); };
    bool into_a = link.several_a == 0;
    if (into_a && link.several_b == 0) into_a = degree(link.a) >= degree(link.b);
    absorb(e, into_a ? link.a : link.b, into_a ? link.b : link.a);
  }

  // Every label of `kept` that is left has one partner in `gone`.
  void absorb(int e, int kept, int gone) {
    const Labels partner = partners(e, kept, gone);
    take_over(e, kept, gone, partner);
    links_[at(e)].gone = true;
    parent_[at(gone)] = kept;
    from_parent_[at(gone)] = partner;
    merged_.push_back(gone);
    std::unordered_map<int, int> composed;
    const auto compose = [&](int& map) {
      const auto [found, added] = composed.emplace(map, static_cast<int>(maps_.size()));
      if (added) {
        Labels labels(partner.size());
        for (std::size_t l = 0; l < labels.size(); ++l) labels[l] = maps_[at(map)][at(partner[l])];
        maps_.push_back(std::move(labels));
      }
      map = found->second;
    };
    const std::vector<int> links = std::move(links_of_[at(gone)]);
    for (int f : links) {
      if (links_[at(f)].gone) continue;
      Link moved = std::move(links_[at(f)]);
      links_[at(f)].gone = true;
      const bool is_a = moved.a == gone;
      (is_a ? moved.a : moved.b) = kept;
      if (moved.cost) compose(is_a ? moved.cost->map_a : moved.cost->map_b);
      for (MappedUse& use : moved.uses) compose(is_a ? use.part.map_a : use.part.map_b);
      attach(std::move(moved));
    }
    std::erase_if(links_of_[at(kept)], [&](int f) { return links_[at(f)].gone; });
  }

  Labels partners(int e, int kept, int gone) const {
    const Link& link = links_[at(e)];
    Labels partner(cost_[at(kept)].size(), 0);
    for (std::size_t i = 0; i < partner.size(); ++i) {
      for (std::size_t j = 0; state_[at(kept)][i] && j < state_[at(gone)].size(); ++j) {
        const bool is_a = link.a == kept;
        if (state_[at(gone)][j] && possible(link, is_a ? i : j, is_a ? j : i)) {
          partner[i] = static_cast<int>(j);
        }
      }
    }
    return partner;
  }

  // The costs of the node that goes and of the link, and the link's uses.
  void take_over(int e, int kept, int gone, const Labels& partner) {
    const Link& link = links_[at(e)];
    const auto along = [&](const MappedTable& part, std::size_t i) {
      return link.a == kept ? value(part, i, at(partner[i])) : value(part, at(partner[i]), i);
    };
    for (std::size_t i = 0; i < partner.size(); ++i) {
      cost_[at(kept)][i] += cost_[at(gone)][at(partner[i])];
      if (link.cost) cost_[at(kept)][i] += along(*link.cost, i);
    }
    for (const MappedUse& use : link.uses) {
      NodeUse made = {use.begin, use.end, {}};
      for (std::size_t i = 0; i < partner.size(); ++i) made.bytes.push_back(along(use.part, i));
      further_uses_[at(kept)].push_back(std::move(made));
    }
  }

  Presolved result() {
    Presolved result;
    const std::size_t count = cost_.size();
    result.node_of.assign(count, kNone);
    result.choice_of.resize(count);
    result.problem.use_limit = problem_.use_limit;
    result.problem.base_use = problem_.base_use;
    result.problem.horizon = problem_.horizon;
    for (std::size_t n = 0; n < count; ++n) {
      if (parent_[n] != kNone) continue;
      for (std::size_t l = 0; l < state_[n].size(); ++l) {
        if (state_[n][l]) result.choice_of[n].push_back(static_cast<int>(l));
      }
      ProblemNode made = {.name = problem_.nodes[n].name, .cost = {}, .uses = {}};
      for (int l : result.choice_of[n]) made.cost.push_back(cost_[n][at(l)]);
      result.node_of[n] = static_cast<int>(result.problem.nodes.size());
      result.problem.nodes.push_back(std::move(made));
    }
    for (auto n = merged_.rbegin(); n != merged_.rend(); ++n) {
      const int parent = parent_[at(*n)];
      result.node_of[at(*n)] = result.node_of[at(parent)];
      for (int l : result.choice_of[at(parent)]) {
        result.choice_of[at(*n)].push_back(from_parent_[at(*n)][at(l)]);
      }
    }
    add_uses(result);
    for (const Link& link : links_) {
      if (!link.gone) add_edge(link, result);
    }
    return result;
  }

  // Uses of the same interval become one.
  void add_uses(Presolved& result) const {
    std::vector<std::map<std::pair<int, int>, Vector>> sums(result.problem.nodes.size());
    for (std::size_t n = 0; n < cost_.size(); ++n) {
      const Labels& choices = result.choice_of[n];
      const auto add = [&](const NodeUse& use) {
        if (use.begin >= use.end) return;
        Vector& sum = sums[at(result.node_of[n])][{use.begin, use.end}];
        sum.resize(choices.size(), 0.0);
        for (std::size_t l = 0; l < choices.size(); ++l) sum[l] += use.bytes[at(choices[l])];
      };
      for (const NodeUse& use : problem_.nodes[n].uses) add(use);
      for (const NodeUse& use : further_uses_[n]) add(use);
    }
    for (std::size_t n = 0; n < sums.size(); ++n) {
      for (auto& [interval, bytes] : sums[n]) {
        if (*std::max_element(bytes.begin(), bytes.end()) == 0) continue;
        result.problem.nodes[n].uses.push_back({interval.first, interval.second, std::move(bytes)});
      }
    }
  }

  void add_edge(const Link& link, Presolved& result) const {
    const Labels& rows = result.choice_of[at(link.a)];
    const Labels& columns = result.choice_of[at(link.b)];
    const auto add = [&](const MappedTable& part) {
      CostTable made = {static_cast<int>(rows.size()), static_cast<int>(columns.size()), {}};
      made.values.reserve(rows.size() * columns.size());
      for (int i : rows) {
        for (int j : columns) made.values.push_back(value(part, at(i), at(j)));
      }
      return result.problem.add_table(std::move(made));
    };
    ProblemEdge edge = {.from = result.node_of[at(link.a)],
                        .to = result.node_of[at(link.b)],
                        .cost_table = link.cost ? add(*link.cost) : -1,
                        .uses = {}};
    for (const MappedUse& use : link.uses) edge.uses.push_back({use.begin, use.end, add(use.part)});
    result.problem.edges.push_back(std::move(edge));
  }

  const Problem& problem_;
  std::vector<Labels> maps_;
  std::vector<int> identities_;  // by number of labels
  std::vector<Vector> cost_;
  std::vector<std::vector<State>> state_;
  std::vector<int> left_;  // labels alive
  std::vector<Link> links_;
  std::vector<std::vector<int>> links_of_;
  std::unordered_map<std::uint64_t, int>
      link_between_;  // only looked up, so its order is no matter
  std::deque<std::pair<int, int>> killed_;
  std::deque<int> candidates_;
  std::vector<int> parent_, merged_;
  std::vector<Labels> from_parent_;
  std::vector<std::vector<NodeUse>> further_uses_;
  bool is_any_gone_ = false;  // of the labels
  // Partners by table of the problem, as long as none is.
  std::unordered_map<const CostTable*, std::pair<std::vector<int>, std::vector<int>>> counted_;
  double work_ = 0, work_limit_ = kInfinity;
  bool impossible_ = false;
};

}  // namespace

std::optional<Presolved> presolve(const Problem& problem) {
  if (!worth_trying(problem)) return std::nullopt;
  return Presolve(problem).run();
}

std::vector<int> lift(const Presolved& presolved, const std::vector<int>& choices) {
  std::vector<int> result(presolved.node_of.size());
  for (std::size_t n = 0; n < result.size(); ++n) {
    result[n] = presolved.choice_of[n][at(choices[at(presolved.node_of[n])])];
  }
  return result;
}

}  // namespace autopar::solver
