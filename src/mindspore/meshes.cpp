#include <algorithm>

#include "autopar/mindspore.hpp"

namespace autopar {

std::vector<Mesh> prime_meshes(const Cluster& cluster) {
  std::vector<std::vector<std::int64_t>> found = {{}};  // outermost first
  for (auto tier = cluster.tiers.rbegin(); tier != cluster.tiers.rend(); ++tier) {
    std::vector<std::int64_t> primes = prime_factors(tier->size);
    std::vector<std::vector<std::int64_t>> longer;
    do {
      for (const auto& sizes : found) {
        longer.push_back(sizes);
        longer.back().insert(longer.back().end(), primes.begin(), primes.end());
      }
    } while (std::next_permutation(primes.begin(), primes.end()));
    found = std::move(longer);
  }
  std::sort(found.begin(), found.end());
  std::vector<Mesh> meshes;
  for (const auto& sizes : found) meshes.push_back(std::move(make_mesh(cluster, sizes)).value());
  return meshes;
}

}  // namespace autopar
