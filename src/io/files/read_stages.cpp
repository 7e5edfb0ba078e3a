#include <set>

#include "io/files/read_strategy.hpp"

namespace autopar {
namespace {

Result<std::int64_t> count_of(const Json& owner, const std::string& key, std::int64_t least) {
  AUTOPAR_TRY(field, owner.at(key));
  AUTOPAR_TRY(count, field.integer());
  if (count < least) return field.expected("a number from " + std::to_string(least) + " on");
  return count;
}

Result<StrategyFile::Chunk> chunk_of(const Json& json) {
  StrategyFile::Chunk chunk;
  AUTOPAR_TRY(number, count_of(json, "chunk", 0));
  chunk.chunk = number;
  AUTOPAR_TRY(field, json.at("ops"));
  AUTOPAR_TRY(ops, field.items());
  if (ops.size() != 2) return field.expected("the first and the last forward op");
  AUTOPAR_TRY(first, ops[0].text());
  AUTOPAR_TRY(last, ops[1].text());
  chunk.first_op = first;
  chunk.last_op = last;
  AUTOPAR_RETURN_IF_ERROR(read_recompute(json, chunk.recompute, chunk.recompute_from));
  AUTOPAR_TRY(otherwise, json.find("otherwise"));
  if (otherwise) AUTOPAR_RETURN_IF_ERROR(read_pins(*otherwise, chunk));
  return chunk;
}

Result<StrategyFile::Stage> stage_of(const Json& json) {
  StrategyFile::Stage stage;
  AUTOPAR_TRY(first, count_of(json, "first_rank", 0));
  AUTOPAR_TRY(ranks, count_of(json, "ranks", 1));
  stage.first_rank = first;
  stage.ranks = ranks;
  AUTOPAR_TRY(mesh, json.at("mesh"));
  AUTOPAR_TRY(axes, mesh_axes_of(mesh));
  stage.mesh = std::move(axes);
  AUTOPAR_TRY(field, json.at("chunks"));
  AUTOPAR_TRY(chunks, field.items());
  if (chunks.empty()) return field.expected("at least one chunk");
  for (const Json& one : chunks) {
    AUTOPAR_TRY(chunk, chunk_of(one));
    stage.chunks.push_back(std::move(chunk));
  }
  return stage;
}

// Stages follow each other, and of all chunks each is there once.
Status check_stages(const StrategyFile& file) {
  std::set<std::int64_t> chunks;
  std::int64_t next = 0;
  for (std::size_t s = 0; s < file.stages.size(); ++s) {
    const StrategyFile::Stage& stage = file.stages[s];
    const std::string where = file.path + ": step.stages[" + std::to_string(s) + "]";
    if (stage.first_rank != next) {
      return input_error(where + ".first_rank: expected " + std::to_string(next) +
                         ", behind the stage before, found " + std::to_string(stage.first_rank));
    }
    next += stage.ranks;
    for (const StrategyFile::Chunk& chunk : stage.chunks) {
      if (chunks.insert(chunk.chunk).second) continue;
      return input_error(where + ": chunk " + std::to_string(chunk.chunk) + " stands twice");
    }
  }
  const auto count = static_cast<std::int64_t>(chunks.size());
  if (chunks.empty() || *chunks.rbegin() + 1 == count) return Ok{};
  return input_error(file.path + ": step.stages: expected chunks 0 to " +
                     std::to_string(*chunks.rbegin()) + " each once, found " +
                     std::to_string(count) + " of them");
}

}  // namespace

Status read_step_of(const Json& document, StrategyFile& file) {
  AUTOPAR_TRY(step, document.find("step"));
  if (!step) return Ok{};
  AUTOPAR_TRY(count, step->find("micro_batches"));
  if (count) {
    AUTOPAR_TRY(micro_batches, count->integer());
    if (micro_batches < 1) {
      return input_error(file.path + ": step.micro_batches: expected at least 1, found " +
                         std::to_string(micro_batches));
    }
    file.micro_batches = micro_batches;
    file.has_passes = true;
  }
  AUTOPAR_TRY(interleaved, step->find("copies"));
  if (interleaved) {
    AUTOPAR_TRY(copies, interleaved->integer());
    if (copies < 1 || file.micro_batches % copies != 0) {
      return input_error(file.path + ": step.copies: expected a number that divides the " +
                         std::to_string(file.micro_batches) + " micro-batches, found " +
                         std::to_string(copies));
    }
    file.copies = copies;
  }
  AUTOPAR_TRY(stages, step->find("stages"));
  if (!stages) return Ok{};
  AUTOPAR_TRY(items, stages->items());
  if (items.size() < 2) return Ok{};
  if (file.copies > 1) {
    return input_error(file.path + ": step.copies: goes with one stage, found " +
                       std::to_string(items.size()));
  }
  for (const Json& item : items) {
    AUTOPAR_TRY(stage, stage_of(item));
    file.stages.push_back(std::move(stage));
  }
  AUTOPAR_RETURN_IF_ERROR(check_stages(file));
  AUTOPAR_TRY(schedule, step->at("schedule"));
  AUTOPAR_TRY(name, schedule.text());
  file.schedule = name;
  AUTOPAR_TRY(lines, step->find("schedule_lines"));
  if (!lines) return Ok{};
  AUTOPAR_TRY(texts, lines->items());
  for (const Json& line : texts) {
    AUTOPAR_TRY(text, line.text());
    file.schedule_lines.push_back(text);
  }
  return Ok{};
}

StrategyFile strategy_of_chunk(const StrategyFile& file, const StrategyFile::Stage& stage,
                               const StrategyFile::Chunk& chunk) {
  StrategyFile own = file;
  own.stages.clear();
  own.mesh = stage.mesh;
  if (!chunk.recompute.empty()) {
    own.recompute = chunk.recompute;
    own.recompute_from = chunk.recompute_from;
  }
  for (const std::string& name : chunk.absent) {
    own.pins.ops.erase(name);
    own.pins.values.erase(name);
    own.op_types.erase(name);
    own.repeated.erase(name);
  }
  for (const auto& [name, pin] : chunk.pins.ops) {
    own.pins.ops[name] = pin;
    own.repeated.erase(name);  // it says all of the op
  }
  for (const auto& [name, is_repeated] : chunk.repeated) own.repeated[name] = is_repeated;
  for (const auto& [name, pin] : chunk.pins.values) own.pins.values[name] = pin;
  for (const auto& [name, type] : chunk.op_types) own.op_types[name] = type;
  return own;
}

}  // namespace autopar
