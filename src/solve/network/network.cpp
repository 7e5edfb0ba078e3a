#include "solve/network/network.hpp"

#include <algorithm>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::network;

void detach(Network& net, int n, int e) {
  std::vector<int>& list = net.node(n).edges;
  list.erase(std::find(list.begin(), list.end(), e));
}

void drop_edge(Network& net, int e) {
  net.edge(e).gone = true;
  detach(net, net.edge(e).a, e);
  detach(net, net.edge(e).b, e);
}

// Selected classes on both sides, the unused ones gone.
void tidy_edge(Network& net, Edge& edge) {
  if (edge.uses.empty()) {
    edge.table = net.algebra.tidy(edge.table);
    return;
  }
  std::vector<Table> tables = {edge.table};
  for (const RowUse& use : edge.uses) tables.push_back(table_of(edge, use));
  set_tables(net, edge, tables);
}

// Moves what all pairs use at least to the capacities; uses of zero go.
void normalise_edge_uses(Network& net, Edge& edge) {
  std::erase_if(edge.uses, [&](RowUse& use) {
    const Core& core = net.algebra.core(use.bytes);
    const double least = *std::min_element(core.values.begin(), core.values.end());
    if (least > 0) {
      for (int r = use.begin; r < use.end; ++r) net.capacity[at(r)] -= least;
      Vector values = core.values;
      for (double& value : values) value -= least;
      use.bytes = net.algebra.add_core(core.rows, core.columns, std::move(values));
    }
    return core.largest == least || use.begin >= use.end;
  });
}

// What is left of an edge of n where n keeps those labels.
void select_labels(Network& net, int e, int n, int kept) {
  Edge& edge = net.edge(e);
  int& map = edge.a == n ? edge.table.map_a : edge.table.map_b;
  map = net.algebra.select_labels(map, kept);
  tidy_edge(net, edge);
  normalise_edge_uses(net, edge);
}

Vector row_for(const Core& core, int row) {
  return Vector(core.row(row), core.row(row) + core.columns);
}

}  // namespace

int other_end(const Edge& edge, int n) { return edge.a == n ? edge.b : edge.a; }

Table table_from(Network& net, const Edge& edge, int core, int n) {
  const Table table = {edge.table.map_a, edge.table.map_b, core};
  return edge.a == n ? table : net.algebra.flip(table);
}

void add_edge(Network& net, Edge edge) {
  const int e = static_cast<int>(net.edges.size());
  net.node(edge.a).edges.push_back(e);
  net.node(edge.b).edges.push_back(e);
  net.edges.push_back(std::move(edge));
}

void set_tables(Network& net, Edge& edge, const std::vector<Table>& tables) {
  if (edge.uses.empty()) {
    edge.table = tables[0];
    return;
  }
  const std::vector<Table> aligned = net.algebra.align(tables);
  edge.table = aligned[0];
  for (std::size_t u = 0; u < edge.uses.size(); ++u) edge.uses[u].bytes = aligned[u + 1].core;
}

Table table_of(const Edge& edge, const RowUse& use) {
  return {edge.table.map_a, edge.table.map_b, use.bytes};
}

double entry_of(const Network& net, const Edge& edge, int core, int label_a, int label_b) {
  const int row = net.algebra.labels(edge.table.map_a)[at(label_a)];
  const int column = net.algebra.labels(edge.table.map_b)[at(label_b)];
  return net.algebra.core(core).row(row)[column];
}

double edge_value(const Network& net, const Edge& edge, int label_a, int label_b) {
  return entry_of(net, edge, edge.table.core, label_a, label_b);
}

void add_worth(const Network& net, int n, const PriceSums& prices, double times, Vector& cost) {
  for (const RowUse& use : net.node(n).uses) {
    const double price = times * prices.of(use);
    if (price == 0) continue;
    const Vector& bytes = net.algebra.vector(use.bytes);
    for (std::size_t l = 0; l < cost.size(); ++l) cost[l] += price * bytes[l];
  }
}

void keep_labels(Network& net, int n, const Labels& kept) {
  Node& node = net.node(n);
  if (kept.size() == at(net.label_count(n))) return;
  net.steps.push_back({.kind = Step::Kind::kRelabel, .node = n, .first = kept});
  if (kept.empty()) {
    net.impossible = true;
    return;
  }
  Algebra& algebra = net.algebra;
  const int kept_id = algebra.add_labels(kept);
  node.cost = algebra.select_vector(node.cost, kept_id);
  for (RowUse& use : node.uses) use.bytes = algebra.select_vector(use.bytes, kept_id);
  for (int e : node.edges) select_labels(net, e, n, kept_id);
  normalise(net, n);
}

void normalise(Network& net, int n, std::size_t first_use) {
  Node& node = net.node(n);
  double least = 0;
  node.cost = net.algebra.subtract_min(node.cost, &least);
  if (least == kInfinity) {
    net.impossible = true;
    return;
  }
  net.constant += least;
  const auto begin = node.uses.begin() + static_cast<std::ptrdiff_t>(first_use);
  const auto end = std::remove_if(begin, node.uses.end(), [&](RowUse& use) {
    double bytes = 0;
    use.bytes = net.algebra.subtract_min(use.bytes, &bytes);
    if (bytes > 0) {
      for (int r = use.begin; r < use.end; ++r) net.capacity[at(r)] -= bytes;
    }
    const Vector& left = net.algebra.vector(use.bytes);
    return use.begin >= use.end || *std::max_element(left.begin(), left.end()) == 0;
  });
  node.uses.erase(end, node.uses.end());
}

void remove_edge(Network& net, int e) {
  Edge& edge = net.edge(e);
  const auto parts = net.algebra.separable(edge.table.core);
  AUTOPAR_CHECK(parts.has_value(), "edge is not separable");
  Node& a = net.node(edge.a);
  Node& b = net.node(edge.b);
  a.cost = net.algebra.add_to_labels(a.cost, edge.table.map_a, parts->rows);
  b.cost = net.algebra.add_to_labels(b.cost, edge.table.map_b, parts->columns);
  drop_edge(net, e);
  normalise(net, edge.a);
  normalise(net, edge.b);
}

bool join_parallel(Network& net, int n) {
  bool changed = false;
  std::vector<int> edges = net.node(n).edges;
  std::stable_sort(edges.begin(), edges.end(), [&](int x, int y) {
    return other_end(net.edge(x), n) < other_end(net.edge(y), n);
  });
  for (std::size_t i = 1; i < edges.size(); ++i) {
    Edge& kept = net.edge(edges[i - 1]);
    Edge& extra = net.edge(edges[i]);
    if (other_end(kept, n) != other_end(extra, n)) continue;
    changed = true;
    Algebra& algebra = net.algebra;
    const Table second = table_from(net, extra, extra.table.core, kept.a);
    if (kept.uses.empty() && extra.uses.empty()) {
      kept.table = algebra.sum(kept.table, second);
    } else {
      std::vector<Table> tables = {kept.table, second};
      for (const RowUse& use : kept.uses) tables.push_back(table_of(kept, use));
      for (const RowUse& use : extra.uses) {
        tables.push_back(table_from(net, extra, use.bytes, kept.a));
        kept.uses.push_back(use);
      }
      tables = algebra.align(tables);
      Vector values = algebra.core(tables[0].core).values;
      const Core& addend = algebra.core(tables[1].core);
      for (std::size_t k = 0; k < values.size(); ++k) values[k] += addend.values[k];
      kept.table = tables[0];
      kept.table.core = algebra.add_core(addend.rows, addend.columns, std::move(values));
      for (std::size_t u = 0; u < kept.uses.size(); ++u) kept.uses[u].bytes = tables[u + 2].core;
    }
    drop_edge(net, edges[i]);
    edges[i] = edges[i - 1];
  }
  return changed;
}

void eliminate(Network& net, int n) {
  Node& node = net.node(n);
  Algebra& algebra = net.algebra;
  Step step = {.kind = Step::Kind::kEliminate, .node = n, .cost = node.cost};
  const std::vector<int> edges = node.edges;
  for (int e : edges) {
    const Edge& edge = net.edge(e);
    step.arcs.push_back({other_end(edge, n), table_from(net, edge, edge.table.core, n)});
  }
  if (net.label_count(n) == 1) {
    // Its label is given: rows of its tables join the neighbours' costs and uses.
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const Arc& arc = step.arcs[i];
      const Edge& edge = net.edge(edges[i]);
      Node& other = net.node(arc.other);
      const int row = algebra.labels(arc.table.map_a)[0];
      const int addend = algebra.add_vector(row_for(algebra.core(arc.table.core), row));
      other.cost = algebra.add_to_labels(other.cost, arc.table.map_b, addend);
      for (const RowUse& use : edge.uses) {
        const Table bytes = table_from(net, edge, use.bytes, n);
        const int values = algebra.add_vector(row_for(algebra.core(bytes.core), row));
        other.uses.push_back({use.begin, use.end, algebra.select_vector(values, bytes.map_b)});
      }
    }
    for (const RowUse& use : node.uses) {
      for (int r = use.begin; r < use.end; ++r) {
        net.capacity[at(r)] -= algebra.vector(use.bytes)[0];
      }
    }
    net.constant += algebra.vector(node.cost)[0];
  } else if (edges.size() == 1) {
    const Arc& arc = step.arcs[0];
    Node& other = net.node(arc.other);
    const int message = algebra.leaf_message(node.cost, arc.table);
    other.cost = algebra.add_to_labels(other.cost, arc.table.map_b, message);
  } else if (edges.size() == 2) {
    const Arc &one = step.arcs[0], &two = step.arcs[1];
    add_edge(net, {one.other, two.other, algebra.eliminate_path(node.cost, one.table, two.table)});
  } else {
    AUTOPAR_CHECK(edges.empty(), "only nodes with up to two edges are eliminated");
    net.constant += *std::min_element(net.cost(n).begin(), net.cost(n).end());
  }
  for (int e : edges) drop_edge(net, e);
  node.gone = true;
  for (const Arc& arc : step.arcs) {
    if (!net.node(arc.other).gone) normalise(net, arc.other);
  }
  net.steps.push_back(std::move(step));
}

namespace {

// Which label of either end a merged label stands for, and its cost.
struct Pairs {
  Labels kept, gone;
  Vector cost;
};

// Calls visit(label of one, label of the other, cost of both) where that is below the cutoff.
template <class Visit>
void for_affordable_pairs(const Network& net, const Table& table, int one, int other, double cutoff,
                          Visit visit) {
  const Vector& one_cost = net.cost(one);
  const Vector& other_cost = net.cost(other);
  const Labels& rows = net.algebra.labels(table.map_a);
  const Labels& columns = net.algebra.labels(table.map_b);
  const Core& core = net.algebra.core(table.core);
  for (std::size_t i = 0; i < one_cost.size(); ++i) {
    const double* row = core.row(rows[i]);
    for (std::size_t j = 0; j < other_cost.size(); ++j) {
      const double sum = one_cost[i] + other_cost[j] + row[columns[j]];
      if (net.constant + sum < cutoff) visit(static_cast<int>(i), static_cast<int>(j), sum);
    }
  }
}

Pairs affordable_pairs(const Network& net, const Table& table, int kept, int gone, double cutoff) {
  Pairs pairs;
  for_affordable_pairs(net, table, kept, gone, cutoff, [&](int i, int j, double cost) {
    pairs.kept.push_back(i);
    pairs.gone.push_back(j);
    pairs.cost.push_back(cost);
  });
  return pairs;
}

int edge_between(const Network& net, int one, int other) {
  for (int e : net.node(one).edges) {
    if (other_end(net.edge(e), one) == other) return e;
  }
  return -1;
}

// Their edge's table, or one that says nothing.
Table table_between(Network& net, int e, int one, int other) {
  if (e >= 0) return table_from(net, net.edge(e), net.edge(e).table.core, one);
  return net.algebra.blank_table(net.cost(one).size(), net.cost(other).size());
}

bool is_identity(const Labels& labels, int count) {
  if (labels.size() != at(count)) return false;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != static_cast<int>(i)) return false;
  }
  return true;
}

}  // namespace

void merge(Network& net, int one, int other, double cutoff) {
  Algebra& algebra = net.algebra;
  const auto weight = [&](int n) { return net.node(n).edges.size() + net.node(n).uses.size(); };
  const int kept_end = weight(one) >= weight(other) ? one : other;
  const int gone_end = kept_end == one ? other : one;
  const int e = edge_between(net, gone_end, kept_end);
  const Table table = table_between(net, e, kept_end, gone_end);
  std::vector<RowUse> edge_uses;
  if (e >= 0) {
    const Edge& edge = net.edge(e);
    for (const RowUse& use : edge.uses) {
      edge_uses.push_back({use.begin, use.end, table_from(net, edge, use.bytes, kept_end).core});
    }
    drop_edge(net, e);
  }
  Pairs pairs = affordable_pairs(net, table, kept_end, gone_end, cutoff);
  Node& kept = net.node(kept_end);
  Node& gone = net.node(gone_end);
  gone.gone = true;
  if (pairs.cost.empty()) {
    net.impossible = true;
    return;
  }
  // Where the merged labels are those of one end, nothing changes on its side.
  const bool kept_same = is_identity(pairs.kept, net.label_count(kept_end));
  const bool gone_same = is_identity(pairs.gone, net.label_count(gone_end));
  kept.cost = algebra.add_vector(std::move(pairs.cost));
  const int kept_id = algebra.add_labels(pairs.kept), gone_id = algebra.add_labels(pairs.gone);
  if (!kept_same) {
    for (RowUse& use : kept.uses) use.bytes = algebra.select_vector(use.bytes, kept_id);
  }
  const std::size_t first_new_use = kept_same ? kept.uses.size() : 0;
  for (RowUse use : gone.uses) {
    use.bytes = algebra.select_vector(use.bytes, gone_id);
    kept.uses.push_back(use);
  }
  for (const RowUse& use : edge_uses) {
    Vector values;
    for (std::size_t l = 0; l < pairs.kept.size(); ++l) {
      const int row = algebra.labels(table.map_a)[at(pairs.kept[l])];
      const int column = algebra.labels(table.map_b)[at(pairs.gone[l])];
      values.push_back(algebra.core(use.bytes).row(row)[column]);
    }
    kept.uses.push_back({use.begin, use.end, algebra.add_vector(std::move(values))});
  }
  if (!kept_same) {
    for (int f : kept.edges) select_labels(net, f, kept_end, kept_id);
  }
  for (int f : gone.edges) {
    if (!gone_same) select_labels(net, f, gone_end, gone_id);
    Edge& moved = net.edge(f);
    (moved.a == gone_end ? moved.a : moved.b) = kept_end;
    kept.edges.push_back(f);
  }
  gone.edges.clear();
  net.steps.push_back({.kind = Step::Kind::kMerge,
                       .node = kept_end,
                       .other = gone_end,
                       .first = std::move(pairs.kept),
                       .second = std::move(pairs.gone)});
  if (!kept_same || kept.uses.size() <= kSeparatedUses) {
    separate_uses(net, kept);
    normalise(net, kept_end);
  } else {
    normalise(net, kept_end, first_new_use);
  }
}

double merged_labels(Network& net, int one, int other, double cutoff) {
  const Table table = table_between(net, edge_between(net, one, other), one, other);
  double count = 0;
  for_affordable_pairs(net, table, one, other, cutoff, [&](int, int, double) { ++count; });
  return count;
}

std::vector<int> lift(const Network& net, std::vector<int> labels) {
  for (auto step = net.steps.rbegin(); step != net.steps.rend(); ++step) {
    int& label = labels[at(step->node)];
    if (step->kind == Step::Kind::kRelabel) {
      label = step->first[at(label)];
    } else if (step->kind == Step::Kind::kMerge) {
      labels[at(step->other)] = step->second[at(label)];
      label = step->first[at(label)];
    } else {
      Vector sum = net.algebra.vector(step->cost);
      for (const Arc& arc : step->arcs) {
        const Labels& rows = net.algebra.labels(arc.table.map_a);
        const int column = net.algebra.labels(arc.table.map_b)[at(labels[at(arc.other)])];
        const double* values = net.algebra.core(arc.table.core).column(column);
        for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += values[rows[k]];
      }
      label = static_cast<int>(std::min_element(sum.begin(), sum.end()) - sum.begin());
    }
  }
  for (std::size_t n = 0; n < labels.size(); ++n) labels[n] = net.origin_labels[n][at(labels[n])];
  return labels;
}

void forget_unused(Network& net) {
  std::vector<char> used(at(net.algebra.core_count()), 0), by_columns = used;
  for (const Edge& edge : net.edges) {
    if (edge.gone) continue;
    used[at(edge.table.core)] = 1;
    for (const RowUse& use : edge.uses) used[at(use.bytes)] = 1;
  }
  for (const Step& step : net.steps) {
    for (const Arc& arc : step.arcs) by_columns[at(arc.table.core)] = 1;
  }
  net.algebra.forget_cores(used, by_columns);
}

void forget_tables(Network& net) {
  net.edges.clear();
  forget_unused(net);
  net.nodes.assign(net.nodes.size(), Node{});
}

double value_of(const Network& net, const std::vector<int>& labels) {
  double value = net.constant;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (!net.nodes[n].gone) value += net.algebra.vector(net.nodes[n].cost)[at(labels[n])];
  }
  for (const Edge& edge : net.edges) {
    if (!edge.gone) value += edge_value(net, edge, labels[at(edge.a)], labels[at(edge.b)]);
  }
  return value;
}

Vector uses_of(const Network& net, const std::vector<int>& labels) {
  Vector change(net.capacity.size() + 1, 0.0);
  const auto add = [&](const RowUse& use, double bytes) {
    change[at(use.begin)] += bytes;
    change[at(use.end)] -= bytes;
  };
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (net.nodes[n].gone) continue;
    for (const RowUse& use : net.nodes[n].uses) {
      add(use, net.algebra.vector(use.bytes)[at(labels[n])]);
    }
  }
  for (const Edge& edge : net.edges) {
    for (std::size_t u = 0; u < edge.uses.size() && !edge.gone; ++u) {
      const RowUse& use = edge.uses[u];
      add(use, entry_of(net, edge, use.bytes, labels[at(edge.a)], labels[at(edge.b)]));
    }
  }
  double sum = 0;
  for (double& value : change) value = sum += value;
  change.pop_back();
  return change;
}

}  // namespace autopar::solver
