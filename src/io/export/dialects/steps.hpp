// The ops that take the place of a collective in the program of a rank, one after the other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

class Steps {
 public:
  // Starts from the collective's first input; the others only order it.
  Steps(Graph& program, Names& value_names, Names& op_names, const Op& collective);

  const Shape& shape() const { return program_.value(at_).shape; }
  DType dtype() const { return program_.value(at_).dtype; }

  // The op that the dialect has for the collective; it takes the collective's name.
  void exchange(const std::string& type, const std::string& domain,
                std::map<std::string, Attribute> attributes, Shape output);
  void transpose(const std::vector<std::int64_t>& perm);  // nothing where it moves nothing
  void reshape(const Shape& shape);                       // nothing where it changes nothing
  void cast(DType to);                                    // nothing where it is that already
  // Dimension `from` becomes dimension `to`, the others keep their order.
  void move_dimension(std::int64_t from, std::int64_t to);
  // Part `position` of `parts` equal ones.
  void part(std::int64_t axis, std::int64_t parts, std::int64_t position);
  // "ReduceSum", ... over dimension 0, which goes.
  void reduce_first(const std::string& type);
  // Gives the collective's output what has been made.
  void finish();

 private:
  void add(const std::string& suffix, const std::string& type, std::vector<ValueId> operands,
           std::map<std::string, Attribute> attributes, Shape output);
  ValueId ints(const std::string& suffix, const std::vector<std::int64_t>& values);

  Graph& program_;
  Names& value_names_;
  Names& op_names_;
  const Op& collective_;
  ValueId at_;
};

}  // namespace autopar
