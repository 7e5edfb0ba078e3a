#include <algorithm>
#include <map>

#include "autopar/report.hpp"
#include "report/unit.hpp"

namespace autopar {

namespace {

// As vendors state it: 300.00 GB/s, not its 279.40 GiB/s.
std::string format_rate(double bytes_per_s) {
  const std::string count = format_count(bytes_per_s);
  return count + (count.find(' ') == std::string::npos ? " B/s" : "B/s");
}

}  // namespace

std::string terms_table(const Graph& graph, const Mesh& mesh, const StrategyCost& cost,
                        const std::string& cost_model) {
  TextTable table;
  table.right_aligned = {false, false, false, true, true};
  table.rows = {{"term", "op", "tensor", price_word(cost_model), "sent/device"}};
  for (const CostTerm& term : cost.terms) {
    if (term.seconds == 0) continue;
    const bool compute = term.kind == CostTerm::Kind::kCompute;
    table.rows.push_back({compute ? "compute" : to_text(term.collective, mesh),
                          term.op.valid() ? graph.op(term.op).name : "(output)",
                          term.value.valid() ? graph.value(term.value).name : "",
                          format_price(term.seconds, cost_model),
                          compute ? "" : format_bytes(term.sent_bytes)});
  }
  table.rows.push_back({"compute in all", "", "", format_price(cost.compute(), cost_model), ""});
  table.rows.push_back(
      {"communication in all", "", "", format_price(cost.communication(), cost_model), ""});
  if (cost.step) {
    const auto [what, by] = beside_streams(cost.compute() + cost.communication(), cost.time());
    table.rows.push_back({what, "", "", by, ""});
  }
  table.rows.push_back({"total", "", "", format_price(cost.time(), cost_model), ""});
  std::string text = to_text(table) + "\n  memory peak " +
                     format_bytes(static_cast<double>(cost.memory.total)) + " per device";
  if (!graph.ops.empty()) {
    text += " during " + graph.ops[static_cast<std::size_t>(cost.memory.time)].name;
  }
  return text + "\n";
}

std::string show_graph(const Graph& graph, bool all_ops) {
  std::map<ValueKind, std::pair<int, Bytes>> kinds;
  for (const Value& value : graph.values) {
    auto& [count, bytes] = kinds[value.kind];
    ++count;
    bytes += value.bytes();
  }
  std::string text = "graph " + graph.name + ", opset " + std::to_string(graph.opset) + ", " +
                     std::to_string(graph.ops.size()) + " ops\n\n";
  TextTable values{{{"values", "count", "size"}}, {false, true, true}};
  const std::pair<ValueKind, const char*> names[] = {{ValueKind::kInput, "inputs"},
                                                     {ValueKind::kParameter, "parameters"},
                                                     {ValueKind::kConstant, "constants"},
                                                     {ValueKind::kActivation, "activations"}};
  for (const auto& [kind, name] : names) {
    values.rows.push_back({name, std::to_string(kinds[kind].first),
                           format_bytes(static_cast<double>(kinds[kind].second))});
  }
  text += to_text(values) + "\n";
  std::map<std::string, int> types;
  Flops flops = 0;
  std::map<std::string, Flops> flops_of;
  for (const Op& op : graph.ops) {
    ++types[op.type];
    const Work work = work_of(op, shapes_of(graph, op));
    flops += work.flops;
    flops_of[op.type] += work.flops;
  }
  TextTable ops{{{"op type", "count", "FLOPs"}}, {false, true, true}};
  std::vector<std::pair<std::string, int>> sorted(types.begin(), types.end());
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
    return flops_of[a.first] > flops_of[b.first];
  });
  for (const auto& [type, count] : sorted) {
    ops.rows.push_back({type, std::to_string(count), format_count(flops_of[type])});
  }
  ops.rows.push_back({"total", std::to_string(graph.ops.size()), format_count(flops)});
  text += to_text(ops) + "\n";
  TextTable boundary{{{"boundary", "kind", "type", "shape"}}, {}};
  for (ValueId id : graph.inputs) {
    const Value& v = graph.value(id);
    if (v.kind != ValueKind::kInput) continue;
    boundary.rows.push_back({v.name, "input", name_of(v.dtype), to_text(v.shape)});
  }
  for (ValueId id : graph.outputs) {
    const Value& v = graph.value(id);
    boundary.rows.push_back({v.name, "output", name_of(v.dtype), to_text(v.shape)});
  }
  text += to_text(boundary);
  return all_ops ? text + "\n" + to_text(graph) : text;
}

std::string show_cluster(const Cluster& cluster) {
  const Device& d = cluster.device;
  std::string text = cluster.name + ": " + std::to_string(cluster.device_count()) + " x " + d.name +
                     ", " + format_bytes(static_cast<double>(d.memory_bytes)) + " at " +
                     format_rate(d.memory_bandwidth_bytes_per_s) + "\n\n";
  TextTable peaks{{{"dtype", "peak FLOP/s"}}, {false, true}};
  for (const auto& [dtype, peak] : d.peak_flops_per_s) {
    peaks.rows.push_back({dtype, format_count(peak)});
  }
  text += to_text(peaks) + "\n";
  TextTable tiers{{{"tier (innermost first)", "size", "bandwidth/device", "latency"}},
                  {false, true, true, true}};
  for (const Tier& tier : cluster.tiers) {
    tiers.rows.push_back({tier.name, std::to_string(tier.size),
                          format_rate(tier.bandwidth_bytes_per_s), format_seconds(tier.latency_s)});
  }
  return text + to_text(tiers);
}

}  // namespace autopar
