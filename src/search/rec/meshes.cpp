#include "search/rec/meshes.hpp"

#include <algorithm>

namespace autopar::rec {

namespace {

// Descending.
std::vector<std::int64_t> prime_factors(std::int64_t number) {
  std::vector<std::int64_t> primes;
  for (std::int64_t p = 2; p * p <= number; ++p) {
    for (; number % p == 0; number /= p) primes.push_back(p);
  }
  if (number > 1) primes.push_back(number);
  std::reverse(primes.begin(), primes.end());
  return primes;
}

// Cuts [begin, end) of the finest mesh.
struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Weight of the ops that two cuts treat differently; 0: all alike.
double difference(const Decisions& decisions, std::size_t a, std::size_t b) {
  double sum = 0;
  bool same = true;
  for (std::size_t o = 0; o < decisions.assignments.size(); ++o) {
    const auto& factors = decisions.assignments[o].factor_of_axis;
    if (factors[a] == factors[b]) continue;
    same = false;
    sum += decisions.weight_of_op[o];
  }
  return same ? 0 : std::max(sum, 1e-30);
}

Mesh mesh_of(const Cluster& cluster, const Mesh& finest, const std::vector<Run>& runs) {
  std::vector<std::int64_t> sizes;
  for (const Run& run : runs) {
    std::int64_t size = 1;
    for (std::size_t a = run.begin; a < run.end; ++a) size *= finest.axes[a].size;
    sizes.push_back(size);
  }
  return std::move(make_mesh(cluster, sizes)).value();
}

}  // namespace

Mesh finest_mesh(const Cluster& cluster) {
  std::vector<std::int64_t> sizes;
  for (auto tier = cluster.tiers.rbegin(); tier != cluster.tiers.rend(); ++tier) {
    const auto primes = prime_factors(tier->size);
    sizes.insert(sizes.end(), primes.begin(), primes.end());
  }
  return std::move(make_mesh(cluster, sizes)).value();
}

std::vector<Mesh> joined_meshes(const Cluster& cluster, const Mesh& finest,
                                const Decisions& decisions, int max_axes) {
  std::vector<Run> runs;
  for (std::size_t a = 0; a < finest.axes.size(); ++a) runs.push_back({a, a + 1});
  std::vector<Mesh> meshes;
  while (true) {
    std::size_t nearest = runs.size();
    double least = 0;
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
      if (finest.axes[runs[i].begin].tier != finest.axes[runs[i + 1].begin].tier) continue;
      const double d = difference(decisions, runs[i].end - 1, runs[i + 1].begin);
      if (nearest < runs.size() && d >= least) continue;
      nearest = i;
      least = d;
    }
    const bool few = runs.size() <= static_cast<std::size_t>(max_axes) || nearest == runs.size();
    if (few && (nearest == runs.size() || least > 0)) {
      meshes.push_back(mesh_of(cluster, finest, runs));
    }
    if (nearest == runs.size()) return meshes;
    runs[nearest].end = runs[nearest + 1].end;
    runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(nearest) + 1);
  }
}

}  // namespace autopar::rec
