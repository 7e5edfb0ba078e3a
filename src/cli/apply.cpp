// autopar apply and autopar price: a given strategy, complete or partial.
#include <iostream>

#include "cli/outputs.hpp"

namespace autopar::cli {

namespace {

struct Applied {
  std::unique_ptr<Inputs> inputs;
  std::optional<SearchRequest> request;
  SearchOutcome outcome;
  std::string strategy_text;  // the file's bytes where it is a complete strategy of this model
};

Status price_complete(const StrategyFile& file, Applied& applied) {
  const SearchRequest& request = *applied.request;
  AUTOPAR_TRY(strategy, complete_strategy(request.graph, request.rules, request.cluster, file));
  RooflineModel model(request.cluster, strategy.mesh);
  AUTOPAR_TRY(cost, evaluate(request.graph, request.rules, strategy, model));
  applied.outcome.strategy = std::move(strategy);
  applied.outcome.cost = std::move(cost);
  applied.outcome.searcher = file.searcher.empty() ? "given" : file.searcher;
  if (file.cost) {
    applied.outcome.lower_bound =
        std::min(file.cost->lower_bound_seconds, applied.outcome.cost.total());
  }
  applied.outcome.unlimited_lower_bound = applied.outcome.lower_bound;
  return Ok{};
}

Result<Fill> parse_fill(const std::string& name) {
  if (name == "data_parallel") return Fill::kDataParallel;
  if (name == "replicate") return Fill::kReplicate;
  if (name == "search") return Fill::kSearch;
  return usage_error("--fill '" + name + "': expected data_parallel, replicate or search");
}

Result<std::unique_ptr<Applied>> apply(const PlanOptions& options, const CommonOptions& common) {
  auto applied = std::make_unique<Applied>();
  AUTOPAR_TRY(file, read_strategy(options.strategy_file));
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  applied->inputs = std::move(inputs);
  AUTOPAR_TRY(request, make_request(*applied->inputs, options, common));
  applied->request.emplace(request);
  SearchRequest& asked = *applied->request;
  if (common.mesh.empty() && is_complete(asked.graph, file)) {
    AUTOPAR_RETURN_IF_ERROR(price_complete(file, *applied));
    if (file.model_sha256 == applied->inputs->model.sha256) {
      AUTOPAR_TRY(text, read_file(options.strategy_file));
      applied->strategy_text = text;
    }
    return applied;
  }
  AUTOPAR_TRY(fill, parse_fill(options.fill));
  asked.fill = fill;
  // What is given is given: whether it fits is said, not decided here.
  asked.limit_memory = fill == Fill::kSearch;
  AUTOPAR_RETURN_IF_ERROR(add_pins(file, *applied->inputs, asked));
  AUTOPAR_TRY(outcome, search(asked));
  applied->outcome = std::move(outcome);
  applied->outcome.searcher = "given";
  applied->outcome.trials.clear();
  return applied;
}

Result<int> run_apply(const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(applied, apply(options, common));
  AUTOPAR_RETURN_IF_ERROR(write_outputs(*applied->request, applied->outcome, *applied->inputs,
                                        options, common, applied->strategy_text));
  return 0;
}

Result<int> run_price(const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(applied, apply(options, common));
  const Graph& graph = applied->request->graph;
  const SearchOutcome& outcome = applied->outcome;
  std::cout << (common.json ? terms_json(graph, outcome.strategy.mesh, outcome.cost)
                            : terms_table(graph, outcome.strategy.mesh, outcome.cost));
  return 0;
}

void add_strategy_options(CLI::App& app, PlanOptions& options) {
  add_model_options(app, options);
  add_layout_options(app, options);
  add_solve_options(app, options);
  app.add_option("--strategy", options.strategy_file, "strategy file, complete or partial")
      ->required();
  app.add_option("--fill", options.fill,
                 "what ops get that the file does not name: data_parallel, replicate, search");
}

}  // namespace

Run add_apply(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<PlanOptions>();
  add_strategy_options(app, *options);
  return [options, &common] { return run_apply(*options, common); };
}

Run add_price(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<PlanOptions>();
  add_strategy_options(app, *options);
  return [options, &common] { return run_price(*options, common); };
}

}  // namespace autopar::cli
