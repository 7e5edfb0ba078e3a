// Reshards: executed on data for all pairs of specs of small tensors, and their prices. In one file
// because both go through the same enumeration of specs and meshes.
#include "autopar/comm.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace autopar::comm_test {

namespace {

// Tier sizes, innermost first; fast inside, slow outside.
Cluster cluster_of(const std::vector<std::int64_t>& sizes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device = {"device", Bytes{1} << 30, 2e12, {{"float32", 1e12}}};
  const std::vector<std::string> names = {"nvlink", "ib", "pod"};
  const std::vector<double> bandwidths = {3e11, 2.5e10, 1.25e10};
  const std::vector<Seconds> latencies = {2e-6, 5e-6, 8e-6};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    cluster.tiers.push_back({names[i], sizes[i], bandwidths[i], latencies[i], {}});
  }
  return cluster;
}

// Calls `use` for every layout of the axes from `axis` on, added to `spec`.
void place_axes(Spec& spec, int axis, const Mesh& mesh, bool partial,
                const std::function<void(const Spec&)>& use) {
  if (axis == mesh.rank()) return use(spec);
  place_axes(spec, axis + 1, mesh, partial, use);
  if (partial) {
    spec.partial.push_back(axis);
    place_axes(spec, axis + 1, mesh, partial, use);
    spec.partial.pop_back();
  }
  for (auto& axes : spec.dims) {
    const std::vector<int> before = axes;
    for (std::size_t at = 0; at <= before.size(); ++at) {
      std::vector<int> longer = before;
      longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(at), axis);
      axes = longer;
      place_axes(spec, axis + 1, mesh, partial, use);
    }
    axes = before;
  }
}

std::vector<Spec> all_specs(const Shape& shape, const Mesh& mesh,
                            Reduction reduction = Reduction::kSum, bool partial = true) {
  std::vector<Spec> specs;
  Spec spec = replicated(shape.size());
  place_axes(spec, 0, mesh, partial, [&](const Spec& found) {
    specs.push_back(found);
    if (!found.partial.empty()) specs.back().reduction = reduction;
    if (!verify(specs.back(), shape, mesh)) specs.pop_back();
  });
  return specs;
}

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

struct Case {
  std::vector<std::int64_t> tiers;  // innermost first
  std::string mesh;
  Shape shape;
};

// Small, but with indivisible dimensions, groups that are not contiguous, and several axes per
// tier.
const std::vector<Case>& cases() {
  static const std::vector<Case> rows = {
      {{4}, "4", {4, 8}},
      {{2, 2}, "2x2", {4, 4}},
      {{4}, "2x2", {4, 2, 2}},
      {{3, 2}, "2x3", {6, 6}},
      {{6}, "3x2", {6, 4, 3}},
      {{4, 2}, "2x2x2", {8, 4}},
      {{2, 2, 2}, "2x2x2", {4, 2, 2}},
      {{2, 2, 2}, "2x2x2", {8}},
      {{1}, "1", {2, 3}},
      {{2, 2}, "2x2", {3}},
      {{2, 2}, "2x2", {}},
  };
  return rows;
}

std::string where(const Case& c, const Spec& from, const Spec& to, const Mesh& mesh) {
  return to_text(c.shape) + " on " + to_text(mesh) + ": " + to_text(from, mesh) + " -> " +
         to_text(to, mesh);
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

Mesh mesh_of(const Case& c) {
  return make_mesh(cluster_of(c.tiers), parse_mesh(c.mesh).value()).value();
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

TEST_CASE("a partial maximum can become whole and then a partial sum", "[comm]") {
  const Mesh mesh = make_mesh(cluster_of({2, 2}), {2, 2}).value();
  Resharder resharder({4, 4}, DType::kFloat32, mesh, cluster_of({2, 2}));
  const Reshard path = resharder.path(parse_spec("[{},{}] max{ib}", mesh).value(),
                                      parse_spec("[{},{}] +{ib}", mesh).value());
  REQUIRE(path.steps.size() == 2);
  CHECK(to_text(path.steps[0], mesh) == "AllReduce {ib} max");
  CHECK(to_text(path.steps[1], mesh) == "MakePartial {ib}");
}

TEST_CASE("well-known reshards", "[comm]") {
  struct Row {
    std::vector<std::int64_t> tiers;
    std::string mesh;
    Shape shape;
    std::string from, to, steps;
  };
  for (const Row& row : std::vector<Row>{
           // The three examples of the project: one AllGather, one AllToAll, one AllReduce.
           {{4}, "4", {64, 64}, "[{nvlink},{}]", "[{},{}]", "AllGather {nvlink} 0; "},
           {{4}, "4", {64, 64}, "[{},{nvlink}]", "[{nvlink},{}]", "AllToAll {nvlink} 0 1; "},
           {{4},
            "2x2",
            {64, 64},
            "[{nvlink_0},{}] +{nvlink_1}",
            "[{nvlink_0},{}]",
            "AllReduce {nvlink_1}; "},
           // Gradients: to all, to the owner, over both levels at once.
           {{4},
            "2x2",
            {64, 64},
            "[{},{}] +{nvlink_0}",
            "[{nvlink_0},{}]",
            "ReduceScatter {nvlink_0} 0; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}] +{ib,nvlink}",
            "[{},{}]",
            "AllReduce {ib,nvlink}; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}] +{ib,nvlink}",
            "[{nvlink,ib},{}]",
            "ReduceScatter {nvlink,ib} 0; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{ib,nvlink},{}]",
            "[{},{}]",
            "AllGather {ib,nvlink} 0; "},
           {{8, 2}, "2x8", {4096, 4096}, "[{ib,nvlink},{}]", "[{ib},{}]", "AllGather {nvlink} 0; "},
           // No communication.
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}]",
            "[{ib},{nvlink}]",
            "ShardSlice {nvlink} 1; ShardSlice {ib} 0; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}]",
            "[{nvlink,ib},{}]",
            "ShardSlice {nvlink,ib} 0; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}]",
            "[{},{}] +{ib,nvlink}",
            "MakePartial {ib,nvlink}; "},
           // The replicas inside the node share the work across nodes.
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}] +{ib}",
            "[{},{}]",
            "ShardSlice {nvlink} 0; ReduceScatter {ib} 0; AllGather {nvlink,ib} 0; "},
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{},{}] +{ib}",
            "[{ib},{}]",
            "ShardSlice {nvlink} 1; ReduceScatter {ib} 0; AllGather {nvlink} 1; "},
           // Several axes at once from one dimension to another.
           {{8, 2},
            "2x8",
            {4096, 4096},
            "[{ib,nvlink},{}]",
            "[{},{ib,nvlink}]",
            "AllToAll {ib,nvlink} 1 0; "},
           // Axis order inside a dimension.
           {{4},
            "2x2",
            {4096, 4096},
            "[{nvlink_0,nvlink_1},{}]",
            "[{nvlink_1,nvlink_0},{}]",
            "[2,2048,4096] AllToAll {nvlink_0} 2 0; [2,2,1024,4096] AllToAll {nvlink_1} 0 1; "
            "AllToAll {nvlink_0} 0 1; "},
           {{4},
            "2x2",
            {64},
            "[{nvlink_0,nvlink_1}]",
            "[{nvlink_1,nvlink_0}]",
            "[2,32] AllGather {nvlink_0} 0; [2,2,16] AllToAll {nvlink_1} 0 1; "
            "ShardSlice {nvlink_0} 0; "},
           // An axis leaves from under another, or comes to where the target has it.
           {{4},
            "2x2",
            {1 << 20},
            "[{nvlink_0}]",
            "[{nvlink_1,nvlink_0}]",
            "[2,2,262144] AllToAll {nvlink_0} 1 0; [2,524288] ShardSlice {nvlink_1} 0; "},
           {{4},
            "2x2",
            {4096, 4096},
            "[{nvlink_0,nvlink_1},{}]",
            "[{nvlink_1},{nvlink_0}]",
            "[2,2048,4096] AllToAll {nvlink_0} 2 0; [2,2,1024,4096] AllToAll {nvlink_1} 0 1; "},
       }) {
    const Cluster cluster = cluster_of(row.tiers);
    const Mesh mesh = make_mesh(cluster, parse_mesh(row.mesh).value()).value();
    Resharder resharder(row.shape, DType::kFloat32, mesh, cluster);
    const Reshard path =
        resharder.path(parse_spec(row.from, mesh).value(), parse_spec(row.to, mesh).value());
    std::string steps;
    for (std::size_t i = 0; i < path.steps.size(); ++i) {
      if (path.shapes[i] != row.shape) steps += to_text(path.shapes[i]) + " ";
      steps += to_text(path.steps[i], mesh) + "; ";
    }
    INFO(row.from << " -> " << row.to);
    CHECK(steps == row.steps);
  }
}

TEST_CASE("prices of reshards are a metric", "[comm]") {
  for (const Case& c : cases()) {
    const Cluster cluster = cluster_of(c.tiers);
    const Mesh mesh = mesh_of(c);
    const std::vector<Spec> specs = all_specs(c.shape, mesh);
    const std::size_t n = specs.size();
    Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
    const ReshardTable table = resharder.table(specs, specs);
    int violations = 0;
    for (std::size_t a = 0; a < n; ++a) {
      CHECK(table[a][a].seconds == 0);
      for (std::size_t b = 0; b < n; ++b) {
        // What was made partial stays so; detours that undo it are not looked for.
        const bool made = !std::includes(specs[a].partial.begin(), specs[a].partial.end(),
                                         specs[b].partial.begin(), specs[b].partial.end());
        if (made) continue;
        for (std::size_t d = 0; d < n; ++d) {
          const Seconds through = table[a][b].seconds + table[b][d].seconds;
          violations += table[a][d].seconds > through * (1 + 1e-12);
        }
      }
    }
    INFO(to_text(c.shape) << " on " << to_text(mesh));
    CHECK(violations == 0);
  }
}

TEST_CASE("the table, the seconds and the path say the same", "[comm]") {
  const Case c{{4, 2}, "2x2x2", {8, 4}};
  const Cluster cluster = cluster_of(c.tiers);
  const Mesh mesh = mesh_of(c);
  const std::vector<Spec> specs = all_specs(c.shape, mesh);
  Resharder once(c.shape, DType::kFloat32, mesh, cluster);
  const ReshardTable table = once.table(specs, specs);
  // In another order, and each on its own: nothing may depend on what was asked before.
  Resharder again(c.shape, DType::kFloat32, mesh, cluster);
  for (std::size_t a = specs.size(); a-- > 0;) {
    for (std::size_t b = 0; b < specs.size(); ++b) {
      INFO(where(c, specs[a], specs[b], mesh));
      const Reshard path = again.path(specs[a], specs[b]);
      CHECK(table[a][b].seconds == path.seconds);
      CHECK(table[a][b].peak_bytes == path.peak_bytes);
      CHECK(again.seconds(specs[a], specs[b]) == path.seconds);
      if ((a + b) % 7 != 0) continue;
      Resharder fresh(c.shape, DType::kFloat32, mesh, cluster);
      CHECK(fresh.path(specs[a], specs[b]).steps == path.steps);
    }
  }
  CHECK(once.table({}, specs).seconds.empty());
  CHECK(once.table(specs, {}).seconds.empty());
}

TEST_CASE("no single collective is cheaper than the path between its ends", "[comm]") {
  // Stated apart from the searched graph: what each collective does to a spec.
  for (const Case& c : cases()) {
    const Cluster cluster = cluster_of(c.tiers);
    const Mesh mesh = mesh_of(c);
    Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
    const std::vector<Spec> specs = all_specs(c.shape, mesh);
    int checked = 0;
    const auto check = [&](const Spec& from, const Spec& to, const Collective& step) {
      if (!verify(to, c.shape, mesh)) return;
      const auto input = static_cast<double>(local_bytes(from, c.shape, DType::kFloat32, mesh));
      INFO(where(c, from, to, mesh) << " by " << to_text(step, mesh));
      CHECK(resharder.seconds(from, to) <= collective_seconds(step, input, mesh, cluster));
      ++checked;
    };
    const auto without = [](std::vector<int> axes, int axis) {
      axes.erase(std::remove(axes.begin(), axes.end(), axis), axes.end());
      return axes;
    };
    for (const Spec& spec : specs) {
      for (std::size_t d = 0; d < spec.dims.size(); ++d) {
        const int dim = static_cast<int>(d);
        for (std::size_t k = 0; k < spec.dims[d].size(); ++k) {
          const auto from = spec.dims[d].begin() + static_cast<std::ptrdiff_t>(k);
          const std::vector<int> suffix(from, spec.dims[d].end());
          Spec gathered = spec;
          gathered.dims[d].resize(k);
          check(spec, gathered, {CollectiveKind::kAllGather, suffix, dim, -1, Reduction::kSum});
          Spec sliced = gathered;
          sliced.dims[d] = spec.dims[d];
          check(gathered, spec, {CollectiveKind::kShardSlice, suffix, dim, -1, Reduction::kSum});
          for (std::size_t e = 0; e < spec.dims.size(); ++e) {
            if (e == d) continue;
            Spec moved = gathered;
            moved.dims[e].append(suffix.begin(), suffix.end());
            check(spec, moved,
                  {CollectiveKind::kAllToAll, suffix, static_cast<int>(e), dim, Reduction::kSum});
          }
        }
        for (int axis : spec.partial) {
          Spec scattered = spec;
          scattered.partial = without(spec.partial, axis);
          scattered.dims[d].push_back(axis);
          check(spec, scattered,
                {CollectiveKind::kReduceScatter, {axis}, dim, -1, Reduction::kSum});
        }
      }
      if (spec.partial.empty()) continue;
      Spec whole = spec;
      whole.partial.clear();
      check(spec, whole, {CollectiveKind::kAllReduce, spec.partial, -1, -1, Reduction::kSum});
      check(whole, spec, {CollectiveKind::kMakePartial, spec.partial, -1, -1, Reduction::kSum});
    }
    CHECK((checked > 0 || c.shape.size() < 2));
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

TEST_CASE("meshes with more axes are searched as far as needed", "[comm]") {
  const Cluster cluster = cluster_of({64});
  const Mesh mesh = make_mesh(cluster, {2, 2, 2, 2, 2, 2}).value();
  const Case c{{64}, "2x2x2x2x2x2", {64, 64, 64}};
  Resharder resharder(c.shape, DType::kFloat32, mesh, cluster);
  const Spec from{{{0, 1, 2}, {3, 4}, {}}, {5}, Reduction::kSum};
  const Spec to{{{0, 1}, {3, 4, 2}, {5}}, {}, Reduction::kSum};
  const Reshard path = resharder.path(from, to);
  CHECK(path.shapes.back() == c.shape);
  CHECK(path.specs.back() == to);
  CHECK(path.steps.size() == 2);
}

TEST_CASE("tensors whose dimensions divide alike share their paths and their prices", "[comm]") {
  const Cluster cluster = cluster_of({4, 2});
  const Mesh mesh = make_mesh(cluster, {2, 2, 2}).value();
  Resharder first({64, 5, 32}, DType::kFloat32, mesh, cluster);
  // The same dimensions in another order, with one that nothing splits elsewhere, and as many
  // bytes.
  Resharder second({32, 64, 5}, DType::kFloat32, first);
  const std::vector<int> place = {1, 2, 0};  // dimension of the second by that of the first
  const auto moved = [&](const Spec& spec) {
    Spec other = spec;
    for (std::size_t d = 0; d < 3; ++d)
      other.dims[static_cast<std::size_t>(place[d])] = spec.dims[d];
    return other;
  };
  const std::vector<Spec> specs = all_specs({64, 5, 32}, mesh);
  std::vector<Spec> others;
  for (const Spec& spec : specs) others.push_back(moved(spec));
  const ReshardTable a = first.table(specs, specs);
  const ReshardTable b = second.table(others, others);
  CHECK(a.seconds == b.seconds);
  CHECK(a.peak_bytes == b.peak_bytes);
  // A resharder of its own gives the same paths as one that shares.
  Resharder alone({32, 64, 5}, DType::kFloat32, mesh, cluster);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < others.size(); i += 7) {
    for (std::size_t j = 0; j < others.size(); j += 5) {
      const Reshard shared = second.path(others[i], others[j]);
      const Reshard own = alone.path(others[i], others[j]);
      CHECK(shared.steps == own.steps);
      CHECK(shared.specs == own.specs);
      CHECK(shared.seconds == own.seconds);
      CHECK(shared.seconds == b[i][j].seconds);
      CHECK(shared.peak_bytes == b[i][j].peak_bytes);
      compared += !shared.steps.empty();
    }
  }
  CHECK(compared > 100);
}

}  // namespace autopar::comm_test
