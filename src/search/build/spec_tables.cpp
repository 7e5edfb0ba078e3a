#include "search/build/spec_tables.hpp"

#include <algorithm>

namespace autopar {

namespace {

// FNV-1a (Fowler, Noll, Vo), a word at a time.
class Hash {
 public:
  void add(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ULL; }
  std::size_t value() const { return hash_ ^ (hash_ >> 29); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::size_t SpecTables::SpecHash::operator()(const Spec& spec) const {
  Hash hash;
  for (const AxisList& axes : spec.dims) {
    for (int axis : axes) hash.add(static_cast<std::uint64_t>(axis) + 2);
    hash.add(1);
  }
  for (int axis : spec.partial) hash.add(static_cast<std::uint64_t>(axis) + 2);
  hash.add(static_cast<std::uint64_t>(spec.reduction));
  return hash.value();
}

std::size_t SpecTables::KeyHash::operator()(const std::vector<int>& key) const {
  Hash hash;
  for (int number : key) hash.add(static_cast<std::uint64_t>(number) + 1);
  return hash.value();
}

int SpecTables::type_of(const Value& value, const ReshardWeights& weights, bool inside) {
  const auto known = std::find(weights_.begin(), weights_.end(), weights);
  const auto weight = static_cast<int>(known - weights_.begin());
  if (known == weights_.end()) weights_.push_back(weights);
  key_.assign({static_cast<int>(value.dtype), weight, inside ? 1 : 0});
  for (std::int64_t extent : value.shape) {
    key_.push_back(static_cast<int>(extent & 0xffffffff));
    key_.push_back(static_cast<int>(extent >> 32));
  }
  const auto found = type_ids_.find(key_);
  if (found != type_ids_.end()) return found->second;
  types_.push_back({value.shape, value.dtype, weights, inside});
  return type_ids_.emplace(key_, static_cast<int>(types_.size()) - 1).first->second;
}

int SpecTables::spec_id(const Spec& spec) {
  const int id = spec_ids_.try_emplace(spec, static_cast<int>(spec_ids_.size())).first->second;
  have_.resize(spec_ids_.size());
  return id;
}

int SpecTables::list_of(SpecList specs) {
  std::vector<int> ids;
  ids.reserve(specs.size());
  for (const Spec& spec : specs) ids.push_back(spec_id(spec));
  return list_of(std::move(specs), std::move(ids));
}

int SpecTables::list_of(SpecList specs, std::vector<int> ids) {
  const auto [found, is_new] = list_ids_.try_emplace(ids, static_cast<int>(lists_.size()));
  if (!is_new) return found->second;
  List list{nullptr, std::move(ids), {}, {}, {}};
  std::vector<int> place_of_id(spec_ids_.size(), -1);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    int& place = place_of_id[static_cast<std::size_t>(list.ids[i])];
    if (place < 0) {
      place = static_cast<int>(list.distinct.size());
      list.distinct.push_back(specs[i]);
      list.distinct_ids.push_back(list.ids[i]);
    }
    list.place.push_back(place);
  }
  list.specs = std::make_shared<const SpecList>(std::move(specs));
  lists_.push_back(std::move(list));
  return found->second;
}

void SpecTables::add_missing(SpecList& specs, std::vector<int>& ids, const List& more,
                             bool partial_too) {
  for (int id : ids) have_[static_cast<std::size_t>(id)] = 1;
  for (std::size_t i = 0; i < more.distinct.size(); ++i) {
    if (!partial_too && !more.distinct[i].partial.empty()) continue;
    if (have_[static_cast<std::size_t>(more.distinct_ids[i])] != 0) continue;
    specs.push_back(more.distinct[i]);
    ids.push_back(more.distinct_ids[i]);
  }
  for (int id : ids) have_[static_cast<std::size_t>(id)] = 0;
}

int SpecTables::united(const std::vector<int>& lists, bool partial_too) {
  const auto [list, is_new] = kept(united_, {partial_too ? 1 : 0}, lists);
  if (!is_new) return list;
  SpecList specs;
  std::vector<int> ids;
  for (int part : lists) add_missing(specs, ids, at(part), partial_too);
  return list = list_of(std::move(specs), std::move(ids));
}

int SpecTables::canonical_and(int type_id, const std::vector<int>& lists, bool partial_too) {
  const auto [list, is_new] = kept(canonical_, {type_id, partial_too ? 1 : 0}, lists);
  if (!is_new) return list;
  SpecList specs = canonical_specs(type(type_id).shape, model_.mesh());
  std::vector<int> ids;
  for (const Spec& spec : specs) ids.push_back(spec_id(spec));
  for (int part : lists) add_missing(specs, ids, at(part), partial_too);
  return list = list_of(std::move(specs), std::move(ids));
}

const std::vector<double>& SpecTables::bytes(int type_id, int list) {
  const auto [bytes, is_new] = kept(bytes_, {type_id, list});
  if (!is_new) return bytes;
  const std::vector<double>& distinct = distinct_bytes(type_id, list);
  for (int place : at(list).place) bytes.push_back(distinct[static_cast<std::size_t>(place)]);
  return bytes;
}

const std::vector<double>& SpecTables::distinct_bytes(int type_id, int list) {
  const auto [bytes, is_new] = kept(distinct_bytes_, {type_id, list});
  if (!is_new) return bytes;
  const Type& of = type(type_id);
  for (const Spec& spec : at(list).distinct) {
    bytes.push_back(static_cast<double>(local_bytes(spec, of.shape, of.dtype, model_.mesh())));
  }
  return bytes;
}

CostTable SpecTables::classes_of(int from, int to) const {
  const List& rows = at(from);
  const List& columns = at(to);
  CostTable table{static_cast<int>(rows.ids.size()),
                  static_cast<int>(columns.ids.size()),
                  {},
                  rows.place,
                  columns.place,
                  static_cast<int>(columns.distinct.size())};
  return table;
}

SpecTables::Edge SpecTables::edge(int type_id, int from, const std::vector<int>& to) {
  const auto [known, is_new] = kept(edges_, {type_id, from}, to);
  if (!is_new) return known;
  CostTable cost, peak;
  if (to.size() == 1) {
    find_class_prices(type_id, from, to.front(), cost, peak);
  } else {
    const std::size_t rows = specs(from).size(), columns = specs(to.front()).size();
    cost = {static_cast<int>(rows), static_cast<int>(columns), {}};
    cost.values.assign(rows * columns, 0.0);
    if (limited_) peak = cost;
    for (std::size_t t = 0; t < to.size(); ++t) add_prices(type_id, from, to, t, cost, peak);
  }
  Edge edge;
  // Prices of other models may say that a reshard takes nothing, which still needs memory.
  const auto is_nothing = [](const CostTable& table) {
    return std::all_of(table.values.begin(), table.values.end(), [](double v) { return v == 0; });
  };
  edge.free = is_nothing(cost) && is_nothing(peak);
  count(cost);
  count(peak);
  edge.cost = problem_.add_table(std::move(cost));
  if (limited_) edge.peak = problem_.add_table(std::move(peak));
  return known = edge;
}

void SpecTables::count(const CostTable& table) {
  const double entries = static_cast<double>(table.values.size());
  allowance_.add(entries, entries * sizeof(double));
}

Seconds SpecTables::breaking(const Type& type, const Spec& from, const Spec& to) const {
  if (from == to) return 0;
  return model_.breaking_seconds(type.shape, type.dtype, from, to) * type.weights.local +
         type.weights.issuing;
}

// It depends on the local bytes alone, of which there are few.
void SpecTables::add_breaking(int type_id, int from, int to, CostTable& cost) {
  const Type& of = type(type_id);
  const SpecList& rows = at(from).distinct;
  const SpecList& columns = at(to).distinct;
  std::vector<double> kinds = distinct_bytes(type_id, to);
  std::vector<std::size_t> kind_of;
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  for (double bytes : distinct_bytes(type_id, to)) {
    const auto kind = std::lower_bound(kinds.begin(), kinds.end(), bytes);
    kind_of.push_back(static_cast<std::size_t>(kind - kinds.begin()));
  }
  std::vector<Seconds> known;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    known.assign(kinds.size(), -1);
    double* to_row = cost.values.data() + r * columns.size();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (at(from).distinct_ids[r] == at(to).distinct_ids[c]) continue;
      Seconds& seconds = known[kind_of[c]];
      if (seconds < 0) seconds = breaking(of, rows[r], columns[c]);
      to_row[c] += seconds;
    }
  }
}

void SpecTables::find_class_prices(int type_id, int from, int to, CostTable& cost,
                                   CostTable& peak) {
  const Type& of = type(type_id);
  const List& rows = at(from);
  const List& columns = at(to);
  ReshardTable prices = model_.weighted_reshard_prices(of.shape, of.dtype, rows.distinct,
                                                       columns.distinct, of.weights);
  cost = classes_of(from, to);
  cost.values = std::move(prices.weighted);
  if (of.inside) add_breaking(type_id, from, to, cost);
  if (!limited_) return;
  peak = classes_of(from, to);
  peak.values.resize(prices.peak_bytes.size());
  const std::size_t width = columns.distinct.size();
  const double* bytes_to = distinct_bytes(type_id, to).data();
  for (std::size_t r = 0; r < rows.distinct.size(); ++r) {
    const Bytes* priced = prices.peak_bytes.data() + r * width;
    double* peak_to = peak.values.data() + r * width;
    for (std::size_t c = 0; c < width; ++c) {
      peak_to[c] = std::max(static_cast<double>(priced[c]), bytes_to[c]);
    }
    for (std::size_t c = 0; c < width; ++c) {
      if (rows.distinct_ids[r] == columns.distinct_ids[c]) peak_to[c] = 0;
    }
  }
}

// Adds the prices of reaching list to[t]; where an earlier port of the op needs the same spec,
// nothing more is to pay.
void SpecTables::add_prices(int type_id, int from, const std::vector<int>& to, std::size_t t,
                            CostTable& cost, CostTable& peak) {
  const Type& of = type(type_id);
  const List& rows = at(from);
  const List& columns = at(to[t]);
  const ReshardTable prices = model_.weighted_reshard_prices(of.shape, of.dtype, rows.distinct,
                                                             columns.distinct, of.weights);
  const std::vector<double>& bytes_to = bytes(type_id, to[t]);
  const std::size_t width = columns.ids.size();
  std::vector<std::size_t> paid;  // columns
  for (std::size_t c = 0; c < width; ++c) {
    const bool again = std::any_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(t),
                                   [&](int other) { return at(other).ids[c] == columns.ids[c]; });
    if (!again) paid.push_back(c);
  }
  for (std::size_t r = 0; r < rows.ids.size(); ++r) {
    const std::size_t row = static_cast<std::size_t>(rows.place[r]) * prices.columns;
    for (std::size_t c : paid) {
      const std::size_t entry = row + static_cast<std::size_t>(columns.place[c]);
      cost.values[r * width + c] += prices.weighted[entry];
      if (of.inside) {
        cost.values[r * width + c] += breaking(of, (*rows.specs)[r], (*columns.specs)[c]);
      }
      if (!limited_ || rows.ids[r] == columns.ids[c]) continue;
      peak.values[r * width + c] +=
          std::max(static_cast<double>(prices.peak_bytes[entry]), bytes_to[c]);
    }
  }
}

template <class May>
SpecTables::Edge SpecTables::only(Edge edge, int from, int to, const May& may) {
  CostTable cost = problem_.tables[static_cast<std::size_t>(edge.cost)];
  const bool by_class = !cost.row_class.empty();
  const SpecList& rows = by_class ? at(from).distinct : *at(from).specs;
  const SpecList& columns = by_class ? at(to).distinct : *at(to).specs;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (!may(rows[r], columns[c])) cost.values[r * columns.size() + c] = kInfinity;
    }
  }
  edge.cost = problem_.add_table(std::move(cost));
  edge.free = false;
  return edge;
}

SpecTables::Edge SpecTables::equal_only(Edge edge, int from, int to) {
  const auto [known, is_new] = kept(equal_only_, {edge.cost, from, to});
  if (!is_new) return known;
  return known = only(edge, from, to, [](const Spec& a, const Spec& b) { return a == b; });
}

SpecTables::Edge SpecTables::unreduced_only(Edge edge, int from, int to) {
  const auto [known, is_new] = kept(unreduced_only_, {edge.cost, from, to});
  if (!is_new) return known;
  return known = only(edge, from, to, [](const Spec& a, const Spec& b) {
           return std::includes(b.partial.begin(), b.partial.end(), a.partial.begin(),
                                a.partial.end());
         });
}

SpecTables::Edge SpecTables::whole_only(Edge edge, int from, int to) {
  const auto [known, is_new] = kept(whole_only_, {edge.cost, from, to});
  if (!is_new) return known;
  return known = only(edge, from, to, [](const Spec& a, const Spec& b) {
           return a.partial.empty() || b.partial.empty();
         });
}

SpecTables::Edge SpecTables::alike(int from, int to) {
  const auto [known, is_new] = kept(alike_, {from, to});
  if (!is_new) return known;
  CostTable table = classes_of(from, to);
  table.values.reserve(at(from).distinct.size() * at(to).distinct.size());
  for (const Spec& row : at(from).distinct) {
    for (const Spec& column : at(to).distinct) {
      table.values.push_back(row.dims == column.dims ? 0.0 : kInfinity);
    }
  }
  count(table);
  return known = {problem_.add_table(std::move(table)), -1, false};
}

int SpecTables::copies(int type_id, int from, int to) {
  const auto [copies, is_new] = kept(copies_, {type_id, from, to});
  if (!is_new) return copies;
  const std::vector<double>& bytes_to = distinct_bytes(type_id, to);
  CostTable table = classes_of(from, to);
  table.values.reserve(at(from).distinct.size() * bytes_to.size());
  for (int row : at(from).distinct_ids) {
    for (std::size_t c = 0; c < bytes_to.size(); ++c) {
      table.values.push_back(row == at(to).distinct_ids[c] ? 0.0 : bytes_to[c]);
    }
  }
  count(table);
  return copies = problem_.add_table(std::move(table));
}

}  // namespace autopar
