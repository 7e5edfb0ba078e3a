#include "cli/export_as.hpp"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/files.hpp"
#include "autopar/report.hpp"
#include "autopar/unfinished.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/interrupt.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

std::string strategy_path(const std::string& plan) {
  const fs::path path(plan);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return (path / "strategy.json").string();
  const bool is_program = path.extension() == ".onnx" || path.filename() == "step.json";
  return is_program ? (path.parent_path() / "strategy.json").string() : plan;
}

// A plan, what it is called there, and what the nearest template takes.
struct Said {
  Framework framework;
  SaidPlan plan;
  ParallelForm form;
  Saying saying;
  std::vector<std::string> differs;  // what of the plan these settings do not say
  std::optional<TemplatePrice> price;
  std::string why_no_price;
};

std::string percent_more(Seconds seconds, Seconds than) {
  char text[48];
  const double more = 100 * (seconds / than - 1);
  std::snprintf(text, sizeof text, "%.1f %% %s", more < 0 ? -more : more,
                more < 0 ? "less" : "more");
  return text;
}

// Sentences with their heads, as comments are made of.
std::vector<std::string> notes_of(const Said& said) {
  std::vector<std::string> notes = {said.plan.path + ": " + to_text(said.form) + " on " +
                                    std::to_string(said.plan.devices()) + " devices, for " +
                                    title_of(said.framework)};
  if (said.differs.empty()) {
    notes.emplace_back("the plan is this template");
  } else {
    notes.emplace_back("not said, since there are no words for it:");
    for (const std::string& text : said.differs) notes.push_back("  " + text);
  }
  if (said.price) {
    const TemplatePrice& price = *said.price;
    std::string text = "so said (" + price.name + ") a step takes " + format_seconds(price.seconds);
    if (said.plan.seconds) {
      text += ", the plan " + format_seconds(*said.plan.seconds) + ": " +
              percent_more(price.seconds, *said.plan.seconds);
    }
    notes.push_back(text + "; " + format_bytes(static_cast<double>(price.memory)) + " per device" +
                    (price.fits ? "" : ", which does not fit"));
  } else if (!said.why_no_price.empty()) {
    notes.push_back(said.why_no_price);
  }
  if (!said.saying.advice.empty()) notes.emplace_back("to be said beside it:");
  for (const std::string& text : said.saying.advice) notes.push_back("  " + text);
  return notes;
}

Json form_json(const ParallelForm& form) {
  Json json = {{"data", form.data},
               {"tensor", form.tensor},
               {"context", form.context},
               {"expert", form.expert},
               {"stages", form.stages},
               {"chunks_per_stage", form.chunks_per_stage},
               {"sequence_parallel", form.sequence},
               {"zero", form.zero},
               {"state_group", form.state_group},
               {"weight_group", form.weight_group},
               {"schedule", form.schedule},
               {"recompute", form.recompute},
               {"batch", form.batch},
               {"micro_batch", form.micro_batch},
               {"layers", form.layers}};
  Json layers = Json::array();
  for (const ChunkLayers& chunk : form.chunks) layers.push_back(chunk.layers);
  json["layers_of_chunks"] = std::move(layers);
  return json;
}

Json price_json(const Said& said) {
  if (!said.price) return said.why_no_price.empty() ? Json() : Json{{"error", said.why_no_price}};
  Json json = {{"template", said.price->name},
               {"seconds", said.price->seconds},
               {"memory_bytes", said.price->memory},
               {"fits", said.price->fits}};
  if (said.plan.seconds) {
    json["plan_seconds"] = *said.plan.seconds;
    json["more"] = said.price->seconds / *said.plan.seconds - 1;
  }
  return json;
}

Json document_of(const Said& said) {
  Json settings = Json::object();
  for (const auto& [name, value] : said.saying.settings) settings[name] = value;
  Json json = {{"format", "autopar-export"},     {"version", 1},
               {"as", name_of(said.framework)},  {"plan", said.plan.path},
               {"template", to_text(said.form)}, {"form", form_json(said.form)},
               {"exact", said.differs.empty()},  {"settings", std::move(settings)},
               {"text", said.saying.text}};
  if (!said.saying.strategy.empty()) json["strategy"] = Json::parse(said.saying.strategy);
  json["unsaid"] = said.differs;
  json["advice"] = said.saying.advice;
  json["nearest"] = price_json(said);
  return json;
}

Result<Said> said_plan(const ExportAsOptions& options, const CommonOptions& common) {
  Said said;
  said.framework = *parse_framework(options.as);
  const std::string path = strategy_path(options.plan);
  keep_from_replacing(path);
  keep_plan_in(fs::path(path).parent_path().string());
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(plan, parse_said_plan(text, path));
  said.plan = std::move(plan);
  said.form = form_of(said.plan);
  said.saying = say_as(said.framework, said.plan, said.form);
  const bool has_ops = !said.saying.strategy.empty();
  for (const Deviation& deviation : said.form.deviations) {
    if (!deviation.of_ops || !has_ops) said.differs.push_back(deviation.text);
  }
  said.differs.insert(said.differs.end(), said.saying.unsaid.begin(), said.saying.unsaid.end());
  if (said.differs.empty()) return said;
  auto price = price_template(said.plan, said.saying.runs, options.from, common);
  if (price) {
    said.price = std::move(*price);
  } else {
    said.why_no_price = price.error().message;
  }
  return said;
}

Status write_files(const Said& said, const std::string& path, const std::string& text) {
  UnfinishedFiles files;
  AUTOPAR_RETURN_IF_ERROR(write_file(files, path, text));
  if (!said.saying.strategy.empty()) {
    const std::string beside = (fs::path(path).parent_path() / "strategy.json").string();
    std::error_code ignored;
    if (fs::weakly_canonical(beside, ignored) == fs::weakly_canonical(said.plan.path, ignored)) {
      return input_error(path + ": MindSpore's strategy file would take the place of the plan's " +
                         said.plan.path + "; try -o with another folder");
    }
    if (is_strategy_file(beside)) {
      return input_error(path +
                         ": MindSpore's strategy file would take the place of that of the "
                         "plan that lies there, " +
                         beside + "; try -o with another folder");
    }
    AUTOPAR_RETURN_IF_ERROR(write_file(files, beside, said.saying.strategy));
  }
  return files.keep();
}

}  // namespace

Result<int> export_as(const ExportAsOptions& options, const CommonOptions& common) {
  end_on_interrupt();
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.file));
  AUTOPAR_TRY(said, said_plan(options, common));
  const std::vector<std::string> notes = notes_of(said);
  const std::string& comment = said.saying.comment;
  std::string text;
  if (!comment.empty()) {
    for (const std::string& note : notes) text += comment + note + "\n";
  }
  text += said.saying.text;
  if (!options.file.empty()) AUTOPAR_RETURN_IF_ERROR(write_files(said, options.file, text));
  if (common.json) {
    std::cout << document_of(said).dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
    return 0;
  }
  // What the text itself has no place for.
  if (comment.empty() && !common.quiet) {
    for (const std::string& note : notes) logging::info("{}", note);
  }
  if (options.file.empty()) {
    std::cout << text;
    if (!said.saying.strategy.empty()) {
      std::cout << "\n" << comment << "strategy.json:\n" << said.saying.strategy;
    }
  } else if (!common.quiet) {
    std::cout << "wrote " << options.file
              << (said.saying.strategy.empty() ? "" : " and strategy.json beside it") << "\n";
  }
  return 0;
}

}  // namespace autopar::cli
