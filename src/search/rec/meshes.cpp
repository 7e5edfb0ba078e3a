#include "search/rec/meshes.hpp"

#include <algorithm>

namespace autopar::rec {

namespace {

// Cuts that treat less than this part of the weight of all ops differently are alike.
constexpr double kAlike = 1e-4;

// Cuts [begin, end) of the finest mesh.
struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Weight of the ops that two cuts treat differently.
double difference(const Decisions& decisions, std::size_t a, std::size_t b) {
  double sum = 0;
  for (std::size_t o = 0; o < decisions.assignments.size(); ++o) {
    const auto& factors = decisions.assignments[o].factor_of_axis;
    if (factors[a] != factors[b]) sum += decisions.weight_of_op[o];
  }
  return sum;
}

std::vector<std::int64_t> sizes_of(const Mesh& finest, const std::vector<Run>& runs) {
  std::vector<std::int64_t> sizes;
  for (const Run& run : runs) {
    std::int64_t size = 1;
    for (std::size_t a = run.begin; a < run.end; ++a) size *= finest.axes[a].size;
    sizes.push_back(size);
  }
  return sizes;
}

// Joins the cuts of one tier; `alike`: a difference of no matter.
std::vector<std::vector<std::int64_t>> joined(const Mesh& finest, std::vector<Run> runs,
                                              const Decisions& decisions, double alike) {
  std::vector<double> differences;
  for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
    differences.push_back(difference(decisions, runs[i].end - 1, runs[i + 1].begin));
  }
  std::vector<std::vector<std::int64_t>> found;
  while (true) {
    const auto nearest = std::min_element(differences.begin(), differences.end());
    if (nearest == differences.end() || *nearest > alike) found.push_back(sizes_of(finest, runs));
    if (nearest == differences.end()) return found;
    const auto i = nearest - differences.begin();
    runs[static_cast<std::size_t>(i)].end = runs[static_cast<std::size_t>(i) + 1].end;
    runs.erase(runs.begin() + i + 1);
    differences.erase(nearest);
  }
}

}  // namespace

Mesh finest_mesh(const Cluster& cluster) {
  std::vector<std::int64_t> sizes;
  for (auto tier = cluster.tiers.rbegin(); tier != cluster.tiers.rend(); ++tier) {
    const auto primes = prime_factors(tier->size);
    sizes.insert(sizes.end(), primes.rbegin(), primes.rend());
  }
  return std::move(make_mesh(cluster, sizes)).value();
}

JoinedMeshes::JoinedMeshes(const Cluster& cluster, const Mesh& finest, const Decisions& decisions)
    : cluster_(cluster) {
  double weight = 0;
  for (double w : decisions.weight_of_op) weight += w;
  for (std::size_t a = 0; a < finest.axes.size();) {
    std::vector<Run> runs;
    const auto tier = finest.axes[a].tier;
    for (; a < finest.axes.size() && finest.axes[a].tier == tier; ++a) runs.push_back({a, a + 1});
    sizes_.push_back(joined(finest, std::move(runs), decisions, kAlike * weight));
  }
}

std::vector<JoinedMeshes::Joins> JoinedMeshes::all(int max_axes) const {
  const std::size_t most = std::max(static_cast<std::size_t>(max_axes), sizes_.size());
  std::vector<std::pair<std::size_t, Joins>> found = {{0, {}}};
  for (const auto& tier : sizes_) {
    std::vector<std::pair<std::size_t, Joins>> longer;
    for (const auto& [axes, joins] : found) {
      for (std::size_t j = 0; j < tier.size(); ++j) {
        longer.emplace_back(axes + tier[j].size(), joins);
        longer.back().second.push_back(j);
      }
    }
    found = std::move(longer);
  }
  std::erase_if(found, [&](const auto& f) { return f.first > most; });
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Joins> all;
  for (auto& [axes, joins] : found) all.push_back(std::move(joins));
  return all;
}

Mesh JoinedMeshes::mesh(const Joins& joins) const {
  std::vector<std::int64_t> sizes;
  for (std::size_t t = 0; t < sizes_.size(); ++t) {
    sizes.insert(sizes.end(), sizes_[t][joins[t]].begin(), sizes_[t][joins[t]].end());
  }
  return std::move(make_mesh(cluster_, sizes)).value();
}

}  // namespace autopar::rec
