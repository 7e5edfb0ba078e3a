#include "json/parse.hpp"

#include <algorithm>
#include <numeric>

#include "autopar/frameworks.hpp"

namespace autopar {

namespace {

using Json = nlohmann::ordered_json;

// "[{a,b},{}] +{c}": per dimension its axes, and those of the partial sum.
bool read_spec(const std::string& text, SaidTensor& tensor) {
  const auto axes_at = [&](std::size_t open, std::size_t close) {
    std::vector<std::string> axes;
    std::size_t begin = open + 1;
    while (begin < close) {
      const std::size_t end = std::min(text.find(',', begin), close);
      axes.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return axes;
  };
  const std::size_t end = text.find(']');
  if (text.empty() || text.front() != '[' || end == std::string::npos) return false;
  for (std::size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open)) {
    const std::size_t close = text.find('}', open);
    if (close == std::string::npos) return false;
    if (open < end) tensor.dims.push_back(axes_at(open, close));
    if (open > end) tensor.partial = axes_at(open, close);
    open = close;
  }
  return true;
}

// The forward pass's ops have the user's names; what is made for the others says so (FORMATS).
bool is_forward_name(const std::string& name) {
  for (const char* made : {".grad", ".update", ".again", "acc."}) {
    const std::size_t at = name.rfind(made);
    if (at == std::string::npos) continue;
    const std::string rest = name.substr(at + std::string(made).size());
    const bool is_end = rest.empty() || rest.front() == '.' || made == std::string("acc.");
    if (is_end) return false;
  }
  return true;
}

class Reader {
 public:
  Reader(const Json& document, std::string path) : document_(document) { plan_.path = path; }

  // Throws nlohmann's exceptions where a field is of another type.
  Result<SaidPlan> run() {
    if (document_.value("format", "") != "autopar-strategy" || document_.value("version", 0) != 1) {
      return input_error(plan_.path +
                         ": expected a plan's strategy.json (format autopar-strategy, version 1)");
    }
    if (document_.contains("model")) {
      plan_.model_name = document_["model"].value("name", "");
      plan_.model_sha256 = document_["model"].value("sha256", "");
    }
    if (document_.contains("cluster")) {
      plan_.cluster_sha256 = document_["cluster"].value("sha256", "");
    }
    if (document_.contains("profile")) {
      plan_.profile_name = document_["profile"].value("name", "");
      plan_.profile_sha256 = document_["profile"].value("sha256", "");
    }
    AUTOPAR_RETURN_IF_ERROR(read_stages());
    read_training();
    if (document_.contains("cost")) {
      const Json& cost = document_["cost"];
      if (cost.contains("seconds")) plan_.seconds = cost["seconds"].get<double>();
      plan_.memory_bytes = cost.value("memory_bytes", std::int64_t{0});
    }
    read_ops();
    return read_tensors();
  }

 private:
  static const Json& object_at(const Json& owner, const char* key) {
    static const Json kNone = Json::object();
    return owner.contains(key) ? owner.at(key) : kNone;
  }

  static std::vector<SaidAxis> mesh_of(const Json& owner) {
    std::vector<SaidAxis> mesh;
    for (const Json& axis : owner.at("mesh")) {
      mesh.push_back(
          {axis.at("name"), axis.value("tier", ""), axis.at("size").get<std::int64_t>()});
    }
    return mesh;
  }

  static std::int64_t size_of(const std::vector<SaidAxis>& mesh) {
    return std::accumulate(mesh.begin(), mesh.end(), std::int64_t{1},
                           [](std::int64_t all, const SaidAxis& axis) { return all * axis.size; });
  }

  // "full, cheap from layers.3/norm" where parts repeat differently.
  static std::string recompute_of(const Json& json, const std::string& otherwise) {
    if (!json.contains("recompute_from")) return json.value("recompute", otherwise);
    std::string text;
    for (const Json& one : json["recompute_from"]) {
      const auto level = one.at("recompute").get<std::string>();
      text += text.empty() ? level : ", " + level + " from " + one.at("from").get<std::string>();
    }
    return text;
  }

  // Without a level ops may say for themselves that they are repeated.
  bool repeats_by_name() const {
    const Json& ops = object_at(document_, "ops");
    return std::any_of(ops.begin(), ops.end(), [](const Json& op) {
      return op.is_object() && op.contains("recompute") && op["recompute"] == true;
    });
  }

  Status read_stages() {
    const std::string recompute = recompute_of(document_, repeats_by_name() ? "by name" : "none");
    const Json& step = object_at(document_, "step");
    plan_.micro_batches = step.value("micro_batches", std::int64_t{1});
    plan_.copies = step.value("copies", std::int64_t{1});
    const Json& stages = object_at(step, "stages");
    if (stages.size() < 2) {
      if (!document_.contains("mesh")) {
        return input_error(plan_.path +
                           ": mesh: expected the plan's mesh; a file of pins has no "
                           "plan to say");
      }
      const std::vector<SaidAxis> mesh = mesh_of(document_);
      plan_.stages = {{size_of(mesh), mesh, {0}}};
      plan_.recompute = {recompute};
      return Ok{};
    }
    plan_.schedule = step.value("schedule", "");
    plan_.has_own_lines = step.contains("schedule_lines");
    for (const Json& json : stages) {
      SaidStage stage{json.at("ranks").get<std::int64_t>(), mesh_of(json), {}};
      for (const Json& chunk : json.at("chunks")) {
        const auto number = chunk.at("chunk").get<std::size_t>();
        if (number > 1'000'000) return input_error(plan_.path + ": step.stages: too many chunks");
        stage.chunks.push_back(number);
        last_ops_.resize(std::max(last_ops_.size(), number + 1));
        plan_.recompute.resize(last_ops_.size(), recompute);
        const Json& ops = chunk.at("ops");
        if (!ops.empty()) last_ops_[number] = ops.back();
        plan_.recompute[number] = recompute_of(chunk, recompute);
      }
      plan_.stages.push_back(std::move(stage));
    }
    return Ok{};
  }

  void read_training() {
    if (!document_.contains("training")) return;
    const Json& training = document_["training"];
    plan_.trains = true;
    plan_.training = training.dump();
    if (training.contains("optimizer")) plan_.optimizer = training["optimizer"].value("name", "");
    plan_.precision = training.value("precision", "fp32");
    const std::vector<std::string> none;
    plan_.data = training.value("data", none);
    plan_.parameters = training.value("parameters", none);
    plan_.states = training.value("states", none);
  }

  // Chunks stand one after the other; the last forward op of each is named.
  void read_ops() {
    std::size_t chunk = 0;
    for (const auto& [name, json] : object_at(document_, "ops").items()) {
      SaidOp op;
      op.name = name;
      op.type = json.value("type", "");
      for (const auto& [axis, factor] : object_at(json, "assignment").items()) {
        op.factor_of_axis[axis] = factor;
      }
      op.in = json.value("in_strategy", SplitCounts());
      op.out = json.value("out_strategy", SplitCounts());
      op.is_forward = is_forward_name(name);
      op.chunk = chunk;
      const bool is_last = chunk + 1 < last_ops_.size() && name == last_ops_[chunk];
      plan_.ops.push_back(std::move(op));
      if (is_last) ++chunk;
    }
  }

  Result<SaidPlan> read_tensors() {
    for (const auto& [name, json] : object_at(document_, "tensors").items()) {
      SaidTensor tensor;
      tensor.shape = json.value("shape", std::vector<std::int64_t>());
      const std::string spec = json.value("spec", "[]");
      if (!read_spec(spec, tensor)) {
        return input_error(plan_.path + ": tensors." + name + ".spec: expected a layout such as " +
                           "[{axis},{}], found " + spec);
      }
      tensor.device_matrix = json.value("device_matrix", std::vector<std::int64_t>());
      if (json.contains("tensor_map")) tensor.tensor_map = json["tensor_map"].dump();
      plan_.tensors.emplace(name, std::move(tensor));
    }
    // "training" does not list them; they are named after the parameters (FORMATS).
    for (const std::string& parameter : plan_.parameters) {
      const std::string name = "acc." + parameter;
      if (plan_.tensors.count(name) != 0) plan_.accumulators.push_back(name);
    }
    return std::move(plan_);
  }

  const Json& document_;
  SaidPlan plan_;
  std::vector<std::string> last_ops_;  // of chunks
};

}  // namespace

std::int64_t SaidPlan::devices() const {
  return std::accumulate(
      stages.begin(), stages.end(), std::int64_t{0},
      [](std::int64_t all, const SaidStage& stage) { return all + stage.ranks; });
}

Result<SaidPlan> parse_said_plan(std::string_view text, const std::string& path) {
  AUTOPAR_TRY(document, parse_ordered_json(text, path));
  if (!document.is_object()) return input_error(path + ": expected a JSON object");
  try {
    return Reader(document, path).run();
  } catch (const nlohmann::json::exception& error) {
    return input_error(path + ": " + message_of(error));
  }
}

}  // namespace autopar
