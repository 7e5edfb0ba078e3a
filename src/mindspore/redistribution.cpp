#include "mindspore/redistribution.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace autopar::mindspore {

namespace {

constexpr int kNone = -1;

// What one mesh axis does in a layout.
struct Role {
  int dim = kNone;
  int position = 0;
};

std::vector<Role> roles_of(const Spec& spec, std::size_t axis_count) {
  std::vector<Role> roles(axis_count);
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    for (std::size_t i = 0; i < spec.dims[d].size(); ++i) {
      roles[static_cast<std::size_t>(spec.dims[d][i])] = {static_cast<int>(d), static_cast<int>(i)};
    }
  }
  return roles;
}

bool go_on(const Role& a, const Role& b) {
  return a.dim == b.dim && (a.dim == kNone || a.position + 1 == b.position);
}

// A layout over the unified device matrix and tensor: per tensor dimension a device dimension.
using Map = std::vector<int>;

struct Unified {
  std::vector<std::vector<int>> device_axes;
  std::vector<std::int64_t> parts;  // per device dimension
  std::vector<int> dim_of;          // per unified tensor dimension: which of the tensor's own
  Map from, to;
  bool reshape = false;
};

// The unification, or nothing where the cuts do not nest.
class Unification {
 public:
  Unification(const Shape& shape, const Spec& from, const Spec& to, const Mesh& mesh)
      : shape_(shape), from_(from), to_(to), mesh_(mesh) {
    const auto before = roles_of(from, mesh.axes.size()), after = roles_of(to, mesh.axes.size());
    for (std::size_t a = 1; a < mesh.axes.size(); ++a) {
      if (!go_on(before[a - 1], before[a]) || !go_on(after[a - 1], after[a])) cut_before_.insert(a);
    }
  }

  std::optional<Unified> run() {
    while (true) {
      number_devices();
      const std::size_t cuts = cut_before_.size();
      Unified unified{device_axes_, {}, {}, {}, {}, false};
      for (const auto& axes : device_axes_) unified.parts.push_back(axes_size(mesh_, axes));
      bool fits = true;
      for (std::size_t d = 0; d < shape_.size() && fits; ++d) fits = add_dim(d, unified);
      if (fits) return unified;
      if (cut_before_.size() == cuts) return std::nullopt;
    }
  }

 private:
  void number_devices() {
    device_axes_.clear();
    device_of_.clear();
    for (std::size_t a = 0; a < mesh_.axes.size(); ++a) {
      if (a == 0 || cut_before_.count(a) != 0) device_axes_.emplace_back();
      device_axes_.back().push_back(static_cast<int>(a));
      device_of_.push_back(static_cast<int>(device_axes_.size()) - 1);
    }
  }

  // The device dimensions that split a dimension, major first.
  std::vector<int> devices_of(const std::vector<int>& axes) const {
    std::vector<int> devices;
    for (int axis : axes) {
      const int device = device_of_[static_cast<std::size_t>(axis)];
      if (devices.empty() || devices.back() != device) devices.push_back(device);
    }
    return devices;
  }

  std::int64_t parts_of(int device) const {
    return axes_size(mesh_, device_axes_[static_cast<std::size_t>(device)]);
  }

  // Number of slices before each cut within a dimension.
  void add_cuts(const std::vector<int>& devices, std::set<std::int64_t>& cuts) const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i + 1 < devices.size(); ++i)
      cuts.insert(product *= parts_of(devices[i]));
  }

  // Cuts one dimension and says what splits its pieces. False: a device dimension lies across a
  // cut; it has been cut where its axes allow.
  bool add_dim(std::size_t d, Unified& unified) {
    if (shape_[d] == 1) {
      unified.reshape = true;
      return true;
    }
    const std::vector<int> before = devices_of(from_.dims[d]), after = devices_of(to_.dims[d]);
    std::set<std::int64_t> cuts;
    add_cuts(before, cuts);
    add_cuts(after, cuts);
    std::int64_t last = 1;
    for (std::int64_t cut : cuts) {
      if (cut % last != 0) return false;
      last = cut;
    }
    if (shape_[d] % last != 0) return false;
    unified.reshape |= !cuts.empty();
    Map from, to;
    if (!place(before, cuts, shape_[d], from) || !place(after, cuts, shape_[d], to)) return false;
    unified.from.insert(unified.from.end(), from.begin(), from.end());
    unified.to.insert(unified.to.end(), to.begin(), to.end());
    unified.dim_of.insert(unified.dim_of.end(), from.size(), static_cast<int>(d));
    return true;
  }

  bool place(const std::vector<int>& devices, const std::set<std::int64_t>& cuts,
             std::int64_t extent, Map& map) {
    std::vector<std::int64_t> starts = {1};
    starts.insert(starts.end(), cuts.begin(), cuts.end());
    map.assign(starts.size(), kNone);
    std::int64_t offset = 1;
    for (int device : devices) {
      const auto at = std::find(starts.begin(), starts.end(), offset);
      if (at == starts.end()) return false;
      const std::int64_t next = std::next(at) == starts.end() ? extent : *std::next(at);
      const std::int64_t parts = parts_of(device);
      if (next / offset % parts != 0) {
        cut_device(device, next / offset);
        return false;
      }
      map[static_cast<std::size_t>(at - starts.begin())] = device;
      offset *= parts;
    }
    return true;
  }

  // Cuts a device dimension so that its first axes are `parts` devices, if they can be.
  void cut_device(int device, std::int64_t parts) {
    std::int64_t product = 1;
    for (int axis : device_axes_[static_cast<std::size_t>(device)]) {
      if (product > 1 && product == parts) cut_before_.insert(static_cast<std::size_t>(axis));
      product *= mesh_.axes[static_cast<std::size_t>(axis)].size;
    }
  }

  const Shape& shape_;
  const Spec& from_;
  const Spec& to_;
  const Mesh& mesh_;
  std::set<std::size_t> cut_before_;  // mesh axes that begin a device dimension
  std::vector<std::vector<int>> device_axes_;
  std::vector<int> device_of_;  // by mesh axis
};

// The state of MindSpore's inference: what still splits the dimensions that are not done.
class Inference {
 public:
  Inference(const Unified& unified, Redistribution& result)
      : unified_(unified), result_(result), now_(unified.from), done_(unified.from.size(), false) {}

  void run() {
    while (!all_done()) {
      const std::size_t before = result_.steps.size();
      while (!all_done()) {
        const std::size_t split = result_.steps.size();
        split_free();
        while (!all_done()) {
          const std::size_t permuted = result_.steps.size();
          permute();
          if (result_.steps.size() == permuted) break;
        }
        if (result_.steps.size() == split) break;
      }
      concat_unused();
      if (result_.steps.size() == before && !all_done()) concat_first_left();
    }
  }

 private:
  bool all_done() const {
    return std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
  }
  // Which dimension that is not done a device dimension splits now.
  int splits(int device) const {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (!done_[i] && now_[i] == device) return static_cast<int>(i);
    }
    return kNone;
  }
  bool finish_if_equal(std::size_t i) {
    if (!done_[i] && now_[i] == unified_.to[i]) done_[i] = true;
    return done_[i];
  }

  void split_free() {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (finish_if_equal(i)) continue;
      if (now_[i] != kNone || splits(unified_.to[i]) != kNone) continue;
      add(Redistribution::Kind::kSplitByAxis, unified_.to[i], static_cast<int>(i), kNone);
      done_[i] = true;
    }
  }

  void permute() {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (finish_if_equal(i)) continue;
      const int other = now_[i] == kNone ? splits(unified_.to[i]) : kNone;
      if (other == kNone) continue;
      add(Redistribution::Kind::kPermuteByAxis, unified_.to[i], static_cast<int>(i), other);
      done_[i] = true;
      now_[static_cast<std::size_t>(other)] = kNone;
    }
  }

  void concat_unused() {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (done_[i] || now_[i] == kNone) continue;
      if (std::find(unified_.to.begin(), unified_.to.end(), now_[i]) != unified_.to.end()) continue;
      concat(i);
    }
  }

  void concat_first_left() {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (done_[i] || now_[i] == kNone) continue;
      concat(i);
      return;
    }
  }

  void concat(std::size_t i) {
    add(Redistribution::Kind::kConcatByAxis, now_[i], kNone, static_cast<int>(i));
    now_[i] = kNone;
    done_[i] = unified_.to[i] == kNone;
  }

  void add(Redistribution::Kind kind, int device, int split, int concat) {
    const auto d = static_cast<std::size_t>(device);
    const auto own_dim = [this](int dim) {
      return dim == kNone ? kNone : unified_.dim_of[static_cast<std::size_t>(dim)];
    };
    result_.steps.push_back({kind, unified_.device_axes[d], unified_.parts[d], own_dim(split),
                             own_dim(concat), concat == 0});
  }

  const Unified& unified_;
  Redistribution& result_;
  Map now_;
  std::vector<bool> done_;
};

// Everything together, then everything apart.
void gather_and_slice(const Spec& from, const Spec& to, const Mesh& mesh, Redistribution& result) {
  for (std::size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d].empty()) continue;
    result.steps.push_back({Redistribution::Kind::kConcatByAxis, from.dims[d],
                            axes_size(mesh, from.dims[d]), kNone, static_cast<int>(d), d == 0});
  }
  for (std::size_t d = 0; d < to.dims.size(); ++d) {
    if (to.dims[d].empty()) continue;
    result.steps.push_back({Redistribution::Kind::kSplitByAxis, to.dims[d],
                            axes_size(mesh, to.dims[d]), static_cast<int>(d), kNone, false});
  }
}

}  // namespace

Redistribution redistribution(const Shape& shape, const Spec& from, const Spec& to,
                              const Mesh& mesh) {
  Redistribution result;
  if (from.dims == to.dims) return result;
  const std::optional<Unified> unified = Unification(shape, from, to, mesh).run();
  if (!unified) {
    gather_and_slice(from, to, mesh, result);
    return result;
  }
  Inference(*unified, result).run();
  result.reshape = unified->reshape && !result.steps.empty();
  return result;
}

}  // namespace autopar::mindspore
