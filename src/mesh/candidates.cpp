// Enumerates the logical meshes of a cluster. Numbers are small: a tier of 64 devices has 11
// unordered factorisations, so nothing here is clever.
#include <algorithm>

#include "autopar/mesh.hpp"

namespace autopar {

namespace {

using Sizes = std::vector<std::int64_t>;

// Appends the factorisations of `number` into `count` factors of at least 2, each at most `largest`
// (unordered: non-increasing, so the largest factor is the outermost).
void factorise(std::int64_t number, int count, std::int64_t largest, bool ordered, Sizes& prefix,
               std::vector<Sizes>& found) {
  if (count == 1) {
    if (number < 2 || number > largest) return;
    prefix.push_back(number);
    found.push_back(prefix);
    prefix.pop_back();
    return;
  }
  for (std::int64_t factor = 2; factor <= std::min(number / 2, largest); ++factor) {
    if (number % factor != 0) continue;
    prefix.push_back(factor);
    factorise(number / factor, count - 1, ordered ? largest : factor, ordered, prefix, found);
    prefix.pop_back();
  }
}

// All sizes of the tiers from `tier` inwards, with at most `axes_left` axes.
void extend(const std::vector<std::int64_t>& tiers, std::size_t tier, int axes_left, bool ordered,
            Sizes& prefix, std::vector<Sizes>& found) {
  if (tier == tiers.size()) {
    found.push_back(prefix);
    return;
  }
  const int tiers_left = static_cast<int>(tiers.size() - tier);
  const int most = axes_left - (tiers_left - 1);
  for (int count = 1; count <= most; ++count) {
    std::vector<Sizes> choices;
    Sizes start;
    factorise(tiers[tier], count, tiers[tier], ordered, start, choices);
    for (const Sizes& choice : choices) {
      const std::size_t length = prefix.size();
      prefix.insert(prefix.end(), choice.begin(), choice.end());
      extend(tiers, tier + 1, axes_left - count, ordered, prefix, found);
      prefix.resize(length);
    }
  }
}

// All ways to put neighbouring tiers into one, so that `count` are left.
void join_tiers(const std::vector<std::int64_t>& tiers, std::size_t tier, std::size_t count,
                Sizes& prefix, std::vector<Sizes>& found) {
  std::int64_t size = 1;
  for (std::size_t next = tier + 1; next + count <= tiers.size() + 1; ++next) {
    size *= tiers[next - 1];
    if (count == 1 && next < tiers.size()) continue;
    prefix.push_back(size);
    if (count == 1) {
      found.push_back(prefix);
    } else {
      join_tiers(tiers, next, count - 1, prefix, found);
    }
    prefix.pop_back();
  }
}

}  // namespace

std::vector<Mesh> mesh_candidates(const Cluster& cluster, int max_axes, bool ordered) {
  std::vector<std::int64_t> tiers;  // outermost first
  for (auto tier = cluster.tiers.rbegin(); tier != cluster.tiers.rend(); ++tier) {
    if (tier->size > 1) tiers.push_back(tier->size);
  }
  std::vector<Sizes> found;
  Sizes prefix;
  const auto most = static_cast<std::size_t>(std::max(max_axes, 1));
  if (tiers.size() > most) {
    join_tiers(tiers, 0, most, prefix, found);
  } else {
    extend(tiers, 0, max_axes, ordered, prefix, found);
  }
  std::sort(found.begin(), found.end(), [](const Sizes& a, const Sizes& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  std::vector<Mesh> meshes;
  for (const Sizes& sizes : found) meshes.push_back(std::move(make_mesh(cluster, sizes)).value());
  return meshes;
}

std::vector<std::int64_t> prime_factors(std::int64_t number) {
  std::vector<std::int64_t> primes;
  for (std::int64_t p = 2; p * p <= number; ++p) {
    for (; number % p == 0; number /= p) primes.push_back(p);
  }
  if (number > 1) primes.push_back(number);
  return primes;
}

}  // namespace autopar
