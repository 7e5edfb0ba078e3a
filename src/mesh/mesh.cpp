#include "autopar/mesh.hpp"

#include <algorithm>
#include <charconv>
#include <set>

namespace autopar {

namespace {

struct TierSpan {
  int tier = 0;            // index into Cluster::tiers
  std::int64_t begin = 1;  // ranks inside one member of the tier
  std::int64_t end = 1;    // ranks inside the whole tier
};

// The tiers that connect anything, innermost first.
std::vector<TierSpan> spans_of(const Cluster& cluster) {
  std::vector<TierSpan> spans;
  std::int64_t devices = 1;
  for (std::size_t t = 0; t < cluster.tiers.size(); ++t) {
    if (cluster.tiers[t].size == 1) continue;
    const std::int64_t end = devices * cluster.tiers[t].size;
    spans.push_back({static_cast<int>(t), devices, end});
    devices = end;
  }
  return spans;
}

// The outermost tier that an axis from `stride` to `end` crosses; -1 where it does not nest: it may
// cut a tier only into equal groups of neighbours.
int tier_of_axis(const std::vector<TierSpan>& spans, std::int64_t stride, std::int64_t end) {
  int tier = -1;
  for (const TierSpan& span : spans) {
    if (span.end <= stride || span.begin >= end) continue;
    const std::int64_t low = std::max(stride, span.begin);
    const std::int64_t high = std::min(end, span.end);
    if (low % span.begin != 0 || high % low != 0 || span.end % high != 0) return -1;
    tier = span.tier;
  }
  return tier;
}

std::string tiers_text(const std::vector<TierSpan>& spans) {
  std::string text;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    text += (text.empty() ? "" : " x ") + std::to_string(span->end / span->begin);
  }
  return text;
}

void name_axes(const Cluster& cluster, std::vector<Axis>& axes) {
  std::vector<int> count(cluster.tiers.size(), 0);
  for (const Axis& axis : axes) ++count[static_cast<std::size_t>(axis.tier)];
  std::vector<int> next(cluster.tiers.size(), 0);
  std::set<std::string> taken;
  for (const Axis& axis : axes) {
    const auto tier = static_cast<std::size_t>(axis.tier);
    if (count[tier] == 1) taken.insert(cluster.tiers[tier].name);
  }
  for (Axis& axis : axes) {
    const auto tier = static_cast<std::size_t>(axis.tier);
    axis.name = cluster.tiers[tier].name;
    if (count[tier] == 1) continue;
    // A tier may itself be called "ib_0".
    do {
      axis.name = cluster.tiers[tier].name + "_" + std::to_string(next[tier]++);
    } while (!taken.insert(axis.name).second);
  }
}

Mesh one_device_mesh(const Cluster& cluster) {
  const std::string name = cluster.tiers.empty() ? "device" : cluster.tiers.front().name;
  return {{{name, 1, 0, 1}}};
}

}  // namespace

std::int64_t Mesh::size() const {
  std::int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

std::vector<std::int64_t> Mesh::sizes() const {
  std::vector<std::int64_t> result;
  for (const Axis& axis : axes) result.push_back(axis.size);
  return result;
}

std::vector<std::int64_t> Mesh::coordinates(std::int64_t device) const {
  std::vector<std::int64_t> result;
  for (const Axis& axis : axes) result.push_back(device / axis.stride % axis.size);
  return result;
}

int Mesh::axis_index(const std::string& name) const {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string to_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes) {
    if (!text.empty()) text += 'x';
    text += std::to_string(axis.size);
  }
  return text;
}

Result<Mesh> make_mesh(const Cluster& cluster, const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  const std::int64_t devices = cluster.device_count();
  std::int64_t product = 1;
  for (std::int64_t size : sizes) {
    if (size < 1 || size > devices / product) {
      product = 0;
      break;
    }
    product *= size;
  }
  if (product != devices) {
    return input_error("mesh '" + text + "': the product of its sizes must be the " +
                       std::to_string(devices) + " devices of the cluster '" + cluster.name + "'");
  }
  if (devices == 1) return one_device_mesh(cluster);

  const std::vector<TierSpan> spans = spans_of(cluster);
  Mesh mesh;
  std::int64_t stride = 1;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    if (*size == 1) continue;
    const int tier = tier_of_axis(spans, stride, stride * *size);
    if (tier < 0) {
      return input_error("mesh '" + text + "': the axis of size " + std::to_string(*size) +
                         " cuts a tier of the cluster '" + cluster.name + "' (" +
                         tiers_text(spans) + ", outermost first) into unequal parts; use sizes " +
                         "whose products, from the right, divide the tiers or are multiples of " +
                         "them");
    }
    mesh.axes.push_back({"", *size, tier, stride});
    stride *= *size;
  }
  std::reverse(mesh.axes.begin(), mesh.axes.end());
  name_axes(cluster, mesh.axes);
  return mesh;
}

Result<std::vector<std::int64_t>> parse_mesh(const std::string& text) {
  std::vector<std::int64_t> sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1) break;
    sizes.push_back(size);
    at = next;
    if (at == end) return sizes;
    if (*at != 'x') break;
    ++at;
  }
  return usage_error("mesh '" + text +
                     "': expected positive sizes joined by 'x', outermost first, " + "such as 4x2");
}

std::int64_t axes_size(const Mesh& mesh, const AxisList& axes) {
  std::int64_t product = 1;
  for (int axis : axes) product *= mesh.axes[static_cast<std::size_t>(axis)].size;
  return product;
}

std::vector<std::int64_t> device_groups(const Mesh& mesh, const AxisList& axes) {
  std::vector<std::int64_t> offsets = {0};
  for (int index : axes) {
    const Axis& axis = mesh.axes[static_cast<std::size_t>(index)];
    std::vector<std::int64_t> longer;
    for (std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < axis.size; ++i) longer.push_back(offset + i * axis.stride);
    }
    offsets = std::move(longer);
  }
  std::vector<std::int64_t> groups;
  for (std::int64_t device = 0; device < mesh.size(); ++device) {
    bool first = true;
    for (int index : axes) {
      const Axis& axis = mesh.axes[static_cast<std::size_t>(index)];
      first = first && device / axis.stride % axis.size == 0;
    }
    if (!first) continue;
    for (std::int64_t offset : offsets) groups.push_back(device + offset);
  }
  return groups;
}

}  // namespace autopar
