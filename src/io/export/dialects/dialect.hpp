// Plans in the words of other runtimes: what a dialect is, and what it has to say of a collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/export.hpp"
#include "io/export/dialects/steps.hpp"

namespace autopar {

// Where every rank stands in the groups of a collective.
class Places {
 public:
  // Error where a rank is in no group or in several.
  static Result<Places> of(const Op& op, std::int64_t world_size);

  std::int64_t group_size() const { return group_size_; }
  std::int64_t group_of(std::int64_t rank) const { return place(rank) / group_size_; }
  std::int64_t position_of(std::int64_t rank) const { return place(rank) % group_size_; }
  std::vector<std::int64_t> ranks_with(std::int64_t rank) const;  // in the group's order
  // One group of all ranks; `in_order`: 0, 1, 2, ...
  bool is_world() const { return group_size_ == static_cast<std::int64_t>(place_.size()); }
  bool in_order() const;

 private:
  std::int64_t place(std::int64_t rank) const { return place_[static_cast<std::size_t>(rank)]; }
  IntList groups_;
  std::int64_t group_size_ = 1;
  std::vector<std::int64_t> place_;  // of a rank: its index in groups_
};

// Collectives of one plan have few different groups, each of which lists every rank.
class PlaceTable {
 public:
  explicit PlaceTable(std::int64_t world_size) : world_size_(world_size) {}
  Result<const Places*> of(const Op& op);

 private:
  std::int64_t world_size_;
  // Looked up, never walked. The lists are kept, so that no other gets the address of one.
  std::map<std::pair<const void*, std::int64_t>, std::pair<IntList, Places>> known_;
};

// A collective as one rank sees it.
struct RankCollective {
  const Op& op;
  const Places& places;
  std::int64_t rank = 0;
};

struct DialectRow {
  Dialect dialect;
  const char* name;     // of the option, and in the names of files
  const char* runtime;  // "TensorRT's DistCollective"
  // Adds what the collective is to a rank; not for ShardSlice. Errors: why_not().
  Status (*say)(const RankCollective& collective, Steps& steps);
  // Whether ShardSlice of what all ranks have alike may be an exchange, so that one file does for
  // all of them.
  bool scatters;
};
const DialectRow& row_of(Dialect dialect);

// "op 'x' (AllReduce) is not representable in ...: <reason>; try <what>".
Error why_not(const char* dialect, const Op& op, const std::string& reason,
              const std::string& hint);

Status say_in_trt(const RankCollective& collective, Steps& steps);
Status scatter_in_trt(const RankCollective& collective, Steps& steps);
bool trt_exchanges(DType dtype);
Status say_in_ort(const RankCollective& collective, Steps& steps);

// What ONNX's checker and shape inference know about the ops of the dialects.
void register_dialect_schemas();

// How many collectives of a program do not depend by data on the one before.
std::int64_t unordered_collectives(const Graph& program);

// The programs of a plan's ranks.
class RankPrograms {
 public:
  static Result<RankPrograms> of(const Plan& plan, const DialectRow& dialect);

  // Ranks with one program; by their lowest ranks, ascending.
  const std::vector<std::vector<std::int64_t>>& classes() const { return classes_; }
  Result<Graph> program(std::int64_t rank);

 private:
  RankPrograms(const Plan& plan, const DialectRow& dialect)
      : plan_(&plan), dialect_(&dialect), places_(plan.mesh.size()) {}
  Status look();
  Status rewrite(const Op& op, std::int64_t rank, Graph& program, Names& values, Names& ops);
  bool take_slice(const Op& op, const Places& places, std::int64_t rank, Graph& program) const;

  const Plan* plan_;
  const DialectRow* dialect_;
  PlaceTable places_;
  bool scatters_ = false;
  std::vector<std::vector<std::int64_t>> classes_;
};

}  // namespace autopar
