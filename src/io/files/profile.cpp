#include "io/files/profile.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "autopar/files.hpp"
#include "autopar/profile_file.hpp"

namespace autopar {
namespace {

Status read_number(const Json& owner, const std::string& key, double& number) {
  AUTOPAR_TRY(field, owner.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(value, field->number());
  number = value;
  return Ok{};
}

// 0 or 1.
Status read_flag(const Json& owner, const std::string& key, bool& flag) {
  AUTOPAR_TRY(field, owner.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(number, field->integer());
  if (number != 0 && number != 1) return field->expected("0 or 1");
  flag = number == 1;
  return Ok{};
}

Status read_known(const Json& owner, const std::set<std::string>& known) {
  AUTOPAR_TRY(members, owner.members());
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  for (const auto& [name, field] : members) {
    if (known.count(name) == 0) return field.error("unknown; known are " + names);
  }
  return Ok{};
}

Status read_fuses(const Json& json, Profile& profile) {
  AUTOPAR_TRY(field, json.find("fuses"));
  if (!field) return Ok{};
  AUTOPAR_TRY(items, field->items());
  for (const Json& item : items) {
    AUTOPAR_TRY(name, item.text());
    bool* fuses = name == "elementwise"     ? &profile.fuses_elementwise
                  : name == "normalisation" ? &profile.fuses_normalisation
                  : name == "attention"     ? &profile.fuses_attention
                  : name == "optimizer"     ? &profile.fuses_optimizer
                                            : nullptr;
    if (fuses == nullptr) {
      return item.expected("elementwise, normalisation, attention or optimizer");
    }
    *fuses = true;
  }
  return Ok{};
}

// The fields in their order, with the flags that they stand for.
template <class Of>
auto flags_of(Of& deferred) {
  return std::array{std::pair("all_reduce", &deferred.all_reduce),
                    std::pair("reduce_scatter", &deferred.reduce_scatter),
                    std::pair("gather", &deferred.gather), std::pair("update", &deferred.update)};
}

Status read_deferred(const Json& json, Deferred& deferred) {
  AUTOPAR_TRY(field, json.find("deferred"));
  if (!field) return Ok{};
  AUTOPAR_TRY(items, field->items());
  for (const auto& [name, flag] : flags_of(deferred)) *flag = false;
  for (const Json& item : items) {
    AUTOPAR_TRY(text, item.text());
    bool known = false;
    for (const auto& [name, flag] : flags_of(deferred)) {
      if (text == name) known = *flag = true;
    }
    if (!known) return item.expected("all_reduce, reduce_scatter, gather or update");
  }
  return Ok{};
}

Status read_matrix(const Json& json, MatrixEfficiency& matrix) {
  AUTOPAR_TRY(field, json.find("matrix"));
  if (!field) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(read_known(
      *field, {"fraction", "half_k", "tile", "multiprocessors", "least_k", "unaligned"}));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "fraction", matrix.fraction));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "half_k", matrix.half_k));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "multiprocessors", matrix.multiprocessors));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "least_k", matrix.least_k));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "unaligned", matrix.unaligned));
  AUTOPAR_TRY(tile, field->find("tile"));
  if (!tile) return Ok{};
  AUTOPAR_TRY(sides, tile->integers());
  if (sides.size() != 2) return tile->expected("two numbers of rows and columns");
  matrix.tile_m = static_cast<double>(sides[0]);
  matrix.tile_n = static_cast<double>(sides[1]);
  return Ok{};
}

Status read_part(const Json& json, const std::string& key, const std::string& first, double& a,
                 const std::string& second, double& b) {
  AUTOPAR_TRY(field, json.find(key));
  if (!field) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(read_known(*field, {first, second}));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, first, a));
  return read_number(*field, second, b);
}

Status read_attention(const Json& json, Profile& profile) {
  AUTOPAR_TRY(field, json.find("attention"));
  if (!field) return Ok{};
  AttentionEfficiency& attention = profile.attention;
  AUTOPAR_RETURN_IF_ERROR(
      read_known(*field, {"forward", "backward", "half_length", "half_heads", "joined"}));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "forward", attention.forward));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "backward", attention.backward));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "half_length", attention.half_length));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "half_heads", attention.half_heads));
  return read_flag(*field, "joined", profile.joins_attention_inputs);
}

Status read_memory(const Json& json, MemoryEfficiency& memory) {
  AUTOPAR_TRY(field, json.find("memory"));
  if (!field) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(
      read_known(*field, {"fraction", "half_bytes", "normalisation", "gather"}));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "fraction", memory.fraction));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "half_bytes", memory.half_bytes));
  AUTOPAR_RETURN_IF_ERROR(read_number(*field, "normalisation", memory.normalisation));
  return read_number(*field, "gather", memory.gather);
}

}  // namespace

Result<Profile> profile_of(const Json& json) {
  AUTOPAR_RETURN_IF_ERROR(check_format(json, "autopar-profile", 1));
  AUTOPAR_RETURN_IF_ERROR(
      read_known(json, {"format",         "version",        "name",
                        "op_by_op",       "fuses",          "strided_operands",
                        "launch_s",       "host_s",         "stage_collective",
                        "matrix",         "attention",      "memory",
                        "bucket_bytes",   "deferred",       "slowdown",
                        "pipelined",      "gradient_bytes", "pass_gradient_bytes",
                        "whole_segments", "reserved_bytes", "fragmentation",
                        "sources"}));
  Profile profile;
  AUTOPAR_TRY(name, json.at("name"));
  AUTOPAR_TRY(name_text, name.text());
  if (name_text.empty()) return name.expected("a name");
  profile.name = name_text;
  AUTOPAR_RETURN_IF_ERROR(read_flag(json, "op_by_op", profile.runs_op_by_op));
  AUTOPAR_RETURN_IF_ERROR(read_fuses(json, profile));
  AUTOPAR_RETURN_IF_ERROR(read_flag(json, "strided_operands", profile.has_strides));
  AUTOPAR_RETURN_IF_ERROR(read_flag(json, "whole_segments", profile.repeats_whole_segments));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "launch_s", profile.launch_s));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "host_s", profile.host_s));
  AUTOPAR_RETURN_IF_ERROR(read_part(json, "stage_collective", "each_s", profile.stage_collective_s,
                                    "rank_s", profile.stage_collective_rank_s));
  AUTOPAR_RETURN_IF_ERROR(read_matrix(json, profile.matrix));
  AUTOPAR_RETURN_IF_ERROR(read_attention(json, profile));
  AUTOPAR_RETURN_IF_ERROR(read_memory(json, profile.memory));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "bucket_bytes", profile.bucket_bytes));
  AUTOPAR_RETURN_IF_ERROR(read_deferred(json, profile.deferred));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "slowdown", profile.slowdown));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "pipelined", profile.pipelined));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "gradient_bytes", profile.gradient_bytes));
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "pass_gradient_bytes", profile.pass_gradient_bytes));
  double reserved = 0;
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "reserved_bytes", reserved));
  constexpr double kMostBytes = 1e18;  // a number of bytes holds no more than nine times that
  if (!(std::abs(reserved) <= kMostBytes)) {
    return json.error("reserved_bytes must be at most 1e18, found " + std::to_string(reserved));
  }
  profile.reserved_bytes = static_cast<Bytes>(reserved);
  AUTOPAR_RETURN_IF_ERROR(read_number(json, "fragmentation", profile.fragmentation));
  if (Status valid = verify(profile); !valid) return json.error(valid.error().message);
  return profile;
}

std::string profile_to_json(const Profile& profile, const std::string& sources) {
  nlohmann::ordered_json j = {
      {"format", "autopar-profile"}, {"version", 1}, {"name", profile.name}};
  if (profile.runs_op_by_op) j["op_by_op"] = 1;
  auto& fuses = j["fuses"] = nlohmann::ordered_json::array();
  if (profile.fuses_attention) fuses.push_back("attention");
  if (profile.fuses_normalisation) fuses.push_back("normalisation");
  if (profile.fuses_elementwise) fuses.push_back("elementwise");
  if (profile.fuses_optimizer) fuses.push_back("optimizer");
  j["strided_operands"] = profile.has_strides ? 1 : 0;
  j["launch_s"] = profile.launch_s;
  j["host_s"] = profile.host_s;
  if (profile.stage_collective_s > 0 || profile.stage_collective_rank_s > 0) {
    j["stage_collective"] = {{"each_s", profile.stage_collective_s},
                             {"rank_s", profile.stage_collective_rank_s}};
  }
  j["matrix"] = {{"fraction", profile.matrix.fraction}, {"half_k", profile.matrix.half_k}};
  if (profile.matrix.tile_m > 0) {
    j["matrix"]["tile"] = {static_cast<std::int64_t>(profile.matrix.tile_m),
                           static_cast<std::int64_t>(profile.matrix.tile_n)};
    j["matrix"]["multiprocessors"] = profile.matrix.multiprocessors;
    if (profile.matrix.least_k > 0) j["matrix"]["least_k"] = profile.matrix.least_k;
  }
  if (profile.matrix.unaligned < 1) j["matrix"]["unaligned"] = profile.matrix.unaligned;
  const AttentionEfficiency& attention = profile.attention;
  j["attention"] = {{"forward", attention.forward}, {"backward", attention.backward}};
  if (attention.half_length > 0) j["attention"]["half_length"] = attention.half_length;
  if (attention.half_heads > 0) j["attention"]["half_heads"] = attention.half_heads;
  if (profile.joins_attention_inputs) j["attention"]["joined"] = 1;
  const MemoryEfficiency& memory = profile.memory;
  j["memory"] = {{"fraction", memory.fraction}, {"half_bytes", memory.half_bytes}};
  if (memory.normalisation > 0) j["memory"]["normalisation"] = memory.normalisation;
  if (memory.gather > 0) j["memory"]["gather"] = memory.gather;
  j["bucket_bytes"] = profile.bucket_bytes;
  auto& deferred = j["deferred"] = nlohmann::ordered_json::array();
  for (const auto& [name, flag] : flags_of(profile.deferred)) {
    if (*flag) deferred.push_back(name);
  }
  j["slowdown"] = profile.slowdown;
  j["pipelined"] = profile.pipelined;
  j["gradient_bytes"] = profile.gradient_bytes;
  j["pass_gradient_bytes"] = profile.pass_gradient_bytes;
  if (profile.repeats_whole_segments) j["whole_segments"] = 1;
  j["reserved_bytes"] = profile.reserved_bytes;
  j["fragmentation"] = profile.fragmentation;
  if (!sources.empty()) j["sources"] = sources;
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<Profile> read_profile(const std::string& path) {
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(document, parse_json(text, path));
  return profile_of(Json(document, path, ""));
}

}  // namespace autopar
