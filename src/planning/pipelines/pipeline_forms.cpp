#include "planning/pipelines/pipeline_forms.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "planning/pipelines/pinned_stages.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

namespace {

using tuning::forms::kMostChunks;

bool is_file(const std::string& schedule) {
  return schedule != "auto" && schedule.find_first_of("./") != std::string::npos;
}

// A reduction or an update of a table.
struct EndAction {
  int line = 0;  // of the file, from 1 on
  std::int64_t chunk = 0;
  char phase = 'U';  // or R
  std::string text() const { return std::to_string(chunk) + phase; }
};
std::string in_line(const EndAction& end) {
  return "line " + std::to_string(end.line) + ": " + end.text();
}

// A table without the cells of reductions and updates, which are put at the end, and these.
struct TableOfPasses {
  std::string text;
  std::vector<int> lines;  // that have passes, of the file
  std::vector<EndAction> ends;
};

// Errors: such a cell stands twice, before a pass of its chunk, or an update before the reduction.
Result<TableOfPasses> passes_of(const std::string& table) {
  static const std::regex ends("(^|,)[ \t]*([0-9]{1,9})([RU])[ \t]*(?=,|$)");
  TableOfPasses passes;
  std::string line;
  std::istringstream lines(table.rfind("\xEF\xBB\xBF", 0) == 0 ? table.substr(3) : table);
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    for (std::sregex_iterator at(line.begin(), line.end(), ends), none; at != none; ++at) {
      const std::string chunk = (*at)[2], rest = at->suffix();
      const EndAction end{number, std::stoll(chunk), (*at)[3].str()[0]};
      for (const EndAction& other : passes.ends) {
        if (other.chunk != end.chunk) continue;
        if (other.phase == end.phase) {
          return input_error(in_line(end) + " stands twice; expected once");
        }
        if (end.phase == 'R') {
          return input_error(in_line(other) + " stands before " + end.text() + ", which it needs");
        }
      }
      passes.ends.push_back(end);
      std::smatch pass;
      if (!std::regex_search(rest, pass, std::regex("[,(;][ \t]*(" + chunk + "[FBIW][0-9]*)"))) {
        continue;
      }
      return input_error(in_line(end) + " stands before " + pass[1].str() +
                         ": it runs once, after all passes of its chunk");
    }
    const std::string left = std::regex_replace(line, ends, "$1");
    if (left.find_first_not_of(", \t") != std::string::npos) passes.lines.push_back(number);
    passes.text += left + "\n";
  }
  return passes;
}

// Each stands in the line of its chunk's stage.
Status verify_ends(const TableOfPasses& passes, const PipelineSchedule& schedule) {
  for (const EndAction& end : passes.ends) {
    const auto chunk = static_cast<std::size_t>(end.chunk);
    if (chunk >= schedule.stage_of_chunk.size()) {
      return input_error(in_line(end) + ": expected a chunk from 0 to " +
                         std::to_string(schedule.stage_of_chunk.size() - 1));
    }
    const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[chunk]);
    const int expected = stage < passes.lines.size() ? passes.lines[stage] : end.line;
    if (expected == end.line) continue;
    return input_error(in_line(end) + " stands in the line of another stage; expected line " +
                       std::to_string(expected) + ", where the passes of its chunk are");
  }
  return Ok{};
}

Result<PipelineSchedule> parsed(const TableOfPasses& passes, const std::string& path) {
  // Without programs a B stays one where no W stands for it.
  AUTOPAR_TRY(lines, parse_schedule(passes.text, {}, path));
  std::erase_if(lines, [](const StepLine& line) { return line.empty(); });
  if (lines.empty()) {
    return input_error("expected a line of actions for each stage, such as 0F0,0F1,0B0,0B1");
  }
  AUTOPAR_TRY(schedule, schedule_of_lines(std::move(lines)));
  AUTOPAR_RETURN_IF_ERROR(verify_ends(passes, schedule));
  schedule = backward_apart(std::move(schedule));
  AUTOPAR_RETURN_IF_ERROR(verify_schedule(schedule));
  return schedule;
}

Result<PipelineSchedule> read_schedule(const std::string& path, std::int64_t micro_batches) {
  AUTOPAR_TRY(text, read_file(path));
  return schedule_of_table(text, path, micro_batches);
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

std::string to_text(const PipelineForm& form) {
  std::string text = "1 stage";
  if (form.stages > 1) text = std::to_string(form.stages) + " stages, " + form.schedule;
  if (form.chunks_per_stage > 1) {
    text += ", " + std::to_string(form.chunks_per_stage) + " chunks each";
  }
  if (form.micro_batches == 0) return text;
  return text + ", " + std::to_string(form.micro_batches) +
         (form.micro_batches == 1 ? " micro-batch" : " micro-batches");
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
                                           std::int64_t micro_batches) {
  auto passes = passes_of(text);
  auto schedule = passes ? parsed(*passes, where) : Result<PipelineSchedule>(passes.error());
  if (!schedule) {
    const std::string& message = schedule.error().message;
    return input_error(message.rfind(where, 0) == 0 ? message : where + ": " + message);
  }
  if (schedule->micro_batches != micro_batches) {
    return input_error(where + ": it has " + std::to_string(schedule->micro_batches) +
                       " micro-batches, and --micro-batches is " + std::to_string(micro_batches));
  }
  return schedule;
}

Result<PipelineSchedule> schedule_of(const PipelineForm& form, std::int64_t micro_batches) {
  const auto kind = parse_schedule_kind(form.schedule);
  if (!kind) return read_schedule(form.schedule, micro_batches);
  AUTOPAR_TRY(schedule, make_schedule(*kind, {form.stages, form.chunks_per_stage, micro_batches}));
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
    AUTOPAR_TRY(schedule, read_schedule(options.schedule, micro_batches));
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
      const bool has_any = any == ScheduleKind::kInterleaved;
      const std::int64_t least = least_chunks(any);
      for (std::int64_t v = least; v <= (has_any ? kMostChunks : least); v *= 2) {
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
