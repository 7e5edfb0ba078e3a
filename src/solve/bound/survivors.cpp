// The network that a Dual leaves.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "solve/bound/dual.hpp"

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
      std::vector<Table> tables = {made.table};
      for (const RowUse& use : old.uses) {
        tables.push_back({made.table.map_a, made.table.map_b, copy_core(use.bytes)});
      }
      tables = algebra_.align(tables);
      made.table = tables[0];
      for (std::size_t u = 0; u < old.uses.size(); ++u) {
        made.uses.push_back({old.uses[u].begin, old.uses[u].end, tables[u + 1].core});
      }
    }
    const int e = static_cast<int>(made_->edges.size());
    made_->node(made.a).edges.push_back(e);
    made_->node(made.b).edges.push_back(e);
    made_->edges.push_back(std::move(made));
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

// After a pass, which ends backward, node j has sent its share to the earlier nodes: the term of an
// edge to an earlier node is table - both messages + j's share, that of the node what is left.
std::unique_ptr<Network> Dual::survivors(bool plain) const {
  std::vector<Labels> kept(net_->nodes.size());
  bool none = exhausted_;
  for (const Place& place : places_) {
    for (int l = 0; l < place.count; ++l) {
      if (alive(place.node, l)) kept[at(place.node)].push_back(l);
    }
    none = none || kept[at(place.node)].empty();
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
  std::vector<Vector> hats_of(net_->nodes.size());
  std::vector<int> number(net_->nodes.size(), -1);
  Algebra& algebra = child->algebra;
  Vector hat;
  for (const Place& place : places_) {
    const int n = place.node;
    collect(place, hat);
    const double rest = kept_part(place);
    Vector cost;
    for (int l : kept[at(n)]) {
      hats_of[at(n)].push_back(hat[at(l)]);
      cost.push_back(std::max(0.0, rest * hat[at(l)]));
    }
    const int kept_id = algebra.add_labels(kept[at(n)]);
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
  for (const Place& place : places_) {
    for (int k = 0; k < place.backward; ++k) {
      const Side& side = sides_[place.sides + at(k)];  // from the later node
      const Side& twin = sides_[side.twin];
      const Edge& old = net_->edge(side.edge);
      const Labels& rows = kept[at(side.far)];
      const Labels& columns = kept[at(place.node)];
      const Vector& hats = hats_of[at(place.node)];
      Edge made = {.a = number[at(side.far)], .b = number[at(place.node)], .table = {}};
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
