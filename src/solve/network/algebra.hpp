// Vectors and tables by content: equal ones exist once and operations on them are remembered, so
// that the equal layers of a network are worked on once.
//
// A table between two nodes is stored as its *core*: rows that are equal, and columns that are
// equal, appear once, and a class map per side says which row (column) a label uses. The
// candidates of an op are many, but those that read one input in the same spec are one class, so
// cores are much smaller than tables, and messages live on classes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace autopar::solver {

using Vector = std::vector<double>;
using Labels = std::vector<int>;  // also: classes of labels

inline constexpr int kNone = -1;  // in place of an index
inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Ascending, each once.
inline void sort_unique(std::vector<int>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

struct Core {
  int rows = 0;
  int columns = 0;
  Vector values;               // row-major
  double largest = 0;          // infinite: some pairs are forbidden
  mutable Vector turned = {};  // transposed(), once it was asked for: a network is one thread's

  // Column-major, so that both directions read along memory.
  const Vector& transposed() const;

  bool operator==(const Core& other) const { return rows == other.rows && values == other.values; }

  const double* row(int r) const {
    return values.data() + static_cast<std::size_t>(r) * static_cast<std::size_t>(columns);
  }
  const double* column(int c) const {
    return transposed().data() + static_cast<std::size_t>(c) * static_cast<std::size_t>(rows);
  }
};

// A table between nodes a and b, by the ids of its parts.
struct Table {
  int map_a = -1;
  int map_b = -1;
  int core = -1;
};

// Ids are given in the order of first appearance, so nothing depends on hash order.
class Algebra {
 public:
  int add_vector(Vector values);
  int add_labels(Labels labels);
  int add_core(int rows, int columns, Vector values);
  const Vector& vector(int id) const { return vectors_[static_cast<std::size_t>(id)]; }
  const Labels& labels(int id) const { return labels_[static_cast<std::size_t>(id)]; }
  const Core& core(int id) const { return cores_[static_cast<std::size_t>(id)]; }
  // Frees what is remembered and the values of cores that are not in use; of those, columns stay
  // where they are needed. What is made after that is not told to be like what was there.
  void forget_cores(const std::vector<char>& used, const std::vector<char>& by_columns);
  int core_count() const { return static_cast<int>(cores_.size()); }
  // Classes 0, 1, ... : every label its own.
  int identity(int count);

  // A dense table, its equal rows and columns found.
  Table add_table(int rows, int columns, const Vector& values);
  // One that says nothing, between nodes of so many labels.
  Table blank_table(std::size_t labels_a, std::size_t labels_b);
  // Of a core, perhaps another algebra's, for labels of those classes.
  Table add_part(const Core& from, const Labels& classes_a, const Labels& classes_b);
  // Drops the rows and columns that no label uses, then joins the equal ones.
  Table tidy(const Table& table);
  Table flip(const Table& table);
  // Sum of two tables between the same nodes.
  Table sum(const Table& first, const Table& second);
  // The same classes for all tables: joint maps, and each core spread over them.
  std::vector<Table> align(const std::vector<Table>& tables);

  int select_vector(int vector, int kept);                 // values of the kept labels
  int select_labels(int labels, int kept);                 // also composition: labels[kept[i]]
  int add_to_labels(int vector, int classes, int addend);  // v[i] + addend[classes[i]]
  int subtract_min(int vector, double* minimum);

  // min over k of vector[k] + the table's entry for (k, class of b), k a label of the table's a.
  int leaf_message(int vector, const Table& table);
  // min over k of first(k, a) + vector[k] + second(k, b), as a table between a and b.
  Table eliminate_path(int vector, const Table& first, const Table& second);
  // Vectors over rows and over columns whose sum equals the core, where there are such.
  struct Sum {
    int rows, columns;
  };
  std::optional<Sum> separable(int core);
  // How much worse row r can be than row s: max over columns of core[r] - core[s], as a rows x
  // rows matrix, entry (s, r); +inf where r is forbidden and s is not. `by_columns`: of columns
  // instead.
  const Vector& worse_by(int core, bool by_columns);
  // Pairs of labels that the table allows.
  double finite_pairs(const Table& table);

  double work() const { return work_; }  // table entries touched so far

 private:
  int add_core(Core core);
  using Key = std::array<int, 8>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  using Index = std::unordered_map<std::uint64_t, std::vector<int>>;

  Table from_dense(int rows, int columns, const Vector& values, int map_a, int map_b);
  // The number of an equal one of those with the same hash, or of this one.
  template <class Value>
  static int add(Value value, std::vector<int>& same_hash, std::deque<Value>& all);

  std::deque<Vector> vectors_;
  std::deque<Labels> labels_;
  std::deque<Core> cores_;
  Index vector_index_, labels_index_, core_index_;
  std::unordered_map<Key, Table, KeyHash> tables_;
  std::unordered_map<Key, int, KeyHash> ids_;
  std::unordered_map<int, std::optional<Sum>> sums_;  // by core
  std::map<std::vector<int>, std::vector<Table>> aligned_;
  std::deque<Vector> differences_;
  double work_ = 0;
};

}  // namespace autopar::solver
