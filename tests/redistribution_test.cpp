// Reshards beside those of MindSpore 2.10.0: the operator lists that it infers for pairs of layouts
// (AUTOPAR_SHARED/data/redistribution/mindspore.json, recorded from a run of MindSpore). Both lists
// are executed on arrays that hold the global index of every element, so that what a rank ends up
// with is known exactly, and the bytes that a device sends are counted alike: an AllConcat of n
// ranks is an AllGather, n-1 times the input.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "autopar/comm.hpp"
#include "autopar/ops.hpp"
#include "autopar/problem.hpp"

namespace autopar::redistribution_test {

namespace {

using Json = nlohmann::json;

constexpr double kElementBytes = 4;

// The part of a tensor that one rank holds: global indices of its elements, row-major.
struct Part {
  Shape shape;
  std::vector<std::int64_t> index;
  bool operator==(const Part&) const = default;
};
using Parts = std::vector<Part>;  // by rank

Part sliced(const Part& whole, const Shape& begin, const Shape& end) {
  Part part;
  for (std::size_t d = 0; d < begin.size(); ++d) part.shape.push_back(end[d] - begin[d]);
  Shape at = begin;
  for (std::int64_t i = 0; i < element_count(part.shape); ++i) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < at.size(); ++d) flat = flat * whole.shape[d] + at[d];
    part.index.push_back(whole.index[static_cast<std::size_t>(flat)]);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < end[d]) break;
      at[d] = begin[d];
    }
  }
  return part;
}

// Part number `position` of `count` along a dimension.
Part chunk(const Part& whole, int axis, std::int64_t position, std::int64_t count) {
  const auto d = static_cast<std::size_t>(axis);
  Shape begin(whole.shape.size(), 0), end = whole.shape;
  const std::int64_t extent = whole.shape[d] / count;
  begin[d] = position * extent;
  end[d] = begin[d] + extent;
  return sliced(whole, begin, end);
}

Part joined(const std::vector<Part>& parts, int axis) {
  const auto d = static_cast<std::size_t>(axis);
  Part whole;
  whole.shape = parts.front().shape;
  whole.shape[d] = 0;
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < d; ++i) outer *= whole.shape[i];
  for (const Part& part : parts) whole.shape[d] += part.shape[d];
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const Part& part : parts) {
      const auto rows = static_cast<std::int64_t>(part.index.size()) / outer;
      whole.index.insert(whole.index.end(), part.index.begin() + o * rows,
                         part.index.begin() + (o + 1) * rows);
    }
  }
  return whole;
}

Part whole_tensor(const Shape& shape) {
  Part part{shape, {}};
  for (std::int64_t i = 0; i < element_count(shape); ++i) part.index.push_back(i);
  return part;
}

// One end of a case in MindSpore's notation. Axes of a dimension: from the left of the device
// matrix, the major one first.
struct Layout {
  std::vector<std::int64_t> matrix;
  std::vector<std::vector<int>> dims;
  Shape shape;
};

Layout layout_of(const Json& json) {
  Layout layout;
  layout.matrix = json["dev_matrix"].get<std::vector<std::int64_t>>();
  layout.shape = json["shape"].get<Shape>();
  for (const Json& entry : json["tensor_map"]) {
    std::vector<int> axes;
    for (const Json& axis : entry.is_array() ? entry : Json::array({entry})) {
      const int from_right = axis.get<int>();
      if (from_right >= 0) {
        axes.push_back(static_cast<int>(layout.matrix.size()) - 1 - from_right);
      }
    }
    layout.dims.push_back(axes);
  }
  return layout;
}

// What every rank holds, straight from the notation.
Parts parts_of(const Layout& layout, std::int64_t devices) {
  const Part whole = whole_tensor(layout.shape);
  Parts parts;
  for (std::int64_t rank = 0; rank < devices; ++rank) {
    std::vector<std::int64_t> at(layout.matrix.size());
    std::int64_t rest = rank;
    for (std::size_t i = at.size(); i-- > 0; rest /= layout.matrix[i]) {
      at[i] = rest % layout.matrix[i];
    }
    Part part = whole;
    for (std::size_t d = 0; d < layout.dims.size(); ++d) {
      for (int axis : layout.dims[d]) {
        const auto a = static_cast<std::size_t>(axis);
        part = chunk(part, static_cast<int>(d), at[a], layout.matrix[a]);
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

struct Moved {
  Parts parts;
  double bytes = 0;     // sent by the device that sends most
  Seconds seconds = 0;  // by the model of comm.hpp
};

// One collective over n neighbours out of all devices of a cluster of one tier.
Seconds seconds_of(CollectiveKind kind, std::size_t n, std::size_t elements,
                   const Cluster& cluster) {
  const auto size = static_cast<std::int64_t>(n);
  const Mesh mesh = make_mesh(cluster, {cluster.tiers[0].size / size, size}).value();
  const Collective collective{kind, {mesh.rank() - 1}, 0, -1, Reduction::kSum};
  return collective_seconds(collective, static_cast<double>(elements) * kElementBytes, mesh,
                            cluster);
}

// MindSpore's lists, operator by operator on all ranks. One slice along several dimensions counts
// as one step.
Moved run_lists(const Json& lists, Parts parts, const Cluster& cluster) {
  Seconds seconds = 0;
  std::vector<double> sent(parts.size(), 0);
  for (std::size_t step = 0; step < lists[0].size(); ++step) {
    Parts next;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const std::string name = lists[rank][step][0];
      Shape args = lists[rank][step][1].get<Shape>();
      const Part& own = parts[rank];
      if (name == "Reshape") {
        next.push_back({args, own.index});
      } else if (name == "AllConcat") {
        const int axis = static_cast<int>(args.back());
        args.pop_back();
        std::vector<Part> group;
        for (std::int64_t member : args) group.push_back(parts[static_cast<std::size_t>(member)]);
        if (rank == 0) {
          seconds +=
              seconds_of(CollectiveKind::kAllGather, group.size(), own.index.size(), cluster);
        }
        sent[rank] += static_cast<double>(own.index.size() * (args.size() - 1)) * kElementBytes;
        next.push_back(joined(group, axis));
      } else {
        REQUIRE(name == "StridedSlice");
        const auto rank_of = static_cast<std::ptrdiff_t>(args.size() / 3);
        REQUIRE(std::all_of(args.begin() + 2 * rank_of, args.end(), [](auto s) { return s == 1; }));
        next.push_back(sliced(own, {args.begin(), args.begin() + rank_of},
                              {args.begin() + rank_of, args.begin() + 2 * rank_of}));
        if (rank == 0) {
          seconds +=
              seconds_of(CollectiveKind::kShardSlice, own.index.size() / next.back().index.size(),
                         own.index.size(), cluster);
        }
      }
    }
    parts = std::move(next);
  }
  return {parts, *std::max_element(sent.begin(), sent.end()), seconds};
}

// Where a device matrix cuts the row of ranks: products from the right.
std::set<std::int64_t> cuts_of(const Layout& layout) {
  std::set<std::int64_t> cuts;
  std::int64_t product = 1;
  for (std::size_t i = layout.matrix.size(); i-- > 0;) cuts.insert(product *= layout.matrix[i]);
  return cuts;
}

// The mesh of axes of prime size that has all these cuts; nothing where they do not nest.
std::optional<Mesh> mesh_with(const std::set<std::int64_t>& cuts, const Cluster& cluster) {
  std::vector<std::int64_t> sizes;  // innermost first
  std::int64_t last = 1;
  for (std::int64_t cut : cuts) {
    if (cut % last != 0) return std::nullopt;
    std::int64_t rest = cut / last;
    for (std::int64_t p = 2; rest > 1; ++p) {
      for (; rest % p == 0; rest /= p) sizes.push_back(p);
    }
    last = cut;
  }
  std::reverse(sizes.begin(), sizes.end());
  auto mesh = make_mesh(cluster, sizes);
  REQUIRE(mesh.ok());
  return std::move(*mesh);
}

// The same layout on a mesh that refines its device matrix.
Spec spec_on(const Layout& layout, const Mesh& mesh) {
  std::vector<std::vector<int>> axes_of(layout.matrix.size());
  std::int64_t end = mesh.size();
  std::size_t axis = 0;
  for (std::size_t i = 0; i < layout.matrix.size(); ++i) {
    end /= layout.matrix[i];
    for (; axis < mesh.axes.size() && mesh.axes[axis].stride >= end; ++axis) {
      axes_of[i].push_back(static_cast<int>(axis));
    }
  }
  Spec spec = replicated(layout.shape.size());
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    for (int matrix_axis : layout.dims[d]) {
      const auto& axes = axes_of[static_cast<std::size_t>(matrix_axis)];
      spec.dims[d].append(axes.begin(), axes.end());
    }
  }
  REQUIRE(verify(spec, layout.shape, mesh).ok());
  return spec;
}

// Collectives on index arrays. Layouts hold whole values only, so nothing is ever reduced.
void run_steps(const Reshard& reshard, const Shape& target, const Mesh& mesh, Moved& moved) {
  const auto view = [&](const Shape& shape) {
    for (Part& part : moved.parts) {
      REQUIRE(element_count(shape) == static_cast<std::int64_t>(part.index.size()));
      part.shape = shape;
    }
  };
  for (std::size_t s = 0; s < reshard.steps.size(); ++s) {
    const Collective& step = reshard.steps[s];
    const Shape output = local_shape(reshard.specs[s], reshard.shapes[s], mesh);
    view(input_shape(step, output, mesh));
    const std::int64_t count = axes_size(mesh, step.axes);
    const auto n = static_cast<std::size_t>(count);
    const auto groups = device_groups(mesh, step.axes);
    moved.bytes +=
        sent_bytes(step, static_cast<double>(moved.parts[0].index.size()) * kElementBytes, mesh);
    Parts next(moved.parts.size());
    for (std::size_t g = 0; g < groups.size(); g += n) {
      for (std::size_t i = 0; i < n; ++i) {
        const auto rank = static_cast<std::size_t>(groups[g + i]);
        const auto position = static_cast<std::int64_t>(i);
        if (step.kind == CollectiveKind::kShardSlice) {
          next[rank] = chunk(moved.parts[rank], step.axis, position, count);
          continue;
        }
        const bool exchange = step.kind == CollectiveKind::kAllToAll;
        REQUIRE((exchange || step.kind == CollectiveKind::kAllGather));
        std::vector<Part> received;
        for (std::size_t j = 0; j < n; ++j) {
          const Part& from = moved.parts[static_cast<std::size_t>(groups[g + j])];
          received.push_back(exchange ? chunk(from, step.axis, position, count) : from);
        }
        next[rank] = joined(received, exchange ? step.concat_axis : step.axis);
      }
    }
    moved.parts = std::move(next);
    for (const Part& part : moved.parts) REQUIRE(part.shape == output);
  }
  view(target);
  moved.seconds += reshard.seconds;
}

// One machine on which time is bytes sent: the cheapest sequence is the one that moves least.
Cluster byte_cluster(std::int64_t devices) {
  return {"bytes",
          {"device", Bytes{1} << 40, 1e18, {{"float32", 1e18}}},
          {{"link", devices, 1, 0, {}}},
          0};
}

// Fast links with latencies, as in models/clusters: small messages cost their latency.
Cluster a100_cluster(std::int64_t devices) {
  return {"a100",
          {"A100", Bytes{80} << 30, 2.039e12, {{"float32", 1.95e13}}},
          {{"nvlink", devices, 3e11, 2e-6, {}}},
          0};
}

struct Case {
  int id = 0;
  std::int64_t devices = 1;
  Layout from, to;
  Parts source, target;
  double theirs = 0;          // bytes per device
  Seconds their_seconds = 0;  // of the same list on a100_cluster
};

// Reshard on one mesh; a Reshape in between where the shapes differ, in the op's best assignment.
Moved ours(const Case& c, const Mesh& mesh, const Cluster& cluster) {
  const Spec from = spec_on(c.from, mesh);
  const Spec to = spec_on(c.to, mesh);
  Resharder before(c.from.shape, DType::kFloat32, mesh, cluster);
  Moved moved{c.source};
  if (c.from.shape == c.to.shape) {
    run_steps(before.path(from, to), c.target[0].shape, mesh, moved);
    return moved;
  }
  Graph graph;
  const ValueId x =
      graph.add_value({.name = "x", .shape = c.from.shape, .kind = ValueKind::kInput});
  Value target{.name = "shape", .dtype = DType::kInt64, .kind = ValueKind::kConstant};
  target.shape = {static_cast<std::int64_t>(c.to.shape.size())};
  target.data = int64_tensor(target.shape, c.to.shape);
  const ValueId s = graph.add_value(target);
  const ValueId y = graph.add_value({.name = "y", .shape = c.to.shape});
  graph.add_op({.name = "reshape", .type = "Reshape", .inputs = {x, s}, .outputs = {y}});
  const auto rule = rule_of(graph, graph.ops[0]);
  REQUIRE(rule.ok());
  Resharder after(c.to.shape, DType::kFloat32, mesh, cluster);
  Seconds best = kInfinity;
  OpSpecs chosen;
  for (const Assignment& a : candidates(rule->rule, mesh)) {
    const auto specs = specs_of(rule->rule, a, mesh);
    REQUIRE(specs.has_value());
    if (!specs->inputs[0].partial.empty()) continue;
    const Seconds seconds =
        before.seconds(from, specs->inputs[0]) + after.seconds(specs->outputs[0], to);
    if (seconds < best) chosen = *specs;
    best = std::min(best, seconds);
  }
  run_steps(before.path(from, chosen.inputs[0]), local_shape(chosen.inputs[0], c.from.shape, mesh),
            mesh, moved);
  const Shape local = local_shape(chosen.outputs[0], c.to.shape, mesh);
  for (Part& part : moved.parts) part.shape = local;
  run_steps(after.path(chosen.outputs[0], to), c.target[0].shape, mesh, moved);
  return moved;
}

// All specs of a shape in which the axes of a dimension go in mesh order, by what the ranks hold.
std::map<std::vector<std::vector<std::int64_t>>, Spec> specs_by_parts(const Shape& shape,
                                                                      const Mesh& mesh) {
  std::vector<Spec> specs = {replicated(shape.size())};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const std::size_t before = specs.size();
    for (std::size_t s = 0; s < before; ++s) {
      for (std::size_t d = 0; d < shape.size(); ++d) {
        Spec spec = specs[s];
        spec.dims[d].push_back(axis);
        if (verify(spec, shape, mesh).ok()) specs.push_back(spec);
      }
    }
  }
  std::map<std::vector<std::vector<std::int64_t>>, Spec> by_parts;
  for (const Spec& spec : specs) {
    std::vector<std::vector<std::int64_t>> key = {local_shape(spec, shape, mesh)};
    for (std::int64_t rank = 0; rank < mesh.size(); ++rank) {
      key.push_back(slice_offsets(spec, shape, mesh, rank));
    }
    by_parts.try_emplace(key, spec);
  }
  return by_parts;
}

// Where no mesh has the axes of both ends ([2,6] and [3,4] devices): through a layout that both
// meshes can express. A strategy has one mesh, so the program never needs this.
Moved across_meshes(const Case& c, const Mesh& first, const Mesh& second, const Cluster& cluster) {
  const Spec from = spec_on(c.from, first);
  const Spec to = spec_on(c.to, second);
  Resharder before(c.from.shape, DType::kFloat32, first, cluster);
  Resharder after(c.to.shape, DType::kFloat32, second, cluster);
  const auto other = specs_by_parts(c.to.shape, second);
  Seconds best = kInfinity;
  std::pair<Spec, Spec> chosen;
  for (const auto& [parts, spec] : specs_by_parts(c.from.shape, first)) {
    const auto same = other.find(parts);
    if (same == other.end()) continue;
    const Seconds seconds = before.seconds(from, spec) + after.seconds(same->second, to);
    if (seconds < best) chosen = {spec, same->second};
    best = std::min(best, seconds);
  }
  Moved moved{c.source};
  run_steps(before.path(from, chosen.first), local_shape(chosen.first, c.from.shape, first), first,
            moved);
  run_steps(after.path(chosen.second, to), c.target[0].shape, second, moved);
  return moved;
}

Moved ours(const Case& c, const Cluster& cluster) {
  std::set<std::int64_t> cuts = cuts_of(c.from), more = cuts_of(c.to);
  const auto first = mesh_with(cuts, cluster), second = mesh_with(more, cluster);
  cuts.merge(more);
  const auto both = mesh_with(cuts, cluster);
  if (both) return ours(c, *both, cluster);
  REQUIRE(c.from.shape == c.to.shape);
  return across_meshes(c, *first, *second, cluster);
}

std::optional<Json> recorded_cases() {
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::filesystem::path folder = shared ? shared : AUTOPAR_SOURCE "/../shared";
  std::ifstream file(folder / "data" / "redistribution" / "mindspore.json");
  if (!file) return std::nullopt;
  return Json::parse(file)["cases"];
}

// Executes MindSpore's lists; of two recorded ones the one that moves less counts.
Case read_case(const Json& json) {
  Case c{json["id"], json["devices"], layout_of(json["from"]), layout_of(json["to"]), {}, {}, 0, 0};
  c.source = parts_of(c.from, c.devices);
  c.target = parts_of(c.to, c.devices);
  CAPTURE(c.id);
  const Cluster cluster = a100_cluster(c.devices);
  const auto run = [&](const char* lists) {
    const Moved moved = run_lists(json[lists], c.source, cluster);
    REQUIRE(moved.parts == c.target);
    return std::pair(moved.bytes, moved.seconds);
  };
  std::pair<double, Seconds> best = run("ops");
  if (json.contains("ops_redist_opt")) best = std::min(best, run("ops_redist_opt"));
  std::tie(c.theirs, c.their_seconds) = best;
  return c;
}

struct Count {
  int fewer = 0, same = 0, more = 0;
  double ours = 0, theirs = 0;

  void add(double our_bytes, double their_bytes) {
    ++(our_bytes < their_bytes ? fewer : our_bytes == their_bytes ? same : more);
    ours += our_bytes;
    theirs += their_bytes;
  }
  void print(const char* what) const {
    std::cout << "  " << what << ": " << fewer + same + more << " cases; bytes per device fewer "
              << fewer << ", same " << same << ", more " << more << "; sum ours " << ours
              << ", MindSpore " << theirs << "\n";
  }
};

}  // namespace

TEST_CASE("reshards give MindSpore's slices and move no more bytes", "[redistribution]") {
  const auto cases = recorded_cases();
  if (!cases) {
    std::cout << "skipped: no data/redistribution/mindspore.json below AUTOPAR_SHARED\n";
    return;
  }
  std::cout << "redistribution:\n";
  Count same_shape, reshaped, fastest;
  for (const Json& json : *cases) {
    const Case c = read_case(json);
    CAPTURE(c.id);
    const Moved least = ours(c, byte_cluster(c.devices));
    CHECK(least.parts == c.target);
    CHECK(least.bytes <= c.theirs);
    (c.from.shape != c.to.shape ? reshaped : same_shape).add(least.bytes, c.theirs);
    const Moved quick = ours(c, a100_cluster(c.devices));
    CHECK(quick.parts == c.target);
    fastest.add(quick.bytes, c.theirs);
    if (quick.bytes <= c.theirs) continue;
    // More bytes only where that is faster.
    CHECK(quick.seconds < c.their_seconds);
    std::cout << "  case " << c.id << ": " << quick.bytes << " B in " << quick.seconds * 1e6
              << " us, MindSpore " << c.theirs << " B in " << c.their_seconds * 1e6
              << " us; our sequence that sends least: " << least.bytes << " B\n";
  }
  same_shape.print("same shape, least bytes");
  reshaped.print("Reshape between, least bytes");
  fastest.print("all, least time on A100, as plans have it");
}

}  // namespace autopar::redistribution_test
