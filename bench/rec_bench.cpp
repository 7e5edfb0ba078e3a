// rec_bench [--layers N] [--hidden N] [--devices N] [--dp]: double recursion on the GPT for which
// MindSpore's own search was timed (forward only, batch 64, sequence 1024, 1,205 of its ops at 48
// layers): one JSON line per size of the cluster with seconds by phase. Nodes of 8 devices. --dp
// also runs the exact search, on the mesh of the plan found. Every search runs --repeat times, the
// fastest (by CPU seconds) is printed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "autopar/search.hpp"

using namespace autopar;

namespace {

class Gpt {
 public:
  Gpt(std::int64_t layers, std::int64_t hidden) : hidden_(hidden), heads_(hidden / 64) {
    graph.name = "gpt";
    graph.opset = 20;
    const ValueId ids = add("ids", {kBatch, kSequence}, ValueKind::kInput, DType::kInt64);
    const ValueId mask = add("mask", {1, 1, kSequence, kSequence}, ValueKind::kInput);
    const ValueId table = weight("wte", {kWords, hidden_});
    ValueId x = op("embed", "Gather", {table, ids}, {kBatch, kSequence, hidden_});
    for (std::int64_t l = 0; l < layers; ++l) {
      prefix_ = "h" + std::to_string(l) + ".";
      x = op("add1", "Add", {x, attention(normal("ln1", x), mask)}, shape(x));
      x = op("add2", "Add", {x, feed_forward(normal("ln2", x))}, shape(x));
    }
    prefix_.clear();
    x = normal("ln_f", x);
    const ValueId head = weight("head", {hidden_, kWords});
    graph.outputs = {op("logits", "MatMul", {x, head}, {kBatch, kSequence, kWords})};
  }
  Graph graph;

 private:
  static constexpr std::int64_t kBatch = 64, kSequence = 1024, kWords = 50304;

  Shape shape(ValueId v) const { return graph.value(v).shape; }

  ValueId add(const std::string& name, const Shape& shape, ValueKind kind,
              DType dtype = DType::kFloat16) {
    Value value;
    value.name = name;
    value.dtype = dtype;
    value.shape = shape;
    value.kind = kind;
    const ValueId id = graph.add_value(std::move(value));
    if (kind == ValueKind::kInput || kind == ValueKind::kParameter) graph.inputs.push_back(id);
    return id;
  }
  ValueId weight(const std::string& name, const Shape& shape) {
    return add(prefix_ + name, shape, ValueKind::kParameter);
  }
  ValueId ints(const std::string& name, const std::vector<std::int64_t>& values) {
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    const ValueId id = add(prefix_ + name, shape, ValueKind::kConstant, DType::kInt64);
    graph.value(id).data = int64_tensor(shape, values);
    return id;
  }
  ValueId op(const std::string& name, const std::string& type, const std::vector<ValueId>& inputs,
             const Shape& shape, std::map<std::string, Attribute> attributes = {}) {
    const ValueId out = add(prefix_ + name + ".out", shape, ValueKind::kActivation);
    Op made;
    made.name = made.origin_name = prefix_ + name;
    made.type = made.origin_type = type;
    made.inputs = inputs;
    made.outputs = {out};
    made.attributes = std::move(attributes);
    graph.add_op(std::move(made));
    return out;
  }

  ValueId normal(const std::string& name, ValueId x) {
    return op(name, "LayerNormalization",
              {x, weight(name + ".g", {hidden_}), weight(name + ".b", {hidden_})}, shape(x),
              {{"axis", std::int64_t{-1}}});
  }
  ValueId linear(const std::string& name, ValueId x, std::int64_t to) {
    Shape out = shape(x);
    const ValueId w = weight(name + ".w", {out.back(), to});
    out.back() = to;
    return op(name + ".bias", "Add", {op(name, "MatMul", {x, w}, out), weight(name + ".b", {to})},
              out);
  }
  ValueId heads(const std::string& name, ValueId x) {
    const std::int64_t size = hidden_ / heads_;
    const ValueId to = ints(name + ".shape", {kBatch, kSequence, heads_, size});
    const ValueId y = op(name + ".split", "Reshape", {linear(name, x, hidden_), to},
                         {kBatch, kSequence, heads_, size});
    const bool transposed = name == "k";
    const std::vector<std::int64_t> order =
        transposed ? std::vector<std::int64_t>{0, 2, 3, 1} : std::vector<std::int64_t>{0, 2, 1, 3};
    Shape out;
    for (std::int64_t d : order) out.push_back(shape(y)[static_cast<std::size_t>(d)]);
    return op(name + ".turn", "Transpose", {y}, out, {{"perm", order}});
  }
  ValueId attention(ValueId x, ValueId mask) {
    const Shape square = {kBatch, heads_, kSequence, kSequence};
    const Shape by_head = {kBatch, heads_, kSequence, hidden_ / heads_};
    const ValueId q = heads("q", x), k = heads("k", x), v = heads("v", x);
    ValueId s = op("scores", "MatMul", {q, k}, square);
    s = op("scale", "Mul", {s, weight("scale", {1})}, square);
    s = op("mask", "Add", {s, mask}, square);
    s = op("softmax", "Softmax", {s}, square, {{"axis", std::int64_t{-1}}});
    const ValueId y = op("context", "MatMul", {s, v}, by_head);
    const ValueId turned =
        op("turn", "Transpose", {y}, {kBatch, kSequence, heads_, hidden_ / heads_},
           {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
    const ValueId joined =
        op("join", "Reshape", {turned, ints("join.shape", {kBatch, kSequence, hidden_})},
           {kBatch, kSequence, hidden_});
    return linear("proj", joined, hidden_);
  }
  ValueId feed_forward(ValueId x) {
    const ValueId up = linear("up", x, 4 * hidden_);
    return linear("down", op("gelu", "Gelu", {up}, shape(up)), hidden_);
  }

  std::int64_t hidden_, heads_;
  std::string prefix_;
};

Cluster cluster_of(std::int64_t devices) {
  Cluster cluster;
  cluster.name = std::to_string(devices) + " devices";
  cluster.device = {
      "A100", Bytes{80} << 30, 2.039e12, {{"float16", 3.12e14}, {"float32", 1.95e13}}};
  const std::int64_t inside = devices % 8 == 0 ? 8 : 1;
  cluster.tiers = {{"nvlink", inside, 3e11, 2e-6, {}}, {"ib", devices / inside, 2.5e10, 5e-6, {}}};
  return cluster;
}

double seconds_of(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status measure(const Graph& graph, std::int64_t devices, int repeat, bool exact) {
  const Cluster cluster = cluster_of(devices);
  AUTOPAR_TRY(rules, rules_of(graph));
  SearchRequest request{graph, rules, cluster};
  request.searcher = "rec";
  request.limit_memory = true;
  nlohmann::ordered_json line = {{"ops", graph.ops.size()}, {"devices", devices}};
  double fastest = kInfinity;
  Mesh best_mesh;
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    AUTOPAR_TRY(found, search(request));
    const double seconds = seconds_of(start);
    const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    if (cpu_seconds >= fastest) continue;
    fastest = cpu_seconds;
    line["search_seconds"] = seconds;
    line["search_cpu_seconds"] = cpu_seconds;
    for (const auto& [phase, spent] : found.phases) line["phases"][phase] = spent;
    best_mesh = found.strategy.mesh;
    line["mesh"] = to_text(best_mesh);
    line["meshes_tried"] = found.trials.size();
    line["cost_seconds"] = found.cost.total();
    line["compute_seconds"] = found.cost.compute();
  }
  if (exact) {
    request.searcher = "dp";
    request.mesh = best_mesh;
    const auto start = std::chrono::steady_clock::now();
    AUTOPAR_TRY(found, search(request));
    line["dp"] = {{"search_seconds", seconds_of(start)},
                  {"mesh", to_text(found.strategy.mesh)},
                  {"cost_seconds", found.cost.total()},
                  {"lower_bound_seconds", found.lower_bound}};
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t layers = 48, hidden = 1024, devices = 0;
  int repeat = 3;
  bool exact = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (name == "--layers") layers = number();
    if (name == "--hidden") hidden = number();
    if (name == "--devices") devices = number();
    if (name == "--repeat") repeat = static_cast<int>(number());
    if (name == "--dp") exact = true;
  }
  const Gpt gpt(layers, hidden);
  for (std::int64_t n : {8, 64, 256, 1024}) {
    if (devices != 0 && n != 8) break;
    const Status done = measure(gpt.graph, devices != 0 ? devices : n, repeat, exact);
    if (!done) std::printf("{\"error\": \"%s\"}\n", done.error().message.c_str());
  }
  return 0;
}
