// Prices for plans of a unit by what waits for what in them, for each mesh, found when they are
// asked for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planning/parts_of_step.hpp"

namespace autopar {

class UnitPaths {
 public:
  // On a mesh, where plans on another one take `known`.
  using Search = std::function<Result<PathPrices>(const std::string& mesh, Seconds known)>;

  // `meshes`: in the order in which they are likely to be asked for.
  UnitPaths(std::vector<std::string> meshes, Search search, int threads)
      : meshes_(std::move(meshes)), search_(std::move(search)), threads_(threads) {}

  // What is found does not depend on the number of threads. Errors: of the search.
  Result<const PathPrices*> of(const std::string& mesh);
  // Whether nothing is left to be found. Then several threads may ask at the same time.
  bool knows_all() const { return known_.size() == meshes_.size(); }

 private:
  void search_two(const std::string& mesh, const std::string& next);

  const std::vector<std::string> meshes_;
  const Search search_;
  const int threads_;
  std::map<std::string, PathPrices> known_;
  std::map<std::string, Result<PathPrices>> ahead_;  // as if no other plan was known
};

}  // namespace autopar
