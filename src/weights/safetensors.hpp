// safetensors: 8 bytes with the length of the header, a JSON header padded with spaces to 8 bytes,
// the tensors one after the other. https://github.com/huggingface/safetensors
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  Bytes offset = 0;  // in the file
  Bytes bytes() const { return element_count(shape) * size_of(dtype); }
};

// The start of a file and where its tensors go: in the order in which the safetensors package
// writes them, large elements first, so that all are aligned.
struct SafetensorsLayout {
  std::string head;  // length, header, padding
  std::vector<SafetensorsEntry> entries;
  Bytes size = 0;  // of the file
};
// Errors: names that safetensors cannot have.
Result<SafetensorsLayout> layout_safetensors(std::vector<SafetensorsEntry> entries,
                                             const std::map<std::string, std::string>& metadata);

struct SafetensorsFile {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};
// Reads the head only. Errors name the file and the tensor.
Result<SafetensorsFile> read_safetensors(const std::string& path);

}  // namespace autopar
