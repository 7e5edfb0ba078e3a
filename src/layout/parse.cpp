// The text form of a Spec, read back: "[" dim ("," dim)* "]" (("+"|"max"|"min"|"prod") dim)?
// with dim = "{" (axis ("," axis)*)? "}"; blanks are allowed between any two tokens.
#include <algorithm>
#include <optional>

#include "autopar/layout.hpp"

namespace autopar {

namespace {

class SpecReader {
 public:
  SpecReader(const std::string& text, const Mesh& mesh) : text_(text), mesh_(mesh) {}

  Result<Spec> read() {
    Spec spec;
    if (!take('[')) return wrong("'['");
    if (!take(']')) {
      do {
        AUTOPAR_TRY(axes, read_axes());
        spec.dims.push_back(axes);
      } while (take(','));
      if (!take(']')) return wrong("',' or ']'");
    }
    if (at_end()) return spec;
    const std::optional<Reduction> reduction = read_reduction();
    if (!reduction) return wrong("'+', 'max', 'min' or 'prod' before the partial axes");
    AUTOPAR_TRY(partial, read_axes());
    if (partial.empty()) return wrong("at least one partial axis");
    if (!at_end()) return wrong("the end");
    spec.partial = partial;
    std::sort(spec.partial.begin(), spec.partial.end());
    spec.reduction = *reduction;
    return spec;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    skip_blanks();
    const std::size_t end = std::min(text_.find_first_of(" \t,{}[]+", at_), text_.size());
    std::string result = text_.substr(at_, end - at_);
    at_ = end;
    return result;
  }
  std::optional<Reduction> read_reduction() {
    if (take('+')) return Reduction::kSum;
    const std::string name = word();
    for (Reduction r : {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
      if (name == name_of(r)) return r;
    }
    return std::nullopt;
  }
  Result<std::vector<int>> read_axes() {
    std::vector<int> axes;
    if (!take('{')) return wrong("'{'");
    if (take('}')) return axes;
    do {
      const std::string name = word();
      const int axis = mesh_.axis_index(name);
      if (axis < 0) return wrong_axis(name);
      if (!taken_.empty() && std::find(taken_.begin(), taken_.end(), axis) != taken_.end()) {
        return input_error("spec '" + text_ + "': mesh axis '" + name + "' is used twice");
      }
      taken_.push_back(axis);
      axes.push_back(axis);
    } while (take(','));
    if (!take('}')) return wrong("',' or '}'");
    return axes;
  }
  Error wrong(const std::string& expected) const {
    return input_error("spec '" + text_ + "': expected " + expected + " at position " +
                       std::to_string(at_) + "; write it like [{a},{b}] or [{a},{}] +{b}");
  }
  Error wrong_axis(const std::string& name) const {
    std::string known;
    for (const Axis& axis : mesh_.axes) known += (known.empty() ? "" : ", ") + axis.name;
    return input_error("spec '" + text_ + "': there is no mesh axis '" + name + "'; the mesh has " +
                       known);
  }

  const std::string& text_;
  const Mesh& mesh_;
  std::size_t at_ = 0;
  std::vector<int> taken_;
};

}  // namespace

Result<Spec> parse_spec(const std::string& text, const Mesh& mesh) {
  return SpecReader(text, mesh).read();
}

}  // namespace autopar
