// Reshards: the paths between well-known specs, and their prices. What they do to data is in
// reshard_data_test.cpp.
#include "autopar/comm.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "reshards.hpp"

namespace autopar::comm_test {

using namespace testing::reshards;

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
