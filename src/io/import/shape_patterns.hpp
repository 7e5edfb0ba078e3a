// Shapes of a node's inputs, held against patterns of words: sizes that must be the same have the
// same word.
//
//   ShapeCheck check(schema, node, inputs, outputs);
//   check.match(1, "batch channels ...")
#pragma once

#include <onnx/defs/schema.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/import/infer.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {

// Attributes of a node, as they stand there.
std::int64_t int_of(const onnx::NodeProto& node, const std::string& name, std::int64_t otherwise);
std::vector<std::int64_t> ints_of(const onnx::NodeProto& node, const std::string& name);
// The largest number where the product is larger.
std::int64_t bounded_product(std::int64_t a, std::int64_t b);
std::vector<std::string> split_at(const std::string& text, char separator);

// The shapes of a node's inputs, held against patterns of words, one for each dimension:
//   channels          the same size wherever the word stands
//   group*channels    a product; words that name an attribute have its value, numbers their own
//   channels?         that, or 1
//   _                 any size
//   d...              what is left, called d0, d1, ...; without a name any sizes
//   # channels        that, or one number
class ShapeCheck {
 public:
  ShapeCheck(const onnx::OpSchema& schema, const onnx::NodeProto& node,
             const std::vector<NodeInput>& inputs, const std::vector<onnx::TypeProto>& outputs)
      : schema_(schema), node_(node), inputs_(inputs), outputs_(outputs) {}

  const onnx::NodeProto& node() const { return node_; }
  std::int64_t version() const { return schema_.since_version(); }
  // Of an input whose numbers are known.
  std::optional<std::vector<std::int64_t>> ints(std::size_t port) const {
    const Tensor* tensor = port < inputs_.size() ? inputs_[port].data : nullptr;
    if (tensor == nullptr || element_count(tensor->shape) > kMaxOperandElements) {
      return std::nullopt;
    }
    return int_values(*tensor);
  }
  std::optional<Shape> output() const {
    return outputs_.empty() ? std::nullopt : static_shape(outputs_.front());
  }
  std::optional<Shape> shape(std::size_t port) const {
    if (port >= inputs_.size() || inputs_[port].type == nullptr) return std::nullopt;
    return static_shape(*inputs_[port].type);
  }
  std::string name_of_input(std::size_t port) const {
    const auto& formals = schema_.inputs();
    return "input " + std::to_string(port) + " (" +
           formals[std::min(port, formals.size() - 1)].GetName() + ")";
  }
  void set(const std::string& word, std::int64_t value, const std::string& reason) {
    sizes_[word] = {value, {reason}};
  }
  void set_rest(const std::string& word, std::size_t count) { rests_[word] = count; }

  Status match(std::size_t port, const std::string& pattern) {
    const auto found = shape(port);
    if (!found) return Ok{};
    std::vector<std::string> words = split_at(pattern, ' ');
    const bool or_number = !words.empty() && words.front() == "#";
    if (or_number) words.erase(words.begin());
    if (or_number && found->size() <= 1 && element_count(*found) == 1) return Ok{};
    name_rest(found->size(), words);
    if (words.size() != found->size()) {
      return input_error("its " + name_of_input(port) + " is " + to_text(*found) + ", of " +
                         std::to_string(found->size()) + " dimensions; expected " +
                         expected_rank(pattern, words.size()));
    }
    for (std::size_t d = 0; d < words.size(); ++d) {
      AUTOPAR_RETURN_IF_ERROR(match_dim(port, d, (*found)[d], words[d]));
    }
    return Ok{};
  }

 private:
  struct Size {
    std::int64_t value = 1;
    std::vector<std::string> reasons;
  };

  // The words of "d..." in place of it: as many as there were before, or as are left.
  void name_rest(std::size_t rank, std::vector<std::string>& words) {
    if (words.empty() || words.back().find("...") == std::string::npos) return;
    const std::string word = words.back().substr(0, words.back().size() - 3);
    words.pop_back();
    std::size_t count = rank > words.size() ? rank - words.size() : 0;
    if (!word.empty()) count = rests_.emplace(word, count).first->second;
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back(word.empty() ? "_" : word + std::to_string(i));
    }
  }

  static std::string expected_rank(const std::string& pattern, std::size_t count) {
    if (pattern == "#") return "one number";
    if (pattern.rfind("# ", 0) == 0)
      return "one number, or " + expected_rank(pattern.substr(2), count);
    const bool open = pattern.find(" ...") != std::string::npos;
    return std::string(open ? "at least " : "") + std::to_string(count) + ": " + pattern;
  }

  std::optional<Size> size_of(const std::string& word) const {
    if (word[0] >= '0' && word[0] <= '9') return Size{std::stoll(word), {}};
    if (const auto found = sizes_.find(word); found != sizes_.end()) return found->second;
    const auto attribute = schema_.attributes().find(word);
    if (attribute == schema_.attributes().end()) return std::nullopt;
    const auto& standard = attribute->second.default_value;
    const std::int64_t value = int_of(node_, word, standard.has_i() ? standard.i() : 0);
    if (value == 0) return std::nullopt;  // nothing is said
    return Size{value, {word + " is " + std::to_string(value)}};
  }

  Status match_dim(std::size_t port, std::size_t d, std::int64_t found, std::string word) {
    if (word == "_") return Ok{};
    const bool may_be_one = word.back() == '?';
    if (may_be_one) word.pop_back();
    if (may_be_one && found == 1) return Ok{};
    const std::string where = "dimension " + std::to_string(d) + " of ";
    const std::string is = " is " + std::to_string(found);
    Size product;
    std::string unknown;
    for (const std::string& factor : split_at(word, '*')) {
      const auto size = size_of(factor);
      if (!size) {
        unknown = factor;
        continue;
      }
      product.value = bounded_product(product.value, size->value);
      for (const std::string& reason : size->reasons) {
        if (std::count(product.reasons.begin(), product.reasons.end(), reason) == 0) {
          product.reasons.push_back(reason);
        }
      }
    }
    if (!unknown.empty() && product.value > 0 && found % product.value == 0) {
      std::vector<std::string> reasons = {where + name_of_input(port) + is};
      reasons.insert(reasons.end(), product.reasons.begin(), product.reasons.end());
      sizes_[unknown] = {found / product.value, std::move(reasons)};
      return Ok{};
    }
    if (unknown.empty() && found == product.value) return Ok{};
    std::string message = where + "its " + name_of_input(port) + is + "; expected ";
    message += (unknown.empty() ? "" : "a multiple of ") + std::to_string(product.value);
    message += (may_be_one && product.value != 1 ? " or 1 (" : " (") + word + ")";
    for (std::size_t i = 0; i < product.reasons.size(); ++i) {
      message += (i == 0 ? ", since " : " and ") + product.reasons[i];
    }
    return input_error(message);
  }

  const onnx::OpSchema& schema_;
  const onnx::NodeProto& node_;
  const std::vector<NodeInput>& inputs_;
  const std::vector<onnx::TypeProto>& outputs_;
  std::map<std::string, Size> sizes_;
  std::map<std::string, std::size_t> rests_;
};

}  // namespace autopar
