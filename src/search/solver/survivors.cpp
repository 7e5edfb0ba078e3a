// The network that a Dual leaves.
#include <algorithm>
#include <utility>

#include "search/solver/dual.hpp"

namespace autopar::solver {
// After a pass, which ends backward, node j has sent its share to the earlier nodes: the term of an
// edge to an earlier node is table - both messages + j's share, that of the node what is left.
std::unique_ptr<Network> Dual::survivors(bool plain) const {
  auto child = std::make_unique<Network>();
  child->constant = plain ? net_->constant : bound_;
  child->impossible = exhausted_;
  child->capacity = net_->capacity;
  child->multiplier = plain ? net_->multiplier : multipliers_;
  child->row_time = net_->row_time;
  std::vector<Labels> kept(net_->nodes.size());
  std::vector<Vector> hats_of(net_->nodes.size());
  std::vector<int> number(net_->nodes.size(), -1), kept_ids(net_->nodes.size(), -1);
  Algebra& algebra = child->algebra;
  Vector hat;
  for (const Place& place : places_) {
    const int n = place.node;
    for (int l = 0; l < place.count; ++l) {
      if (alive(n, l)) kept[at(n)].push_back(l);
    }
    if (kept[at(n)].empty()) child->impossible = true;
    collect(place, hat);
    const double rest = kept_part(place);
    Vector cost;
    for (int l : kept[at(n)]) {
      hats_of[at(n)].push_back(hat[at(l)]);
      cost.push_back(plain ? net_->cost(n)[at(l)] : std::max(0.0, rest * hat[at(l)]));
    }
    const int kept_id = algebra.add_labels(kept[at(n)]);
    kept_ids[at(n)] = kept_id;
    Node made = {.cost = algebra.add_vector(std::move(cost))};
    for (const RowUse& use : net_->node(n).uses) {
      const int bytes = algebra.add_vector(net_->algebra.vector(use.bytes));
      made.uses.push_back({use.begin, use.end, algebra.select_vector(bytes, kept_id)});
    }
    number[at(n)] = static_cast<int>(child->nodes.size());
    child->nodes.push_back(std::move(made));
    child->origin.push_back(n);
    child->origin_labels.push_back(kept[at(n)]);
  }
  if (child->impossible) return child;
  const auto attach = [&](Edge made) {
    const int e = static_cast<int>(child->edges.size());
    child->node(made.a).edges.push_back(e);
    child->node(made.b).edges.push_back(e);
    child->edges.push_back(std::move(made));
  };
  std::vector<int> copied(at(net_->algebra.core_count()), -1);
  const auto copy_core = [&](int id) {
    int& copy = copied[at(id)];
    const Core& core = net_->algebra.core(id);
    if (copy < 0) copy = algebra.add_core(core.rows, core.columns, core.values);
    return copy;
  };
  const auto plain_edge = [&](const Edge& old, int kept_a, int kept_b, Edge& made) {
    const auto map = [&](int classes, int kept_id) {
      return algebra.select_labels(algebra.add_labels(net_->algebra.labels(classes)), kept_id);
    };
    made.table = {map(old.table.map_a, kept_a), map(old.table.map_b, kept_b),
                  copy_core(old.table.core)};
    if (old.uses.empty()) {
      made.table = algebra.tidy(made.table);
      return;
    }
    std::vector<Table> tables = {made.table};
    for (const RowUse& use : old.uses) {
      tables.push_back({made.table.map_a, made.table.map_b, copy_core(use.bytes)});
    }
    tables = algebra.align(tables);
    made.table = tables[0];
    for (std::size_t u = 0; u < old.uses.size(); ++u) {
      made.uses.push_back({old.uses[u].begin, old.uses[u].end, tables[u + 1].core});
    }
  };
  for (const Place& place : places_) {
    for (int k = 0; k < place.backward; ++k) {
      const Side& side = sides_[place.sides + at(k)];  // from the later node
      const Side& twin = sides_[side.twin];
      const Edge& old = net_->edge(side.edge);
      const Labels& rows = kept[at(side.far)];
      const Labels& columns = kept[at(place.node)];
      const Vector& hats = hats_of[at(place.node)];
      Edge made = {.a = number[at(side.far)], .b = number[at(place.node)], .table = {}};
      if (plain) {
        made = {.a = number[at(old.a)], .b = number[at(old.b)], .table = {}};
        plain_edge(old, kept_ids[at(old.a)], kept_ids[at(old.b)], made);
        attach(std::move(made));
        continue;
      }
      const auto select = [&](const Core& core, bool turned, bool terms) {
        Vector values;
        values.reserve(rows.size() * columns.size());
        for (int r : rows) {
          const int row = twin.classes[r];
          for (std::size_t c = 0; c < columns.size(); ++c) {
            const int column = side.classes[columns[c]];
            double value = turned ? core.row(column)[row] : core.row(row)[column];
            if (terms) {
              value += side.share * hats[c] - messages_[twin.incoming + at(row)] -
                       messages_[side.incoming + at(column)];
              value = std::max(0.0, value);
            }
            values.push_back(value);
          }
        }
        return values;
      };
      const bool turned = old.a != side.far;
      const Core& core = priced_[at(side.edge)] != nullptr ? *priced_[at(side.edge)]
                                                           : net_->algebra.core(old.table.core);
      const int height = static_cast<int>(rows.size()), width = static_cast<int>(columns.size());
      made.table = algebra.add_table(height, width, select(core, turned, true));
      if (!old.uses.empty()) {
        std::vector<Table> tables = {made.table};
        for (const RowUse& use : old.uses) {
          tables.push_back(algebra.add_table(height, width,
                                             select(net_->algebra.core(use.bytes), turned, false)));
          made.uses.push_back({use.begin, use.end, -1});
        }
        tables = algebra.align(tables);
        made.table = tables[0];
        for (std::size_t u = 0; u < made.uses.size(); ++u) made.uses[u].bytes = tables[u + 1].core;
      }
      attach(std::move(made));
    }
  }
  for (std::size_t n = 0; n < child->nodes.size(); ++n) normalise(*child, static_cast<int>(n));
  return child;
}

Vector Dual::excess(const std::vector<int>& labels) const {
  Vector result(net_->nodes.size(), 0.0), hat;
  for (const Place& place : places_) {
    collect(place, hat);
    const int label = labels[at(place.node)];
    result[at(place.node)] += kept_part(place) * hat[at(label)];
    for (int k = 0; k < place.backward; ++k) {
      const Side& side = sides_[place.sides + at(k)];
      const Side& twin = sides_[side.twin];
      const int row = twin.classes[labels[at(side.far)]], column = side.classes[label];
      const double term = side.rows[at(column) * at(side.far_count) + at(row)] +
                          side.share * hat[at(label)] - messages_[twin.incoming + at(row)] -
                          messages_[side.incoming + at(column)];
      result[at(place.node)] += term;
      result[at(side.far)] += term;
    }
  }
  return result;
}

Vector Dual::label_excess(int n) const {
  Vector hat;
  collect(places_[place_of_[at(n)]], hat);
  return hat;
}

}  // namespace autopar::solver
