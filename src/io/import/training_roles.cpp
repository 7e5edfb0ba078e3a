#include "autopar/training_roles.hpp"

#include <algorithm>

#include "io/files/json.hpp"

namespace autopar {
namespace {

Status read_names(const Json& document, const char* key, std::vector<std::string>& names) {
  AUTOPAR_TRY(field, document.find(key));
  if (!field) return Ok{};
  AUTOPAR_TRY(items, field->items());
  for (const Json& item : items) {
    AUTOPAR_TRY(name, item.text());
    names.push_back(name);
  }
  return Ok{};
}

}  // namespace

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string first_names(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

std::string TrainingRoles::copied_by(const std::string& state) const {
  constexpr const char* kMixed = "mixed-";
  if (precision.rfind(kMixed, 0) != 0 || !has_name(states, state)) return "";
  const std::string prefix = precision.substr(std::string(kMixed).size()) + ".";
  if (state.rfind(prefix, 0) != 0) return "";
  const std::string name = state.substr(prefix.size());
  return has_name(parameters, name) ? name : "";
}

std::string TrainingRoles::parameter_of(const std::string& state) const {
  for (const char* prefix : {"acc.", "sgd.m.", "adam.m.", "adam.v."}) {
    if (state.rfind(prefix, 0) != 0) continue;
    const std::string name = state.substr(std::string(prefix).size());
    if (has_name(parameters, name)) return name;
  }
  return copied_by(state);
}

Result<TrainingRoles> parse_training_roles(const std::string& text, const std::string& where) {
  const std::string at = where + ": metadata_props " + kTrainingKey;
  AUTOPAR_TRY(parsed, parse_json(text, at));
  const Json document(parsed, at, "");
  AUTOPAR_TRY(version_field, document.at("version"));
  AUTOPAR_TRY(version, version_field.integer());
  if (version != 1) return version_field.expected("version 1");
  TrainingRoles roles;
  AUTOPAR_TRY(optimizer, document.at("optimizer"));
  AUTOPAR_TRY(name_field, optimizer.at("name"));
  AUTOPAR_TRY(name, name_field.text());
  roles.optimizer = name;
  AUTOPAR_TRY(rate_field, optimizer.find("learning_rate"));
  if (rate_field) {
    AUTOPAR_TRY(rate, rate_field->number());
    roles.learning_rate = rate;
  }
  AUTOPAR_TRY(precision_field, document.at("precision"));
  AUTOPAR_TRY(precision, precision_field.text());
  roles.precision = precision;
  for (auto [key, names] : {std::pair("data", &roles.data),
                            {"parameters", &roles.parameters},
                            {"states", &roles.states},
                            {"statistics", &roles.statistics},
                            {"accumulators", &roles.accumulators},
                            {"frozen", &roles.frozen},
                            {"unreached", &roles.unreached}}) {
    AUTOPAR_RETURN_IF_ERROR(read_names(document, key, *names));
  }
  return roles;
}

Result<std::optional<TrainingRoles>> training_roles_of(const ImportedModel& model) {
  const auto training = model.metadata.find(kTrainingKey);
  if (training == model.metadata.end()) return std::optional<TrainingRoles>();
  AUTOPAR_TRY(roles, parse_training_roles(training->second, model.path));
  return std::optional<TrainingRoles>(std::move(roles));
}

}  // namespace autopar
