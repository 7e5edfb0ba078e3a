// JSON values that know where they stand, so that every message can say it; and the small pieces
// from which JSON is written by hand where the layout of the lines matters.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autopar/layout.hpp"
#include "json/parse.hpp"

namespace autopar {

// A view into a parsed document, which must outlive it.
class Json {
 public:
  Json(const nlohmann::json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  Result<Json> at(const std::string& key) const;  // error where it is missing
  Result<std::optional<Json>> find(const std::string& key) const;
  Result<std::vector<Json>> items() const;
  Result<std::vector<std::pair<std::string, Json>>> members() const;
  Result<std::string> text() const;
  Result<bool> boolean() const;
  Result<std::int64_t> integer() const;  // also 8.0 and 8e10
  Result<double> number() const;         // finite
  Result<std::vector<std::int64_t>> integers() const;
  bool is_null() const { return value_->is_null(); }

  // "file: path: expected X, found Y".
  Error expected(const std::string& what) const;
  Error error(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};
Result<std::int64_t> positive_integer(const Json& owner, const std::string& key);
// The document's format and version must be these.
Status check_format(const Json& document, const std::string& format, std::int64_t version);

std::string json_text(const std::string& text);  // quoted and escaped
std::string json_number(double value);           // reads back as the same double
std::string json_list(const std::vector<std::int64_t>& values);
std::string json_list(const std::vector<std::vector<std::int64_t>>& values);
// `"spec": "[{ib}]", "device_matrix": [2, 4], "tensor_map": [1]`, without braces around it.
std::string json_tensor_map(const Spec& spec, const Mesh& mesh);
std::string json_mesh(const Mesh& mesh, const std::vector<std::string>& tier_names);

}  // namespace autopar
