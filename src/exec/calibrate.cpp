#include "autopar/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "support/linear.hpp"

namespace autopar {

namespace {

constexpr int kFitRounds = 40;
constexpr double kLeastInverse = 1e-15;  // seconds per byte: a bandwidth must be a number
constexpr double kSteepest = 0.99;       // of the bandwidth at that, which no link has
constexpr double kStep = 1e-3;           // relative, to find how the cost depends on a parameter
constexpr double kMostAway = 2;          // that a logarithm is taken as linear for

// Latency and time per byte of each tier, one after the other.
using Parameters = std::vector<double>;

Cluster cluster_of(const std::vector<Tier>& tiers, const Parameters& parameters) {
  Cluster cluster;
  cluster.tiers = tiers;
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    cluster.tiers[t].latency_s = parameters[2 * t];
    cluster.tiers[t].bandwidth_bytes_per_s = 1 / std::max(parameters[2 * t + 1], kLeastInverse);
  }
  cluster.device.memory_bandwidth_bytes_per_s = 1;
  return cluster;
}

Seconds cost_of(const CollectiveSample& sample, const Cluster& cluster) {
  return collective_seconds(sample.kind, sample.input_bytes, sample.groups, sample.group_size,
                            cluster);
}

// Linear equations that are to hold as nearly as possible.
struct Equations {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
};

double squared_error(const Equations& equations, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t r = 0; r < equations.rows.size(); ++r) {
    double error = -equations.targets[r];
    for (std::size_t p = 0; p < x.size(); ++p) error += equations.rows[r][p] * x[p];
    sum += error * error;
  }
  return sum;
}

// The x >= 0 of the least squared error. Columns are scaled to length 1 first.
std::vector<double> least_squares(const Equations& equations) {
  const auto& rows = equations.rows;
  const std::size_t n = rows.empty() ? 0 : rows[0].size();
  std::vector<double> scale(n, 0);
  for (std::size_t p = 0; p < n; ++p) {
    for (const auto& row : rows) scale[p] += row[p] * row[p];
    scale[p] = scale[p] > 0 ? 1 / std::sqrt(scale[p]) : 0;
  }
  std::vector<double> best(n, 0);
  double least = squared_error(equations, best);
  for (std::size_t set = 1; set < (std::size_t{1} << n); ++set) {
    std::vector<std::size_t> used;
    for (std::size_t p = 0; p < n; ++p) {
      if ((set >> p & 1) != 0 && scale[p] > 0) used.push_back(p);
    }
    std::vector<std::vector<double>> a(used.size(), std::vector<double>(used.size(), 0));
    std::vector<double> b(used.size(), 0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto& row = rows[r];
      for (std::size_t i = 0; i < used.size(); ++i) {
        b[i] += row[used[i]] * scale[used[i]] * equations.targets[r];
        for (std::size_t j = 0; j < used.size(); ++j) {
          a[i][j] += row[used[i]] * scale[used[i]] * row[used[j]] * scale[used[j]];
        }
      }
    }
    const auto solved = solve_linear(a, b);
    if (!solved) continue;
    std::vector<double> x(n, 0);
    for (std::size_t i = 0; i < used.size(); ++i) x[used[i]] = (*solved)[i] * scale[used[i]];
    if (std::any_of(x.begin(), x.end(), [](double v) { return v < 0; })) continue;
    const double error = squared_error(equations, x);
    if (error < least) {
      least = error;
      best = x;
    }
  }
  return best;
}

// Root of the mean squared logarithm of cost over measured time.
double log_error(const std::vector<CollectiveSample>& samples, const Cluster& cluster) {
  double sum = 0;
  for (const CollectiveSample& sample : samples) {
    const double error = std::log(cost_of(sample, cluster) / sample.seconds.median);
    sum += error * error;
  }
  return samples.empty() ? 0 : std::sqrt(sum / static_cast<double>(samples.size()));
}

// That each sample costs what was measured, near the parameters `at`: the cost is linear there, and
// so is its logarithm about its own value.
Equations equations_at(const std::vector<CollectiveSample>& samples, const std::vector<Tier>& tiers,
                       const Parameters& at) {
  Equations equations;
  const Cluster here = cluster_of(tiers, at);
  std::vector<Cluster> there;
  for (std::size_t p = 0; p < at.size(); ++p) {
    Parameters moved = at;
    moved[p] *= 1 + kStep;
    there.push_back(cluster_of(tiers, moved));
  }
  for (const CollectiveSample& sample : samples) {
    const Seconds cost = cost_of(sample, here);
    std::vector<double> row;
    for (std::size_t p = 0; p < at.size(); ++p) {
      const double slope = (cost_of(sample, there[p]) - cost) / (kStep * at[p]);
      row.push_back(std::max(0.0, slope / cost));
    }
    equations.rows.push_back(std::move(row));
    const double away = std::log(sample.seconds.median / cost);
    equations.targets.push_back(1 + std::clamp(away, -kMostAway, kMostAway));
  }
  return equations;
}

// Which way the cost model takes depends on the parameters, and they on the way: in rounds, the
// best of which counts.
Parameters fit_tiers(const std::vector<CollectiveSample>& samples, const std::vector<Tier>& tiers) {
  if (samples.empty()) return Parameters(2 * tiers.size(), 0);  // one rank: no link is used
  Parameters at;
  for (std::size_t t = 0; t < tiers.size(); ++t) at.insert(at.end(), {1e-5, 1e-9});
  Parameters best = at;
  double least = log_error(samples, cluster_of(tiers, at));
  for (int round = 0; round < kFitRounds; ++round) {
    const Parameters found = least_squares(equations_at(samples, tiers, at));
    const double error = log_error(samples, cluster_of(tiers, found));
    if (error < least) {
      least = error;
      best = found;
    }
    // Zeros would hide how the cost depends on them.
    for (std::size_t p = 0; p < at.size(); ++p) {
      at[p] = std::max({(at[p] + found[p]) / 2, 1e-3 * at[p], kLeastInverse});
    }
  }
  return best;
}

double four_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", value);
  return std::strtod(text, nullptr);
}

// As the cost model's roofline.
Seconds op_seconds(const TimedOp& op, const Device& device) {
  Seconds seconds = op.bytes / device.memory_bandwidth_bytes_per_s;
  const auto peak = device.peak_flops_per_s.find(name_of(op.dtype));
  if (peak != device.peak_flops_per_s.end()) seconds = std::max(seconds, op.flops / peak->second);
  return seconds;
}

Cluster measured_cluster(const Measurements& measurements, const std::vector<TimedOp>& ops,
                         const std::vector<Tier>& tiers) {
  Cluster cluster = cluster_of(tiers, fit_tiers(measurements.collectives, tiers));
  for (Tier& tier : cluster.tiers) {
    tier.latency_s = four_digits(tier.latency_s);
    tier.bandwidth_bytes_per_s = four_digits(tier.bandwidth_bytes_per_s);
  }
  cluster.device = measured_device(measurements, ops);
  // Between a GPU and its host: not measured.
  if (!measurements.on_gpus) {
    cluster.host_link_bandwidth_bytes_per_s = cluster.device.memory_bandwidth_bytes_per_s;
  }
  return cluster;
}

// Noise may hide that larger collectives take longer. A link is not faster then than what was seen
// of it; says of which that is so.
std::string bound_bandwidths(const std::vector<CollectiveSample>& samples, Cluster& cluster) {
  double fastest = 0;
  for (const CollectiveSample& sample : samples) {
    fastest = std::max(fastest, sample.input_bytes / sample.seconds.median);
  }
  std::string names;
  for (Tier& tier : cluster.tiers) {
    if (samples.empty() || tier.bandwidth_bytes_per_s < kSteepest / kLeastInverse) continue;
    tier.bandwidth_bytes_per_s = four_digits(fastest);
    names += (names.empty() ? "'" : ", '") + tier.name + "'";
  }
  if (names.empty()) return "";
  return "larger collectives over " + names +
         " took no longer than smaller ones, so that its bandwidth is that of the fastest of them: "
         "calibrate again where nothing else runs";
}

}  // namespace

Device measured_device(const Measurements& measurements, const std::vector<TimedOp>& ops) {
  Device device;
  device.memory_bytes = measurements.memory_bytes;
  double largest = 0;
  for (const OpSample& sample : measurements.ops) {
    const TimedOp& op = ops[sample.op];
    if (!sample.problem.empty() || !(sample.seconds.median > 0)) continue;
    // Those of a model may be larger, and faster, than the others.
    const bool is_product = op.type == "MatMul" || op.type == "Gemm" || op.type == "Conv";
    if (op.of_model && !is_product) continue;
    if (op.flops > 0) {
      double& peak = device.peak_flops_per_s[name_of(op.dtype)];
      peak = std::max(peak, four_digits(op.flops / sample.seconds.median));
    } else if (op.bytes > largest) {
      largest = op.bytes;
      device.memory_bandwidth_bytes_per_s = four_digits(op.bytes / sample.seconds.median);
    }
  }
  return device;
}

Machines machines_of(const std::vector<std::string>& hosts) {
  const auto ranks = static_cast<std::int64_t>(hosts.size());
  std::int64_t inner = 0;
  while (inner < ranks && hosts[static_cast<std::size_t>(inner)] == hosts[0]) ++inner;
  if (inner == ranks) return {{Tier{"node", ranks, 0, 0, {}}}, ""};
  std::vector<std::string> machines;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::string& host = hosts[static_cast<std::size_t>(r)];
    if (r % inner == 0) {
      const bool known = std::find(machines.begin(), machines.end(), host) != machines.end();
      if (known) inner = 0;
      machines.push_back(host);
    } else if (host != machines.back()) {
      inner = 0;
    }
    if (inner == 0 || ranks % inner != 0) {
      return {{Tier{"network", ranks, 0, 0, {}}},
              "the ranks do not lie in equal runs on the machines (rank " + std::to_string(r) +
                  " is on " + host + "): all links are taken as one tier"};
    }
  }
  if (inner == 1) return {{Tier{"network", ranks, 0, 0, {}}}, ""};
  return {{Tier{"node", inner, 0, 0, {}}, Tier{"network", ranks / inner, 0, 0, {}}}, ""};
}

Calibration fit_cluster(const Measurements& measurements, const std::vector<TimedOp>& ops,
                        const std::optional<Cluster>& given) {
  Calibration calibration;
  const Machines machines = machines_of(measurements.hosts);
  if (given) {
    calibration.cluster = *given;
  } else {
    calibration.problem = machines.problem;
    calibration.cluster = measured_cluster(measurements, ops, machines.tiers);
    const std::string hidden = bound_bandwidths(measurements.collectives, calibration.cluster);
    if (calibration.problem.empty()) calibration.problem = hidden;
  }
  for (const CollectiveSample& sample : measurements.collectives) {
    calibration.collectives.push_back(cost_of(sample, calibration.cluster));
  }
  calibration.residual = log_error(measurements.collectives, calibration.cluster);
  for (const OpSample& sample : measurements.ops) {
    calibration.ops.push_back(op_seconds(ops[sample.op], calibration.cluster.device));
  }
  return calibration;
}

}  // namespace autopar
