// The network that a dual leaves.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "solve/bound/dual.hpp"
#include "solve/bound/wiring.hpp"

namespace autopar::solver {
namespace {

// Copies what a network of fewer labels needs of another.
class Restricting {
 public:
  Restricting(const Network& net, const std::vector<Labels>& kept)
      : net_(net),
        kept_(kept),
        made_(std::make_unique<Network>()),
        algebra_(made_->algebra),
        number_(net.nodes.size(), -1),
        kept_ids_(net.nodes.size(), -1),
        copied_(at(net.algebra.core_count()), -1) {
    made_->constant = net.constant;
    made_->impossible = net.impossible;
    made_->capacity = net.capacity;
    made_->multiplier = net.multiplier;
    made_->row_time = net.row_time;
  }

  std::unique_ptr<Network> run() {
    for (std::size_t n = 0; n < net_.nodes.size(); ++n) {
      if (!net_.nodes[n].gone) add_node(static_cast<int>(n));
    }
    if (made_->impossible) return std::move(made_);
    for (const Edge& edge : net_.edges) {
      if (!edge.gone) add_edge(edge);
    }
    for (std::size_t n = 0; n < made_->nodes.size(); ++n) normalise(*made_, static_cast<int>(n));
    return std::move(made_);
  }

 private:
  void add_node(int n) {
    const Labels& labels = kept_[at(n)];
    if (labels.empty()) made_->impossible = true;
    const int kept_id = kept_ids_[at(n)] = algebra_.add_labels(labels);
    const auto select = [&](int vector) {
      return algebra_.select_vector(algebra_.add_vector(net_.algebra.vector(vector)), kept_id);
    };
    Node made = {.cost = select(net_.node(n).cost)};
    for (const RowUse& use : net_.node(n).uses) {
      made.uses.push_back({use.begin, use.end, select(use.bytes)});
    }
    number_[at(n)] = static_cast<int>(made_->nodes.size());
    made_->nodes.push_back(std::move(made));
    made_->origin.push_back(n);
    made_->origin_labels.push_back(labels);
  }

  int copy_core(int id) {
    int& copy = copied_[at(id)];
    const Core& core = net_.algebra.core(id);
    if (copy < 0) copy = algebra_.add_core(core.rows, core.columns, core.values);
    return copy;
  }

  Table part_of(int core, int classes_a, int classes_b) {
    const auto [known, added] = parts_.try_emplace({core, classes_a, classes_b});
    if (added) {
      known->second = algebra_.add_part(net_.algebra.core(core), algebra_.labels(classes_a),
                                        algebra_.labels(classes_b));
    }
    return known->second;
  }

  int select_classes(int classes, int n) {
    return algebra_.select_labels(algebra_.add_labels(net_.algebra.labels(classes)),
                                  kept_ids_[at(n)]);
  }

  void add_edge(const Edge& old) {
    Edge made = {.a = number_[at(old.a)], .b = number_[at(old.b)], .table = {}};
    made.table = {select_classes(old.table.map_a, old.a), select_classes(old.table.map_b, old.b),
                  -1};
    if (old.uses.empty()) {
      made.table = part_of(old.table.core, made.table.map_a, made.table.map_b);
    } else {
      made.table.core = copy_core(old.table.core);
      made.uses = old.uses;
      std::vector<Table> tables = {made.table};
      for (RowUse& use : made.uses) {
        use.bytes = copy_core(use.bytes);
        tables.push_back(table_of(made, use));
      }
      set_tables(*made_, made, tables);
    }
    solver::add_edge(*made_, std::move(made));
  }

  const Network& net_;
  const std::vector<Labels>& kept_;
  std::unique_ptr<Network> made_;
  Algebra& algebra_;
  std::vector<int> number_, kept_ids_, copied_;
  std::map<std::array<int, 3>, Table> parts_;  // by core and classes of the labels left
};

}  // namespace

std::unique_ptr<Network> restricted(const Network& net, const std::vector<Labels>& kept) {
  return Restricting(net, kept).run();
}

// Of a node's value, what it does not send to the earlier nodes.
template <class Real>
double DualOf<Real>::kept_part(const Place& place) const {
  double sent = 0;
  for (std::size_t s = place.sides; s < place.middle(); ++s) sent += share_of(wiring_->sides[s]);
  return std::max(0.0, 1.0 - sent);
}

template <class Real>
void DualOf<Real>::collect_excess(const Place& place, Vector& hat) const {
  Reals all;
  collect(place, messages_, all);
  hat.assign(all.begin(), all.end());
  for (double& value : hat) value -= least_[at(place.node)];
}

// After a pass, which ends backward, node j has sent its share to the earlier nodes: the term of an
// edge to an earlier node is table - both messages + j's share, that of the node what is left.
template <class Real>
std::unique_ptr<Network> DualOf<Real>::survivors(bool plain) const {
  std::vector<Labels> kept(net_->nodes.size());
  bool none = exhausted_;
  for (const Place& place : wiring_->places) {
    kept[at(place.node)] = left(place.node);
    none = none || (place.count > 0 && kept[at(place.node)].empty());
  }
  if (plain) {
    std::unique_ptr<Network> child = restricted(*net_, kept);
    child->impossible = child->impossible || none;
    return child;
  }
  auto child = std::make_unique<Network>();
  child->constant = bound_;
  child->impossible = none;
  child->capacity = net_->capacity;
  child->multiplier = multipliers_;
  child->row_time = net_->row_time;
  std::vector<Vector> hats(net_->nodes.size());
  Vector hat;
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    collect_excess(place, hat);
    for (int l : kept[at(place.node)]) hats[at(place.node)].push_back(hat[at(l)]);
    add_survivor(*child, place, kept[at(place.node)], hats[at(place.node)]);
  }
  if (child->impossible) return child;
  std::vector<int> number(net_->nodes.size(), -1);
  for (std::size_t n = 0; n < child->origin.size(); ++n) {
    number[at(child->origin[n])] = static_cast<int>(n);
  }
  for (const Place& place : wiring_->places) {
    for (std::size_t s = place.sides; s < place.middle(); ++s) {
      Edge made = surviving_edge(*child, wiring_->sides[s], kept, hats[at(place.node)]);
      made.a = number[at(made.a)];
      made.b = number[at(made.b)];
      add_edge(*child, std::move(made));
    }
  }
  for (std::size_t n = 0; n < child->nodes.size(); ++n) normalise(*child, static_cast<int>(n));
  return child;
}

template <class Real>
void DualOf<Real>::add_survivor(Network& child, const Place& place, const Labels& kept,
                                const Vector& hats) const {
  Algebra& algebra = child.algebra;
  const double rest = kept_part(place);
  Vector cost;
  for (double hat : hats) cost.push_back(std::max(0.0, rest * hat));
  const int kept_id = algebra.add_labels(kept);
  Node made = {.cost = algebra.add_vector(std::move(cost))};
  for (const RowUse& use : net_->node(place.node).uses) {
    const int bytes = algebra.add_vector(net_->algebra.vector(use.bytes));
    made.uses.push_back({use.begin, use.end, algebra.select_vector(bytes, kept_id)});
  }
  child.nodes.push_back(std::move(made));
  child.origin.push_back(place.node);
  child.origin_labels.push_back(kept);
}

// `side` is that of the later node; its ends are those of this network.
template <class Real>
Edge DualOf<Real>::surviving_edge(Network& child, const Side& side, const std::vector<Labels>& kept,
                                  const Vector& hats) const {
  const Side& twin = wiring_->sides[side.twin];
  const Edge& old = net_->edge(wiring_->edge_in[at(side.edge)]);
  const int near = twin.far;
  const Labels& rows = kept[at(side.far)];
  const Labels& columns = kept[at(near)];
  const std::size_t width = at(side.by_rows ? side.far_count : side.count);
  const auto select = [&](const auto* values, bool terms) {
    Vector result;
    result.reserve(rows.size() * columns.size());
    for (int r : rows) {
      const std::size_t row = at(twin.classes[r]);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const std::size_t column = at(side.classes[columns[c]]);
        double value = values[side.by_rows ? column * width + row : row * width + column];
        if (terms) {
          value += share_of(side) * hats[c] - messages_[twin.incoming + row] -
                   messages_[side.incoming + column];
          value = std::max(0.0, value);
        }
        result.push_back(value);
      }
    }
    return result;
  };
  Algebra& algebra = child.algebra;
  Edge made = {.a = side.far, .b = near, .table = {}};
  const int height = static_cast<int>(rows.size()), wide = static_cast<int>(columns.size());
  std::vector<Table> tables = {
      algebra.add_table(height, wide, select(tables_[at(side.edge)], true))};
  for (const RowUse& use : old.uses) {
    const Vector& bytes = net_->algebra.core(use.bytes).values;
    tables.push_back(algebra.add_table(height, wide, select(bytes.data(), false)));
  }
  made.uses = old.uses;
  set_tables(child, made, tables);
  return made;
}

template <class Real>
double DualOf<Real>::surviving_entries() const {
  Vector count(net_->nodes.size(), 0.0);
  double entries = 0;
  for (const Place& place : wiring_->places) {
    for (int l = 0; l < place.count; ++l) count[at(place.node)] += alive(place.node, l) ? 1 : 0;
    if (place.count > 0) entries += count[at(place.node)];
  }
  for (const Edge& edge : net_->edges) {
    if (!edge.gone) entries += count[at(edge.a)] * count[at(edge.b)];
  }
  return entries;
}

template <class Real>
Vector DualOf<Real>::excess(const std::vector<int>& labels) const {
  Vector result(net_->nodes.size(), 0.0), hat;
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    collect_excess(place, hat);
    const int label = labels[at(place.node)];
    result[at(place.node)] += kept_part(place) * hat[at(label)];
    for (std::size_t s = place.sides; s < place.middle(); ++s) {
      const Side& side = wiring_->sides[s];
      const Side& twin = wiring_->sides[side.twin];
      const std::size_t far = at(twin.classes[labels[at(side.far)]]);
      const std::size_t near = at(side.classes[label]);
      const Real* table = tables_[at(side.edge)];
      const double entry = side.by_rows ? table[near * at(side.far_count) + far]
                                        : table[far * at(side.count) + near];
      const double term = entry + share_of(side) * hat[at(label)] - messages_[twin.incoming + far] -
                          messages_[side.incoming + near];
      result[at(place.node)] += term;
      result[at(side.far)] += term;
    }
  }
  return result;
}

template <class Real>
Vector DualOf<Real>::label_excess(int n) const {
  Vector hat;
  collect_excess(wiring_->places[at(n)], hat);
  return hat;
}

template std::unique_ptr<Network> DualOf<double>::survivors(bool) const;
template double DualOf<double>::surviving_entries() const;
template Vector DualOf<double>::excess(const std::vector<int>&) const;
template Vector DualOf<double>::label_excess(int) const;

}  // namespace autopar::solver
