// Searchers against each other on models that are too large for the exhaustive search: no bound is
// above any plan that any searcher finds, and every plan costs what is claimed.
#include <cstdlib>
#include <filesystem>

#include "autopar/import.hpp"
#include "cases.hpp"
#include "instances.hpp"

namespace autopar::property_models_test {

using namespace testing;

namespace {

struct Answers {
  Seconds least_cost = kInfinity;
  Seconds largest_bound = 0;
  Bytes peak = 0;  // of the cheapest plan
  int found = 0;
};

void ask(const Instance& instance, const SearchRequest& request, const Folder& folder,
         Answers& answers) {
  INFO("searcher " << request.searcher << ", gap " << request.solve.gap);
  const auto found = search(request);
  if (!found) {
    // Too many combinations, no pins to start from, or nothing that fits.
    INFO(found.error().message);
    CHECK((request.searcher != "dp" || found.error().code == ErrorCode::kInfeasible));
    return;
  }
  check_outcome(instance, *found);
  check_price(instance, *found, folder);
  if (request.searcher == "dp") CHECK(found->gap() <= request.solve.gap + 0.01);
  if (found->cost.total() < answers.least_cost) answers.peak = found->cost.memory.total;
  answers.least_cost = std::min(answers.least_cost, found->cost.total());
  answers.largest_bound = std::max(answers.largest_bound, found->lower_bound);
  ++answers.found;
}

// The cheapest plan of all searchers, after all bounds were held to it.
Answers ask_all(const Instance& instance, const Folder& folder) {
  Answers answers;
  for (const Searcher& searcher : searchers()) {
    const SearchRequest request = instance.request(searcher.name);
    ask(instance, request, folder, answers);
    if (request.searcher != "dp") continue;
    SearchRequest hasty = request;
    hasty.solve.gap = 0.05;
    ask(instance, hasty, folder, answers);
  }
  CHECK(answers.largest_bound <= answers.least_cost * (1 + kRounding));
  return answers;
}

std::vector<std::string> model_files() {
  const std::string source = AUTOPAR_SOURCE;
  std::vector<std::string> files;
  for (const char* name : {"mlp", "gpt2_tiny", "llama_tiny"}) {
    files.push_back(source + "/models/" + name + ".onnx");
  }
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::string models = shared ? shared : source + "/../shared";
  for (const char* name :
       {"tiny_resnet", "tiny_dlrm", "tiny_moe_gather", "train_mlp_adam", "train_cnn_sgd"}) {
    const std::string file = models + "/data/models/" + name + ".onnx";
    if (std::filesystem::exists(file)) files.push_back(file);
  }
  return files;
}

}  // namespace

TEST_CASE("models: no bound above any plan, every plan costs what is claimed", "[property]") {
  const Folder folder;
  int limited = 0, pinned = 0;
  unsigned meshes = 0;
  for (const std::string& file : model_files()) {
    INFO(file);
    const ImportedModel model = import_model(file).value();
    const GraphRules rules = rules_of(model.graph).value();
    Draw draw{std::mt19937_64(file.size())};
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{4}, {2, 3}}) {
      const Cluster cluster = small_cluster(sizes);
      for (const Mesh& mesh : mesh_candidates(cluster, 2)) {
        const unsigned one_in = 4 / cases(4u);
        if (meshes++ % one_in != 0) continue;
        INFO("mesh " << to_text(mesh));
        Instance instance{model.graph, rules, cluster, mesh};
        const Answers free = ask_all(instance, folder);
        REQUIRE(free.found > 0);
        instance.pins = random_pin(instance, draw);
        const Answers with_pin = ask_all(instance, folder);
        CHECK(with_pin.least_cost >= free.largest_bound * (1 - kRounding));
        pinned += with_pin.found;
        instance.pins = {};
        instance.memory_limit = free.peak * 95 / 100;
        const Answers less = ask_all(instance, folder);
        CHECK(less.least_cost >= free.largest_bound * (1 - kRounding));
        limited += less.found;
      }
    }
  }
  CHECK(limited > 0);
  CHECK(pinned > 0);
}

}  // namespace autopar::property_models_test
