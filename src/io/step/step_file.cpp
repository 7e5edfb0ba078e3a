#include "autopar/step_file.hpp"

#include <charconv>
#include <filesystem>

#include "autopar/files.hpp"
#include "io/files/json.hpp"

namespace autopar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStepFormat = "autopar-step";
constexpr std::int64_t kStepVersion = 1;
constexpr const char* kFile = "step.json";
constexpr std::string_view kConcat = "concat:";

Result<StepProgram> program_of_json(const Json& json) {
  StepProgram program;
  AUTOPAR_TRY(file_field, json.at("file"));
  AUTOPAR_TRY(file, file_field.text());
  program.file = file;
  AUTOPAR_TRY(chunk_field, json.at("chunk"));
  AUTOPAR_TRY(chunk, chunk_field.integer());
  program.chunk = chunk;
  AUTOPAR_TRY(phase_field, json.at("phase"));
  AUTOPAR_TRY(phase_name, phase_field.text());
  const auto phase = parse_step_phase(phase_name);
  if (!phase) return phase_field.expected("one of F, B, I, W, FB, R, U");
  program.phase = *phase;
  AUTOPAR_TRY(ranks_field, json.at("ranks"));
  AUTOPAR_TRY(ranks, ranks_field.integers());
  program.ranks = ranks;
  return program;
}

Result<StepOutput> output_of_json(const std::string& name, const Json& json) {
  AUTOPAR_TRY(text, json.text());
  for (const Combining combining : {Combining::kMean, Combining::kSum, Combining::kLast}) {
    const StepOutput output{name, combining, 0};
    if (text == to_text(output)) return output;
  }
  StepOutput output{name, Combining::kConcat, 0};
  const char* const end = text.data() + text.size();
  if (text.rfind(kConcat, 0) == 0) {
    const auto [rest, error] = std::from_chars(text.data() + kConcat.size(), end, output.dimension);
    if (error == std::errc{} && rest == end && output.dimension >= 0) return output;
  }
  return json.expected("mean, sum, last or concat:<dimension>");
}

Status read_values(const Json& document, Step& step) {
  AUTOPAR_TRY(inputs_field, document.find("micro_inputs"));
  if (inputs_field) {
    AUTOPAR_TRY(inputs, inputs_field->members());
    for (const auto& [name, field] : inputs) {
      AUTOPAR_TRY(dimension, field.integer());
      step.micro_inputs.push_back({name, dimension});
    }
  }
  AUTOPAR_TRY(outputs_field, document.find("outputs"));
  if (outputs_field) {
    AUTOPAR_TRY(outputs, outputs_field->members());
    for (const auto& [name, field] : outputs) {
      AUTOPAR_TRY(output, output_of_json(name, field));
      step.outputs.push_back(output);
    }
  }
  AUTOPAR_TRY(reference_field, document.find("reference"));
  if (!reference_field) return Ok{};
  AUTOPAR_TRY(reference, reference_field->text());
  if (reference == "passes") {
    step.reference = StepReference::kPasses;
  } else if (reference != "whole") {
    return reference_field->expected("whole or passes");
  }
  return Ok{};
}

Result<Step> step_of_json(const Json& document) {
  AUTOPAR_RETURN_IF_ERROR(check_format(document, kStepFormat, kStepVersion));
  Step step;
  AUTOPAR_TRY(world_size, positive_integer(document, "world_size"));
  step.world_size = world_size;
  AUTOPAR_TRY(micro_batches, positive_integer(document, "micro_batches"));
  step.micro_batches = micro_batches;
  AUTOPAR_TRY(copies_field, document.find("copies"));
  if (copies_field) {
    AUTOPAR_TRY(copies, positive_integer(document, "copies"));
    step.copies = copies;
  }
  AUTOPAR_TRY(schedule_field, document.at("schedule"));
  AUTOPAR_TRY(schedule, schedule_field.text());
  step.schedule = schedule;
  AUTOPAR_TRY(programs_field, document.at("programs"));
  AUTOPAR_TRY(programs, programs_field.items());
  for (const Json& field : programs) {
    AUTOPAR_TRY(program, program_of_json(field));
    step.programs.push_back(std::move(program));
  }
  AUTOPAR_RETURN_IF_ERROR(read_values(document, step));
  return step;
}

}  // namespace

std::string step_json_text(const Step& step) {
  std::string text = std::string("{\"format\": \"") + kStepFormat +
                     "\", \"version\": " + std::to_string(kStepVersion) +
                     ", \"world_size\": " + std::to_string(step.world_size) +
                     ", \"micro_batches\": " + std::to_string(step.micro_batches) +
                     (step.copies > 1 ? ", \"copies\": " + std::to_string(step.copies) : "") +
                     ", \"schedule\": " + json_text(step.schedule) + ",\n \"programs\": [";
  for (std::size_t p = 0; p < step.programs.size(); ++p) {
    const StepProgram& program = step.programs[p];
    text += std::string(p > 0 ? ",\n              " : "") +
            "{\"file\": " + json_text(program.file) +
            ", \"chunk\": " + std::to_string(program.chunk) +
            ", \"phase\": " + json_text(name_of(program.phase)) +
            ", \"ranks\": " + json_list(program.ranks) + "}";
  }
  text += "],\n \"micro_inputs\": {";
  for (std::size_t i = 0; i < step.micro_inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + json_text(step.micro_inputs[i].name) + ": " +
            std::to_string(step.micro_inputs[i].dimension);
  }
  text += "},\n \"outputs\": {";
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + json_text(step.outputs[i].name) + ": " +
            json_text(to_text(step.outputs[i]));
  }
  text += "}";
  if (step.reference == StepReference::kPasses) text += ",\n \"reference\": \"passes\"";
  return text + "}\n";
}

Status write_step(const Step& step, const std::string& folder, UnfinishedFiles& files) {
  AUTOPAR_RETURN_IF_ERROR(
      write_file(files, (fs::path(folder) / step.schedule).string(), schedule_text(step.lines)));
  return write_file(files, (fs::path(folder) / kFile).string(), step_json_text(step));
}

bool is_step_folder(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kFile, ignored);
}

Result<Step> read_step(const std::string& folder) {
  const std::string path = (fs::path(folder) / kFile).string();
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(document, parse_json(text, path));
  AUTOPAR_TRY(step, step_of_json(Json(document, path, "")));
  const auto in_file = [&](const Error& error) { return input_error(path + ": " + error.message); };
  // Before the schedule is read: its name must not lead out of the folder.
  if (auto valid = verify_programs(step); !valid) return in_file(valid.error());
  const std::string schedule = (fs::path(folder) / step.schedule).string();
  AUTOPAR_TRY(table, read_file(schedule));
  AUTOPAR_TRY(lines, parse_schedule(table, step.programs, schedule));
  step.lines = std::move(lines);
  if (auto valid = verify(step); !valid) return in_file(valid.error());
  return std::move(step);
}

}  // namespace autopar
