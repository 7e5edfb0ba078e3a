// Reshards executed on data, for all pairs of specs of small tensors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "reshards.hpp"

namespace autopar::reshard_data_test {

using namespace testing::reshards;

namespace {

// A tensor of small whole numbers, row-major, so that sums are exact.
struct Array {
  Shape shape;
  std::vector<double> data;
  bool operator==(const Array&) const = default;
};

// Calls use(index, position in memory) for every index of a shape.
template <class Use>
void for_indices(const Shape& shape, Use use) {
  std::vector<std::int64_t> index(shape.size(), 0);
  const auto count = static_cast<std::size_t>(element_count(shape));
  for (std::size_t flat = 0; flat < count; ++flat) {
    use(index, flat);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

Array slice(const Array& whole, const std::vector<std::int64_t>& offsets, const Shape& shape) {
  Array part{shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
  for_indices(shape, [&](const std::vector<std::int64_t>& index, std::size_t flat) {
    std::int64_t from = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      from = from * whole.shape[d] + offsets[d] + index[d];
    }
    part.data[flat] = whole.data[static_cast<std::size_t>(from)];
  });
  return part;
}

// Part number `position` of `parts` equal ones along a dimension.
Array part_of(const Array& whole, int axis, std::int64_t position, std::int64_t parts) {
  Shape shape = whole.shape;
  if (shape[static_cast<std::size_t>(axis)] % parts != 0) FAIL("unequal parts");
  shape[static_cast<std::size_t>(axis)] /= parts;
  std::vector<std::int64_t> offsets(shape.size(), 0);
  offsets[static_cast<std::size_t>(axis)] = position * shape[static_cast<std::size_t>(axis)];
  return slice(whole, offsets, shape);
}

Array concat(const std::vector<Array>& parts, int axis) {
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t extent = parts[0].shape[at];
  Array whole{parts[0].shape, {}};
  whole.shape[at] *= static_cast<std::int64_t>(parts.size());
  whole.data.resize(static_cast<std::size_t>(element_count(whole.shape)));
  for_indices(whole.shape, [&](const std::vector<std::int64_t>& index, std::size_t flat) {
    const Array& part = parts[static_cast<std::size_t>(index[at] / extent)];
    std::int64_t from = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      from = from * part.shape[d] + (d == at ? index[d] % extent : index[d]);
    }
    whole.data[flat] = part.data[static_cast<std::size_t>(from)];
  });
  return whole;
}

double reduce(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kProd:
      return a * b;
  }
  return 0;
}

Array reduced(const std::vector<Array>& parts, Reduction reduction) {
  Array result = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < result.data.size(); ++k) {
      result.data[k] = reduce(reduction, result.data[k], parts[i].data[k]);
    }
  }
  return result;
}

// What the devices hold.
using Devices = std::vector<Array>;

// The output of the device at `position` of a group, given the group's inputs in order.
Array output_of(const Collective& step, const std::vector<Array>& group, std::size_t position) {
  const auto n = static_cast<std::int64_t>(group.size());
  const auto at = static_cast<std::int64_t>(position);
  switch (step.kind) {
    case CollectiveKind::kAllReduce:
      return reduced(group, step.reduction);
    case CollectiveKind::kAllGather:
      return concat(group, step.axis);
    case CollectiveKind::kReduceScatter:
      return part_of(reduced(group, step.reduction), step.axis, at, n);
    case CollectiveKind::kAllToAll: {
      std::vector<Array> parts;
      for (const Array& input : group) parts.push_back(part_of(input, step.axis, at, n));
      return concat(parts, step.concat_axis);
    }
    case CollectiveKind::kBroadcast:
      return group[0];
    case CollectiveKind::kShardSlice:
      return part_of(group[position], step.axis, at, n);
    case CollectiveKind::kMakePartial: {
      Array output = group[position];
      if (position > 0) std::fill(output.data.begin(), output.data.end(), 0.0);
      return output;
    }
    case CollectiveKind::kPermute:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;  // no reshard has them
  }
  return {};
}

Devices execute(const Collective& step, const Devices& inputs, const Mesh& mesh) {
  const std::vector<std::int64_t> groups = device_groups(mesh, step.axes);
  const auto size = static_cast<std::size_t>(axes_size(mesh, step.axes));
  Devices outputs(inputs.size());
  for (std::size_t g = 0; g < groups.size(); g += size) {
    std::vector<Array> group;
    for (std::size_t i = 0; i < size; ++i) {
      group.push_back(inputs[static_cast<std::size_t>(groups[g + i])]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      outputs[static_cast<std::size_t>(groups[g + i])] = output_of(step, group, i);
    }
  }
  return outputs;
}

Array numbered(const Shape& shape) {
  Array array{shape, {}};
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    array.data.push_back(static_cast<double>(i + 1));
  }
  return array;
}

// Unequal parts, one per group member, whose reduction is the whole.
std::vector<Array> summands(const Array& whole, std::size_t count, Reduction reduction,
                            std::mt19937& random) {
  std::uniform_int_distribution<int> number(1, 1000);
  std::vector<Array> parts(count, whole);
  for (std::size_t k = 0; k < whole.data.size(); ++k) {
    const std::size_t keeper = static_cast<std::size_t>(number(random)) % count;
    double rest = whole.data[k];
    for (std::size_t i = 0; i < count; ++i) {
      if (i == keeper) continue;
      const double any = number(random);
      const double value = reduction == Reduction::kSum   ? any
                           : reduction == Reduction::kMax ? whole.data[k] - any
                                                          : whole.data[k] + any;
      parts[i].data[k] = value;
      if (reduction == Reduction::kSum) rest -= value;
    }
    parts[keeper].data[k] = rest;
  }
  return parts;
}

Devices devices_holding(const Spec& spec, const Array& whole, const Mesh& mesh,
                        std::mt19937& random) {
  const auto count = static_cast<std::size_t>(axes_size(mesh, spec.partial));
  const std::vector<Array> parts = summands(whole, count, spec.reduction, random);
  const Shape local = local_shape(spec, whole.shape, mesh);
  Devices devices;
  for (std::int64_t device = 0; device < mesh.size(); ++device) {
    std::size_t part = 0;
    for (int index : spec.partial) {
      const Axis& axis = mesh.axes[static_cast<std::size_t>(index)];
      part = part * static_cast<std::size_t>(axis.size) +
             static_cast<std::size_t>(device / axis.stride % axis.size);
    }
    devices.push_back(slice(parts[part], slice_offsets(spec, whole.shape, mesh, device), local));
  }
  return devices;
}

// Whether the devices hold the tensor as the spec says.
bool hold(const Devices& devices, const Spec& spec, const Array& whole, const Mesh& mesh) {
  const Collective sum{CollectiveKind::kAllReduce, spec.partial, -1, -1, spec.reduction};
  const Devices total = spec.partial.empty() ? devices : execute(sum, devices, mesh);
  for (std::int64_t device = 0; device < mesh.size(); ++device) {
    const Array expected = slice(whole, slice_offsets(spec, whole.shape, mesh, device),
                                 local_shape(spec, whole.shape, mesh));
    if (!(total[static_cast<std::size_t>(device)] == expected)) return false;
  }
  return true;
}

// What the devices hold in another shape; false where it has other elements.
bool view(Devices& devices, const Shape& shape) {
  for (Array& array : devices) {
    if (element_count(shape) != element_count(array.shape)) return false;
    array.shape = shape;
  }
  return true;
}

// Executes the path; what it says of itself that does not hold, or "".
std::string wrong_with(const Reshard& path, const Case& c, const Spec& from, const Spec& to,
                       const Mesh& mesh, const Cluster& cluster, std::mt19937& random) {
  const Array whole = numbered(c.shape);
  Devices devices = devices_holding(from, whole, mesh, random);
  Bytes input = local_bytes(from, c.shape, DType::kFloat32, mesh);
  Seconds seconds = 0;
  Bytes peak = 0;
  const std::size_t n = path.steps.size();
  if (n != path.specs.size() || n != path.shapes.size()) return "as many specs as steps";
  for (std::size_t i = 0; i < n; ++i) {
    const std::string step = "step " + std::to_string(i) + ", " + to_text(path.steps[i], mesh);
    const Seconds price =
        collective_seconds(path.steps[i], static_cast<double>(input), mesh, cluster);
    if (price <= 0) return step + " takes no time";
    seconds += price;
    if (element_count(path.shapes[i]) != element_count(c.shape)) return step + " sees less";
    if (!verify(path.specs[i], path.shapes[i], mesh)) return step + " gives an invalid spec";
    const Shape local = local_shape(path.specs[i], path.shapes[i], mesh);
    if (!view(devices, input_shape(path.steps[i], local, mesh))) return step + " reads no view";
    devices = execute(path.steps[i], devices, mesh);
    if (!hold(devices, path.specs[i], {path.shapes[i], whole.data}, mesh)) {
      return step + " gives wrong data";
    }
    const Bytes output = local_bytes(path.specs[i], path.shapes[i], DType::kFloat32, mesh);
    peak = std::max(peak, output + (i == 0 ? 0 : input));
    input = output;
  }
  if (n > 0 && path.shapes.back() == c.shape && path.specs.back() != to) return "another target";
  if (!view(devices, local_shape(to, c.shape, mesh))) return "no view of the target";
  if (!hold(devices, to, whole, mesh)) return "wrong data in the end";
  if (seconds != path.seconds) return "the seconds are not the sum of the steps'";
  if (peak != path.peak_bytes) return "another peak of memory";
  return "";
}

}  // namespace

TEST_CASE("every pair of specs, executed on data", "[comm]") {
  std::mt19937 random(7);
  for (const Case& c : cases()) {
    const Cluster cluster = cluster_of(c.tiers);
    const Mesh mesh = mesh_of(c);
    const std::vector<Spec> specs = all_specs(c.shape, mesh);
    Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
    for (const Spec& from : specs) {
      for (const Spec& to : specs) {
        const Reshard path = resharder.path(from, to);
        const std::string wrong = wrong_with(path, c, from, to, mesh, cluster, random);
        if (path.steps.empty() == (from == to) && wrong.empty()) continue;
        FAIL_CHECK(where(c, from, to, mesh) << ": " << wrong);
      }
    }
  }
}

TEST_CASE("partial maxima and minima find their way out, and only out", "[comm]") {
  std::mt19937 random(8);
  const Case c{{4, 2}, "2x2x2", {4, 4}};
  const Cluster cluster = cluster_of(c.tiers);
  const Mesh mesh = mesh_of(c);
  for (Reduction reduction : {Reduction::kMax, Reduction::kMin}) {
    const std::vector<Spec> specs = all_specs(c.shape, mesh, reduction);
    Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
    for (const Spec& from : specs) {
      for (const Spec& to : specs) {
        INFO(where(c, from, to, mesh));
        const bool possible = std::includes(from.partial.begin(), from.partial.end(),
                                            to.partial.begin(), to.partial.end());
        const Reshard path = resharder.path(from, to);
        if (possible) {
          CHECK(wrong_with(path, c, from, to, mesh, cluster, random) == "");
          continue;
        }
        CHECK(std::isinf(path.seconds));
        CHECK(std::isinf(resharder.seconds(from, to)));
        CHECK(path.steps.empty());
      }
    }
  }
}

TEST_CASE("MindSpore's exhaustive case: device matrix [2,2,2], shape [2,2,2]", "[comm]") {
  // Its 34 maps are the specs with at most one axis per dimension.
  const Case c{{2, 2, 2}, "2x2x2", {2, 2, 2}};
  const Cluster cluster = cluster_of(c.tiers);
  const Mesh mesh = mesh_of(c);
  const std::vector<Spec> specs = all_specs(c.shape, mesh, Reduction::kSum, false);
  REQUIRE(specs.size() == 34);
  std::mt19937 random(9);
  Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
  std::size_t most = 0;
  for (const Spec& from : specs) {
    for (const Spec& to : specs) {
      INFO(where(c, from, to, mesh));
      const Reshard path = resharder.path(from, to);
      CHECK(wrong_with(path, c, from, to, mesh, cluster, random) == "");
      most = std::max(most, path.steps.size());
    }
  }
  CHECK(most <= 4);  // MindSpore's longest list
}

}  // namespace autopar::reshard_data_test
