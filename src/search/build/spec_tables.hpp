// The lists of specs that nodes choose from, and the tables of edges between them, each made once
// for all nodes and edges that are alike.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "autopar/cost.hpp"
#include "autopar/problem.hpp"
#include "search/build/spec_lists.hpp"

namespace autopar {

// Lists, shapes with their dtype, and keys of tables have small numbers, so that what repeats in
// every layer of a model is found by comparing a few integers.
class SpecTables {
 public:
  // With `limited`, edges have tables of their temporaries too.
  SpecTables(Problem& problem, CostModel& model, bool limited, Allowance& allowance)
      : problem_(problem), model_(model), limited_(limited), allowance_(allowance) {}

  // A number for the shape and dtype of a value, and for what its reshards cost. `inside`: it is
  // not stored unless it is resharded (Kernels).
  int type_of(const Value& value, const ReshardWeights& weights, bool inside);

  int list_of(SpecList specs);
  // Of the specs that spec_at(0), spec_at(1), ... give; copies them only where the list is new.
  template <class SpecAt>
  int list_of(std::size_t count, const SpecAt& spec_at) {
    std::vector<int> ids;
    ids.reserve(count);
    for (std::size_t i = 0; i < count; ++i) ids.push_back(spec_id(spec_at(i)));
    const auto found = list_ids_.find(ids);
    if (found != list_ids_.end()) return found->second;
    SpecList specs;
    specs.reserve(count);
    for (std::size_t i = 0; i < count; ++i) specs.push_back(spec_at(i));
    return list_of(std::move(specs), std::move(ids));
  }
  const SpecList& specs(int list) const { return *at(list).specs; }
  const std::shared_ptr<const SpecList>& shared_specs(int list) const { return at(list).specs; }

  // The union of lists in the order of their first places; without specs that have partial sums
  // unless `partial_too`.
  int united(const std::vector<int>& lists, bool partial_too);
  // The lists with all specs of a type without partial sums first (canonical_specs); without specs
  // that have partial sums unless `partial_too`.
  int canonical_and(int type, const std::vector<int>& lists, bool partial_too = false);

  // Local bytes of each spec.
  const std::vector<double>& bytes(int type, int list);

  // Tables of an edge from a node with one list to an op that reads the value at ports with these
  // lists: seconds, and peak bytes of temporaries.
  struct Edge {
    int cost = -1;
    int peak = -1;
    bool free = false;  // nothing is ever resharded
  };
  Edge edge(int type, int from, const std::vector<int>& to);
  // The same edge where both ends have the same spec, otherwise never.
  Edge equal_only(Edge edge, int from, int to);
  // The same edge where no partial sum is reduced on the way, otherwise never.
  Edge unreduced_only(Edge edge, int from, int to);
  // The same edge where not both ends are partial sums, otherwise never.
  Edge whole_only(Edge edge, int from, int to);
  // An edge that costs nothing where both ends are cut alike, partial sums or not, otherwise never.
  Edge alike(int from, int to);
  // Bytes of the target where it is a copy of its own.
  int copies(int type, int from, int to);

 private:
  struct List {
    std::shared_ptr<const SpecList> specs;
    std::vector<int> ids;  // of the specs
    SpecList distinct;     // in the order of their first places
    std::vector<int> distinct_ids;
    std::vector<int> place;  // in `distinct`
  };
  struct Type {
    Shape shape;
    DType dtype = DType::kFloat32;
    ReshardWeights weights;
    bool inside = false;
  };
  struct SpecHash {
    std::size_t operator()(const Spec& spec) const;
  };
  struct KeyHash {
    std::size_t operator()(const std::vector<int>& key) const;
  };
  template <class T>
  using ByKey = std::unordered_map<std::vector<int>, T, KeyHash>;

  // What is kept for a key, and whether it is new. Most keys are known: a look-up allocates
  // nothing.
  template <class T>
  std::pair<T&, bool> kept(ByKey<T>& map, std::initializer_list<int> first,
                           const std::vector<int>& more = {}) {
    key_.assign(first);
    key_.insert(key_.end(), more.begin(), more.end());
    const auto found = map.find(key_);
    if (found != map.end()) return {found->second, false};
    return {map.emplace(key_, T()).first->second, true};
  }

  const List& at(int list) const { return lists_[static_cast<std::size_t>(list)]; }
  const Type& type(int type) const { return types_[static_cast<std::size_t>(type)]; }
  // The edge with `may(row, column)` only, by places in the lists, or in their distinct specs.
  template <class May>
  Edge only(Edge edge, int from, int to, const May& may);
  int spec_id(const Spec& spec);
  int list_of(SpecList specs, std::vector<int> ids);
  // Appends what is not there yet; without specs that have partial sums unless `partial_too`.
  void add_missing(SpecList& specs, std::vector<int>& ids, const List& more, bool partial_too);
  const std::vector<double>& distinct_bytes(int type, int list);
  void count(const CostTable& table);
  // By the classes of equal specs, as yet without values.
  CostTable classes_of(int from, int to) const;
  // What a reshard costs beside its steps.
  Seconds breaking(const Type& type, const Spec& from, const Spec& to) const;
  void add_breaking(int type, int from, int to, CostTable& cost);
  void find_class_prices(int type, int from, int to, CostTable& cost, CostTable& peak);
  void add_prices(int type, int from, const std::vector<int>& to, std::size_t t, CostTable& cost,
                  CostTable& peak);

  Problem& problem_;
  CostModel& model_;
  bool limited_;
  Allowance& allowance_;
  std::vector<Type> types_;
  std::vector<ReshardWeights> weights_;  // those of types, each once
  std::vector<List> lists_;
  std::unordered_map<Spec, int, SpecHash> spec_ids_;
  ByKey<int> type_ids_, list_ids_, united_, canonical_, copies_;
  ByKey<std::vector<double>> bytes_, distinct_bytes_;
  ByKey<Edge> edges_, equal_only_, unreduced_only_, whole_only_, alike_;
  std::vector<int> key_;    // scratch of kept()
  std::vector<char> have_;  // scratch of add_missing(): by spec id; all 0 between calls
};

}  // namespace autopar
