#include "planning/pipelines/pipeline_forms.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

#include "planning/pipelines/pinned_stages.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "support/counted.hpp"

namespace autopar {

namespace {

bool is_file(const std::string& schedule) {
  return schedule != "auto" && schedule.find_first_of("./") != std::string::npos;
}

// R and U are checked like the others, and left out: they are put at the end.
Result<PipelineSchedule> parsed(const std::string& text, const std::string& path) {
  const bool has_mark = text.rfind("\xEF\xBB\xBF", 0) == 0;  // as spreadsheets begin a table
  // Without programs a B stays one where no W stands for it.
  AUTOPAR_TRY(lines, parse_schedule(has_mark ? text.substr(3) : text, {}, path));
  std::erase_if(lines, [](const StepLine& line) { return line.empty(); });
  if (lines.empty()) {
    return input_error("expected a line of actions for each stage, such as 0F0,0F1,0B0,0B1");
  }
  AUTOPAR_TRY(schedule, schedule_of_lines(std::move(lines)));
  schedule = backward_apart(std::move(schedule));
  AUTOPAR_RETURN_IF_ERROR(verify_schedule(schedule));
  for (StepLine& line : schedule.lines) {
    std::erase_if(line, [](const StepAction& action) { return !is_pass(action.phase); });
  }
  return schedule;
}

// A model that is not trained has forward passes alone.
Status check_phases(const std::string& text, const std::string& where, const Graph& step) {
  const auto lines = parse_schedule(text, {}, where);
  if (!lines || has_backward_pass(step)) return Ok{};
  for (const StepLine& line : *lines) {
    for (const StepAction& action : line) {
      if (action.phase == StepPhase::kForward) continue;
      return input_error(where + ": " + to_text(action) +
                         " is of a training step, and the model is not trained; expected F alone, "
                         "or --train");
    }
  }
  return Ok{};
}

Result<PipelineSchedule> read_schedule(const std::string& path, const Graph& step) {
  AUTOPAR_TRY(text, read_file(path));
  return schedule_of_table(text, path, step);
}

// What differs from another schedule by its forward passes.
bool is_of_forward(ScheduleKind kind) {
  return kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B ||
         kind == ScheduleKind::kInterleaved;
}

Result<std::vector<std::int64_t>> asked_stages(const PlanOptions& options, const Inputs& inputs) {
  if (options.stages != "auto") {
    AUTOPAR_TRY(stages, parse_count(options.stages, "--stages"));
    return std::vector<std::int64_t>{stages};
  }
  std::vector<std::int64_t> found;
  const std::int64_t devices = inputs.cluster.device_count();
  for (std::int64_t stages = 2; stages <= devices; ++stages) {
    if (devices % stages == 0 && stage_of(inputs.cluster, stages)) found.push_back(stages);
  }
  return found;
}

}  // namespace

namespace {

// Of the tiers what is left to a stage; nothing: so many stages do not divide them.
std::optional<std::vector<Tier>> tiers_of_stage(std::vector<Tier> tiers, std::int64_t stages) {
  for (std::size_t t = tiers.size(); t-- > 0 && stages > 1;) {
    const std::int64_t parts = std::gcd(tiers[t].size, stages);
    tiers[t].size /= parts;
    stages /= parts;
    if (tiers[t].size > 1 && stages > 1) break;
  }
  if (stages > 1) return std::nullopt;
  return tiers;
}

}  // namespace

Result<Cluster> stage_of(const Cluster& cluster, std::int64_t stages) {
  Cluster stage = cluster;
  auto left = tiers_of_stage(cluster.tiers, stages);
  if (!left) {
    std::string possible;
    for (std::int64_t number = 1; number <= cluster.device_count(); ++number) {
      if (cluster.device_count() % number != 0 || !tiers_of_stage(cluster.tiers, number)) continue;
      possible += (possible.empty() ? "" : ", ") + std::to_string(number);
    }
    return usage_error("--stages " + std::to_string(stages) +
                       " does not divide the tiers of cluster '" + cluster.name +
                       "', the outermost first; what does: " + possible);
  }
  stage.tiers = std::move(*left);
  std::vector<Tier> tiers = {stage.tiers.front()};
  for (std::size_t t = 1; t < stage.tiers.size(); ++t) {
    if (stage.tiers[t].size > 1) tiers.push_back(stage.tiers[t]);
  }
  stage.tiers = std::move(tiers);
  stage.profile.of_stage = stages > 1 && cluster.device_count() > cluster.tiers.front().size;
  return stage;
}

std::string to_text(const PipelineForm& form) {
  std::string text = "1 stage";
  if (form.stages > 1) text = std::to_string(form.stages) + " stages, " + form.schedule;
  if (form.chunks_per_stage > 1) {
    text += ", " + std::to_string(form.chunks_per_stage) + " chunks each";
  }
  if (form.micro_batches == 0) return text;
  return text + ", " + counted(form.micro_batches, "micro-batch", "micro-batches");
}

Result<std::int64_t> parse_count(const std::string& text, const std::string& option) {
  const bool is_number =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || std::stoll(text) < 1) {
    return usage_error(option + " '" + text + "': expected a number from 1 on, or auto");
  }
  return std::int64_t{std::stoll(text)};
}

Result<PipelineSchedule> schedule_of_table(const std::string& text, const std::string& where,
                                           const Graph& step) {
  AUTOPAR_RETURN_IF_ERROR(check_phases(text, where, step));
  auto schedule = parsed(text, where);
  if (!schedule) {
    const std::string& message = schedule.error().message;
    return input_error(message.rfind(where, 0) == 0 ? message : where + ": " + message);
  }
  if (schedule->micro_batches != step.passes) {
    return input_error(where + ": it has " + std::to_string(schedule->micro_batches) +
                       " micro-batches, and --micro-batches is " + std::to_string(step.passes));
  }
  if (is_forward_only(*schedule) && has_backward_pass(step)) {
    return input_error(where +
                       ": it has no backward passes, such as 0B0, and a training step does");
  }
  return schedule;
}

Result<PipelineSchedule> schedule_of(const PipelineForm& form, const Graph& step) {
  const auto kind = parse_schedule_kind(form.schedule);
  if (!kind) return read_schedule(form.schedule, step);
  if (!has_backward_pass(step) && !is_of_forward(*kind)) {
    return usage_error("--schedule " + form.schedule +
                       " orders backward passes, which a model without --train has not; expected "
                       "gpipe, 1f1b (the same without backward passes), interleaved or auto");
  }
  if (!has_backward_pass(step) && form.chunks_per_stage > 1 && least_chunks(*kind) == 1) {
    return usage_error("--schedule " + form.schedule +
                       " has one chunk per stage, and --chunks is " +
                       std::to_string(form.chunks_per_stage) + "; try --schedule interleaved");
  }
  AUTOPAR_TRY(schedule, make_schedule(*kind, {form.stages, form.chunks_per_stage, step.passes}));
  if (!has_backward_pass(step)) return forward_only(std::move(schedule));
  return backward_apart(std::move(schedule));
}

Result<std::vector<OpId>> named_cuts(const std::string& names, const ImportedModel& model,
                                     const Graph& step, std::size_t chunks) {
  std::map<std::string, std::size_t> forward;
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    if (step.ops[o].phase == Phase::kForward) forward.emplace(step.ops[o].name, o);
  }
  // An op that import made several of is cut before the first of them.
  const auto find = [&](const std::string& name) {
    auto found = forward.find(name);
    const auto made = model.ops_of_user_op->find(name);
    if (found != forward.end() || made == model.ops_of_user_op->end()) return found;
    for (const std::string& op : made->second) {
      const auto one = forward.find(op);
      const bool is_before =
          one != forward.end() && (found == forward.end() || one->second < found->second);
      if (is_before) found = one;
    }
    return found;
  };
  std::vector<OpId> cuts;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto found = find(name);
    if (found == forward.end()) {
      return input_error("--cuts: op '" + name + "': " + why_absent(model, name) +
                         "; `autopar show --ops` with the model names the ops");
    }
    const OpId op(static_cast<std::int64_t>(found->second));
    if (!cuts.empty() && op.index() <= cuts.back().index()) {
      return input_error("--cuts: op '" + name + "' does not come behind '" +
                         step.op(cuts.back()).name + "', the cut before it");
    }
    cuts.push_back(op);
  }
  if (cuts.size() + 1 != chunks) {
    return input_error("--cuts names " + std::to_string(cuts.size()) + " ops, and " +
                       std::to_string(chunks) + " chunks have " + std::to_string(chunks - 1) +
                       " cuts");
  }
  return cuts;
}

Result<std::vector<PipelineForm>> asked_forms(const PlanOptions& options, const Inputs& inputs) {
  const std::int64_t micro_batches = inputs.model.graph.passes;
  AUTOPAR_TRY(stages, asked_stages(options, inputs));
  std::int64_t chunks = 0;  // as the schedule has it
  if (!options.chunks.empty() && options.chunks != "auto") {
    AUTOPAR_TRY(asked, parse_count(options.chunks, "--chunks"));
    chunks = asked;
  }
  std::vector<PipelineForm> forms;
  if (is_file(options.schedule)) {
    AUTOPAR_TRY(schedule, read_schedule(options.schedule, inputs.model.graph));
    const auto lines = static_cast<std::int64_t>(schedule.lines.size());
    const auto in_all = static_cast<std::int64_t>(schedule.stage_of_chunk.size());
    const bool is_even = in_all % lines == 0;
    if (options.stages != "auto" && lines != stages.front()) {
      return input_error(options.schedule + ": it has " + std::to_string(lines) +
                         " lines, and --stages is " + options.stages);
    }
    if (chunks > 0 && (!is_even || in_all / lines != chunks)) {
      return input_error(options.schedule + ": it has " + std::to_string(in_all) +
                         " chunks, and --chunks is " + options.chunks);
    }
    forms.push_back({lines, is_even ? in_all / lines : 1, options.schedule});
    return forms;
  }
  const auto kind = parse_schedule_kind(options.schedule);
  if (!kind && options.schedule != "auto") {
    std::string names;
    for (const ScheduleKind known : schedule_kinds()) names += std::string(name_of(known)) + ", ";
    return usage_error("--schedule '" + options.schedule + "': expected " + names +
                       "auto, or a file such as ./schedule.csv");
  }
  if (options.stages == "auto" && chunks <= 1) forms.push_back({1, 1, ""});
  for (const std::int64_t count : stages) {
    if (kind) {
      forms.push_back({count, chunks > 0 ? chunks : least_chunks(*kind), name_of(*kind)});
      continue;
    }
    // GPipe takes as long as 1F1B, with more in memory.
    for (const ScheduleKind any : schedule_kinds()) {
      if (any == ScheduleKind::kGPipe) continue;
      if (!has_backward_pass(inputs.model.graph) && !is_of_forward(any)) continue;
      const bool has_any = any == ScheduleKind::kInterleaved;
      const std::int64_t least = least_chunks(any);
      std::vector<std::int64_t> numbers;
      if (has_any && chunks > 0) {
        numbers = {chunks};
      } else {
        const std::int64_t most = has_any ? tuning::forms::kMostChunks : least;
        for (std::int64_t v = least; v <= most; v *= 2) numbers.push_back(v);
      }
      for (const std::int64_t v : numbers) {
        if (chunks > 0 && v != chunks) continue;
        const bool exists = verify_shape(any, {count, v, micro_batches}).ok();
        if (exists) forms.push_back({count, v, name_of(any)});
      }
    }
  }
  if (forms.empty()) {
    return usage_error("no schedule has " + std::to_string(micro_batches) +
                       " micro-batches and what --stages and --chunks say; --schedule with a name "
                       "tells what it needs");
  }
  return forms;
}

}  // namespace autopar
