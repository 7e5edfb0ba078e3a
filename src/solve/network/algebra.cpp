#include "solve/network/algebra.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "autopar/problem.hpp"
#include "solve/bound/kernel.hpp"
#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

enum Operation {
  kTidy,
  kFlip,
  kSum,
  kSelectVector,
  kSelectLabels,
  kAddToLabels,
  kLeaf,
  kPath,
  kWorseBy,
  kFinitePairs,
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 32);
}

// In four chains, so that one multiplication need not wait for another.
std::uint64_t hash_values(const double* values, std::size_t count) {
  std::array<std::uint64_t, 4> hashes = {count, 1, 2, 3};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint64_t hash =
          (hashes[k] ^ std::bit_cast<std::uint64_t>(values[i + k])) * 0xff51afd7ed558ccdULL;
      hashes[k] = hash ^ (hash >> 32);
    }
  }
  std::uint64_t hash = count;
  for (; i < count; ++i) hash = mix(hash, std::bit_cast<std::uint64_t>(values[i]));
  for (std::uint64_t part : hashes) hash = mix(hash, part);
  return hash;
}

// Classes of equal rows in order of first appearance; `first` gets one row per class.
Labels equal_rows(const double* values, int rows, int columns, Labels* first) {
  Labels classes(at(rows));
  const std::size_t width = at(columns);
  // By hash: classes with theirs, in the next place that is free. Twice as many places as rows.
  const std::size_t places = std::bit_ceil(2 * at(rows) + 1);
  std::vector<std::pair<std::uint64_t, int>> seen(places, {0, -1});
  for (int r = 0; r < rows; ++r) {
    const double* row = values + at(r) * width;
    const std::uint64_t hash = hash_values(row, width);
    std::size_t place = hash & (places - 1);
    const auto is_same = [&](int c) {
      const double* other = values + at((*first)[at(c)]) * width;
      return std::equal(row, row + width, other);
    };
    while (seen[place].second >= 0 && !(seen[place].first == hash && is_same(seen[place].second))) {
      place = (place + 1) & (places - 1);
    }
    if (seen[place].second < 0) {
      seen[place] = {hash, static_cast<int>(first->size())};
      first->push_back(r);
    }
    classes[at(r)] = seen[place].second;
  }
  return classes;
}

// In tiles, so that neither side runs through all of memory for each line of the other.
Vector transpose(const Vector& values, int rows, int columns) {
  constexpr std::size_t kTile = 16;
  const auto height = at(rows), width = at(columns);
  Vector result(values.size());
  for (std::size_t top = 0; top < height; top += kTile) {
    const std::size_t bottom = std::min(height, top + kTile);
    for (std::size_t left = 0; left < width; left += kTile) {
      const std::size_t right = std::min(width, left + kTile);
      for (std::size_t c = left; c < right; ++c) {
        for (std::size_t r = top; r < bottom; ++r) result[c * height + r] = values[r * width + c];
      }
    }
  }
  return result;
}

Vector select_rows(const Vector& values, int columns, const Labels& rows) {
  Vector result;
  result.reserve(rows.size() * at(columns));
  for (int r : rows) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(r) * columns;
    result.insert(result.end(), begin, begin + columns);
  }
  return result;
}

// The classes in use, renumbered from 0 in order of first use.
Labels used_classes(const Labels& map, Labels* used) {
  Labels renumbered(map.size()), number;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const std::size_t c = at(map[i]);
    if (c >= number.size()) number.resize(c + 1, -1);
    if (number[c] < 0) {
      number[c] = static_cast<int>(used->size());
      used->push_back(map[i]);
    }
    renumbered[i] = number[c];
  }
  return renumbered;
}

template <class Map>
const typename Map::mapped_type* find_in(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

std::size_t Algebra::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  const auto part = [&](std::size_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned>(key[i]));
  };
  for (std::size_t i = 0; i < key.size(); i += 2) hash = mix(hash, part(i) << 32 | part(i + 1));
  return static_cast<std::size_t>(hash);
}

template <class Value>
int Algebra::add(Value value, std::vector<int>& same_hash, std::deque<Value>& all) {
  for (int id : same_hash) {
    if (all[at(id)] == value) return id;
  }
  same_hash.push_back(static_cast<int>(all.size()));
  all.push_back(std::move(value));
  return same_hash.back();
}

int Algebra::add_vector(Vector values) {
  std::vector<int>& same_hash = vector_index_[hash_values(values.data(), values.size())];
  return add(std::move(values), same_hash, vectors_);
}

int Algebra::add_labels(Labels labels) {
  std::uint64_t hash = labels.size();
  for (int label : labels) hash = mix(hash, static_cast<std::uint64_t>(label));
  return add(std::move(labels), labels_index_[hash], labels_);
}

const Vector& Core::transposed() const {
  if (turned.empty()) turned = transpose(values, rows, columns);
  return turned;
}

int Algebra::add_core(int rows, int columns, Vector values) {
  return add_core(Core{rows, columns, std::move(values)});
}

int Algebra::add_core(Core core) {
  work_ += static_cast<double>(core.values.size());
  const std::uint64_t hash = mix(hash_values(core.values.data(), core.values.size()),
                                 static_cast<std::uint64_t>(core.rows));
  for (double value : core.values) core.largest = std::max(core.largest, value);
  return add(std::move(core), core_index_[hash], cores_);
}

void Algebra::forget_cores(const std::vector<char>& used, const std::vector<char>& by_columns) {
  for (std::size_t c = 0; c < cores_.size(); ++c) {
    if (used[c]) {
      cores_[c].turned = {};
    } else if (by_columns[c]) {
      cores_[c].transposed();
      cores_[c].values = {};
    } else {
      cores_[c] = {};
    }
  }
  vector_index_ = labels_index_ = core_index_ = {};
  tables_ = {};
  ids_ = {};
  sums_ = {};
  differences_ = {};
  aligned_ = {};
}

int Algebra::identity(int count) {
  Labels labels(at(count));
  for (int i = 0; i < count; ++i) labels[at(i)] = i;
  return add_labels(std::move(labels));
}

Table Algebra::add_table(int rows, int columns, const Vector& values) {
  return from_dense(rows, columns, values, identity(rows), identity(columns));
}

Table Algebra::blank_table(std::size_t labels_a, std::size_t labels_b) {
  const int map_a = add_labels(Labels(labels_a, 0)), map_b = add_labels(Labels(labels_b, 0));
  return {map_a, map_b, add_core(1, 1, {0.0})};
}

Table Algebra::from_dense(int rows, int columns, const Vector& values, int map_a, int map_b) {
  work_ += 2 * static_cast<double>(values.size());
  Labels first_rows, first_columns;
  const Labels row_classes = equal_rows(values.data(), rows, columns, &first_rows);
  const int kept_rows = static_cast<int>(first_rows.size());
  const bool all_rows = kept_rows == rows;
  Vector narrow = all_rows ? values : select_rows(values, columns, first_rows);
  Vector turned = transpose(narrow, kept_rows, columns);
  const Labels column_classes = equal_rows(turned.data(), columns, kept_rows, &first_columns);
  const int kept_columns = static_cast<int>(first_columns.size());
  if (kept_columns < columns) {
    turned = select_rows(turned, kept_rows, first_columns);
    narrow = transpose(turned, kept_columns, kept_rows);
  }
  const int row_id = add_labels(row_classes), column_id = add_labels(column_classes);
  return {select_labels(row_id, map_a), select_labels(column_id, map_b),
          add_core(kept_rows, kept_columns, std::move(narrow))};
}

Table Algebra::add_part(const Core& from, const Labels& classes_a, const Labels& classes_b) {
  Labels rows, columns;
  const int map_a = add_labels(used_classes(classes_a, &rows));
  const int map_b = add_labels(used_classes(classes_b, &columns));
  Vector values;
  values.reserve(rows.size() * columns.size());
  for (int r : rows) {
    for (int c : columns) values.push_back(from.row(r)[c]);
  }
  return from_dense(static_cast<int>(rows.size()), static_cast<int>(columns.size()), values, map_a,
                    map_b);
}

Table Algebra::tidy(const Table& table) {
  const Key key = {kTidy, table.map_a, table.map_b, table.core, 0, 0, 0, 0};
  if (const Table* known = find_in(tables_, key)) return *known;
  Labels rows, columns;
  const int map_a = add_labels(used_classes(labels(table.map_a), &rows));
  const int map_b = add_labels(used_classes(labels(table.map_b), &columns));
  const Core& old = core(table.core);
  Table result = {map_a, map_b, table.core};
  const bool all_used =
      static_cast<int>(rows.size()) == old.rows && static_cast<int>(columns.size()) == old.columns;
  if (!all_used || map_a != table.map_a || map_b != table.map_b) {
    result = add_part(old, labels(table.map_a), labels(table.map_b));
  }
  tables_[key] = result;
  return result;
}

Table Algebra::flip(const Table& table) {
  const Key key = {kFlip, table.core, 0, 0, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return {table.map_b, table.map_a, *known};
  const Core& old = core(table.core);
  const int flipped = add_core(old.columns, old.rows, old.transposed());
  ids_[key] = flipped;
  return {table.map_b, table.map_a, flipped};
}

std::vector<Table> Algebra::align(const std::vector<Table>& tables) {
  std::vector<int> key;
  for (const Table& table : tables) {
    key.insert(key.end(), {table.map_a, table.map_b, table.core});
  }
  const auto known = aligned_.find(key);
  if (known != aligned_.end()) return known->second;
  // Labels are in one class if they are so in every table.
  const auto joint = [&](int Table::*map, std::vector<std::vector<int>>* members) {
    const std::size_t count = labels(tables[0].*map).size();
    Labels classes(count);
    std::map<std::vector<int>, int> known;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<int> each;
      for (const Table& table : tables) each.push_back(labels(table.*map)[i]);
      const auto [found, added] = known.emplace(each, static_cast<int>(members->size()));
      if (added) members->push_back(each);
      classes[i] = found->second;
    }
    return add_labels(std::move(classes));
  };
  std::vector<std::vector<int>> rows, columns;
  const int map_a = joint(&Table::map_a, &rows), map_b = joint(&Table::map_b, &columns);
  std::vector<Table> result;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Core& old = core(tables[t].core);
    Vector values;
    values.reserve(rows.size() * columns.size());
    for (const std::vector<int>& row : rows) {
      const double* from = old.row(row[t]);
      for (const std::vector<int>& column : columns) {
        values.push_back(from[at(column[t])]);
      }
    }
    result.push_back({map_a, map_b,
                      add_core(static_cast<int>(rows.size()), static_cast<int>(columns.size()),
                               std::move(values))});
  }
  aligned_.emplace(std::move(key), result);
  return result;
}

Table Algebra::sum(const Table& first, const Table& second) {
  const Key key = {kSum,         first.map_a,  first.map_b, first.core,
                   second.map_a, second.map_b, second.core, 0};
  if (const Table* known = find_in(tables_, key)) return *known;
  const std::vector<Table> both = align({first, second});
  const Core& a = core(both[0].core);
  const Core& b = core(both[1].core);
  Vector values(a.values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = a.values[i] + b.values[i];
  const Table result = from_dense(a.rows, a.columns, values, both[0].map_a, both[0].map_b);
  tables_[key] = result;
  return result;
}

int Algebra::select_vector(int vector, int kept) {
  const Key key = {kSelectVector, vector, kept, 0, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return *known;
  Vector values;
  for (int label : labels(kept)) {
    values.push_back(this->vector(vector)[at(label)]);
  }
  return ids_[key] = add_vector(std::move(values));
}

int Algebra::select_labels(int labels, int kept) {
  const Key key = {kSelectLabels, labels, kept, 0, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return *known;
  Labels values;
  for (int label : this->labels(kept)) {
    values.push_back(this->labels(labels)[at(label)]);
  }
  return ids_[key] = add_labels(std::move(values));
}

int Algebra::add_to_labels(int vector, int classes, int addend) {
  const Key key = {kAddToLabels, vector, classes, addend, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return *known;
  Vector values = this->vector(vector);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += this->vector(addend)[at(labels(classes)[i])];
  }
  return ids_[key] = add_vector(std::move(values));
}

int Algebra::subtract_min(int vector, double* minimum) {
  Vector values = this->vector(vector);
  *minimum = *std::min_element(values.begin(), values.end());
  if (*minimum == 0 || *minimum == kInfinity) return vector;
  for (double& value : values) value -= *minimum;
  return add_vector(std::move(values));
}

int Algebra::leaf_message(int vector, const Table& table) {
  const Key key = {kLeaf, vector, table.map_a, table.core, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return *known;
  const Core& c = core(table.core);
  const Labels& classes = labels(table.map_a);
  Vector per_class(at(c.rows), kInfinity);
  for (std::size_t k = 0; k < classes.size(); ++k) {
    double& best = per_class[at(classes[k])];
    best = std::min(best, this->vector(vector)[k]);
  }
  Vector message(at(c.columns));
  min_plus_rows(message.data(), per_class.data(), c.values.data(), at(c.rows), message.size());
  work_ += effort::work::kRowEntryWork * static_cast<double>(c.values.size());
  return ids_[key] = add_vector(std::move(message));
}

Table Algebra::eliminate_path(int vector, const Table& first, const Table& second) {
  const Key key = {kPath, vector, first.map_a, first.core, second.map_a, second.core, 0, 0};
  const Table* known = find_in(tables_, key);
  Table classes;
  if (known != nullptr) {
    classes = *known;
  } else {
    const Core& one = core(first.core);
    const Core& two = core(second.core);
    const std::size_t rows = at(one.columns);
    const std::size_t columns = at(two.columns);
    Vector values(rows * columns), add(at(two.rows));
    const Vector& cost = this->vector(vector);
    for (std::size_t r = 0; r < rows; ++r) {
      // The least per class of what is between, as the second table sees it.
      std::fill(add.begin(), add.end(), kInfinity);
      for (std::size_t k = 0; k < cost.size(); ++k) {
        double& least = add[at(labels(second.map_a)[k])];
        least = std::min(least, cost[k] + one.row(labels(first.map_a)[k])[r]);
      }
      min_plus_rows(values.data() + r * columns, add.data(), two.values.data(), add.size(),
                    columns);
    }
    work_ += effort::work::kRowEntryWork * static_cast<double>(cost.size() * values.size());
    classes = add_table(one.columns, two.columns, values);
    tables_[key] = classes;
  }
  return {select_labels(classes.map_a, first.map_b), select_labels(classes.map_b, second.map_b),
          classes.core};
}

std::optional<Algebra::Sum> Algebra::separable(int id) {
  const auto [known, added] = sums_.try_emplace(id);
  if (!added) return known->second;
  const Core& c = core(id);
  bool found = c.largest < kInfinity;
  // Sums that are equal in exact arithmetic differ in their last bits.
  const double tolerance = 1e-15 * c.largest;
  Vector f(at(c.rows), 0.0), g(at(c.columns), 0.0);
  if (found) {
    g.assign(c.row(0), c.row(0) + c.columns);
    for (int r = 0; r < c.rows && found; ++r) {
      f[at(r)] = c.row(r)[0] - g[0];
      for (int k = 1; k < c.columns && found; ++k) {
        found = std::abs(c.row(r)[k] - g[at(k)] - f[at(r)]) <= tolerance;
      }
    }
  }
  if (!found) return std::nullopt;
  const double shift = *std::min_element(f.begin(), f.end());  // both parts >= 0
  for (double& value : f) value -= shift;
  for (double& value : g) value = std::max(0.0, value + shift);
  return known->second = Sum{add_vector(std::move(f)), add_vector(std::move(g))};
}

const Vector& Algebra::worse_by(int id, bool by_columns) {
  const Key key = {kWorseBy, id, by_columns ? 1 : 0, 0, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return differences_[at(*known)];
  const Core& c = core(id);
  const std::size_t rows = at(by_columns ? c.columns : c.rows);
  const std::size_t columns = at(by_columns ? c.rows : c.columns);
  const Vector& turned = by_columns ? c.values : c.transposed();
  Vector worst(rows * rows);
  for (std::size_t s = 0; s < rows; ++s) {
    const int row = static_cast<int>(s);
    largest_differences(worst.data() + s * rows, by_columns ? c.column(row) : c.row(row),
                        turned.data(), columns, rows);
  }
  work_ += effort::work::kRowEntryWork * static_cast<double>(worst.size() * columns);
  ids_[key] = static_cast<int>(differences_.size());
  differences_.push_back(std::move(worst));
  return differences_.back();
}

double Algebra::finite_pairs(const Table& table) {
  if (core(table.core).largest < kInfinity) {
    return static_cast<double>(labels(table.map_a).size() * labels(table.map_b).size());
  }
  const Key key = {kFinitePairs, table.map_a, table.map_b, table.core, 0, 0, 0, 0};
  if (const int* known = find_in(ids_, key)) return vector(*known)[0];
  const Core& c = core(table.core);
  Vector rows(at(c.rows), 0.0), columns(at(c.columns), 0.0);
  for (int r : labels(table.map_a)) ++rows[at(r)];
  for (int k : labels(table.map_b)) ++columns[at(k)];
  double pairs = 0;
  for (int r = 0; r < c.rows; ++r) {
    for (int k = 0; k < c.columns; ++k) {
      if (c.row(r)[k] < kInfinity) {
        pairs += rows[at(r)] * columns[at(k)];
      }
    }
  }
  ids_[key] = add_vector({pairs});
  return pairs;
}

}  // namespace autopar::solver
