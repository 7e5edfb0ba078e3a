// The physical Cluster (devices, link tiers) and the logical Mesh of named axes bound to tiers.
//
//   2 x 8 devices: tiers nvlink (size 8), ib (size 2). The mesh "2x4x2" has the axes
//   ib=2, nvlink_0=4, nvlink_1=2; rank = (i_ib * 4 + i_nvlink_0) * 2 + i_nvlink_1.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autopar/profile.hpp"
#include "autopar/support.hpp"

namespace autopar {

struct Device {
  std::string name;
  Bytes memory_bytes = 0;
  double memory_bandwidth_bytes_per_s = 0;
  std::map<std::string, double> peak_flops_per_s;  // by dtype name ("float32", "bfloat16")
};

// One level of the interconnect. Bandwidth is per device and direction.
struct Tier {
  std::string name;
  std::int64_t size = 1;
  double bandwidth_bytes_per_s = 0;
  Seconds latency_s = 0;
  // (message bytes, fraction of the bandwidth reached), ascending; empty: always 1.
  std::vector<std::pair<double, double>> efficiency = {};
  // Of gathers and ReduceScatters across this tier, which go round a ring of all ranks, and of
  // AllReduces, which go up and down a tree: each time that these cross it. 0: latencies only.
  Seconds ring_step_s = 0;
};

struct Cluster {
  std::string name;
  Device device;
  std::vector<Tier> tiers;  // innermost first
  double host_link_bandwidth_bytes_per_s = 0;
  Profile profile = {};

  std::int64_t device_count() const;
};
// Positive sizes, bandwidths, memory; unique tier names; at most 2^20 devices.
Status verify(const Cluster& cluster);

struct Axis {
  std::string name;
  std::int64_t size = 1;
  int tier = 0;             // index into Cluster::tiers: the outermost tier that the axis crosses
  std::int64_t stride = 1;  // ranks between neighbours along the axis
  bool operator==(const Axis&) const = default;
};

// Axes from the outermost (slowest-varying rank) to the innermost. No axis has size 1, except that
// the mesh of one device has exactly one axis, of size 1. Products of sizes = number of devices.
struct Mesh {
  std::vector<Axis> axes;

  std::int64_t size() const;
  int rank() const { return static_cast<int>(axes.size()); }
  std::vector<std::int64_t> sizes() const;                           // MindSpore's device matrix
  std::vector<std::int64_t> coordinates(std::int64_t device) const;  // along each axis
  int axis_index(const std::string& name) const;                     // -1: no such axis
  bool operator==(const Mesh&) const = default;
};
std::string to_text(const Mesh& mesh);  // "2x4x2"

inline constexpr int kMaxMeshAxes = 20;  // a mesh of 2^20 devices, all axes of size 2

// Mesh axes in some order, each at most once: a vector of small numbers that never allocates, since
// a search holds millions of them. Ordered as the vector would be.
class AxisList {
 public:
  using value_type = int;
  using iterator = std::int8_t*;
  using const_iterator = const std::int8_t*;

  AxisList() { axes_.fill(kNone); }
  AxisList(std::initializer_list<int> axes) : AxisList(axes.begin(), axes.end()) {}
  AxisList(const std::vector<int>& axes) : AxisList(axes.begin(), axes.end()) {}  // NOLINT
  template <class Iterator>
  AxisList(Iterator first, Iterator last) : AxisList() {
    for (; first != last; ++first) push_back(*first);
  }
  operator std::vector<int>() const { return {begin(), end()}; }  // NOLINT

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return static_cast<std::size_t>(size_); }
  iterator begin() { return axes_.data(); }
  iterator end() { return axes_.data() + size_; }
  const_iterator begin() const { return axes_.data(); }
  const_iterator end() const { return axes_.data() + size_; }
  std::int8_t& operator[](std::size_t i) { return axes_[i]; }
  int operator[](std::size_t i) const { return axes_[i]; }
  int front() const { return axes_[0]; }
  int back() const { return axes_[size() - 1]; }

  void clear() { *this = AxisList(); }
  void push_back(int axis) {
    AUTOPAR_CHECK(size_ < kMaxMeshAxes, "more than " + std::to_string(kMaxMeshAxes) + " mesh axes");
    axes_[static_cast<std::size_t>(size_++)] = static_cast<std::int8_t>(axis);
  }
  void pop_back() { axes_[static_cast<std::size_t>(--size_)] = kNone; }
  // New places hold axis 0 until they are set.
  void resize(std::size_t size) {
    while (this->size() > size) pop_back();
    while (this->size() < size) push_back(0);
  }
  template <class Iterator>
  void append(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }

  bool operator==(const AxisList& other) const { return axes_ == other.axes_; }
  auto operator<=>(const AxisList& other) const { return axes_ <=> other.axes_; }

 private:
  static constexpr std::int8_t kNone = -1;  // fills what is not used: less than any axis
  std::array<std::int8_t, kMaxMeshAxes> axes_;
  std::int8_t size_ = 0;
};

// Builds the mesh with these axis sizes, outermost first ("4x2" or "8"); sizes of 1 are dropped. An
// axis may span tiers. Names: the tier's name, with "_0", "_1", ... from the outermost where the
// tier has several axes; a spanning axis gets the outermost tier's name.
// Errors: product differs from the device count; sizes that do not nest in the tiers.
Result<Mesh> make_mesh(const Cluster& cluster, const std::vector<std::int64_t>& sizes);
Result<std::vector<std::int64_t>> parse_mesh(const std::string& text);

// All meshes of up to `max_axes` axes in which every axis lies within one tier. `ordered`: also the
// permutations of the sizes within a tier. They name ranks differently; and as axes cut a factor in
// the mesh's order, plans can differ where several axes cut one. Where the cluster has more tiers
// than max_axes, all meshes of max_axes axes that each have whole tiers. Any device count, not only
// powers of two. Order: fewest axes first, then lexicographic by sizes. Never empty.
std::vector<Mesh> mesh_candidates(const Cluster& cluster, int max_axes, bool ordered = false);

// Of a number from 1 up: 12 -> 2, 2, 3. Of 1 there are none.
std::vector<std::int64_t> prime_factors(std::int64_t number);

// All groups of the devices that differ only along `axes`, flattened: each group ordered with the
// first of `axes` varying slowest, groups ordered by their first rank. Every rank is in one group.
std::vector<std::int64_t> device_groups(const Mesh& mesh, const AxisList& axes);
std::int64_t axes_size(const Mesh& mesh, const AxisList& axes);  // product of sizes

}  // namespace autopar
