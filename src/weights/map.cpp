// External data in memory without reading it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "autopar/errors.hpp"
#include "weights/safetensors.hpp"
#include "weights/tensors.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

struct MappedBytes {
  std::shared_ptr<const void> data;
  Bytes size = 0;
};

Result<MappedBytes> map_file(const std::string& path) {
  const auto error = [&](int number) { return system_error(path + ": cannot be read", number); };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return error(errno);
  struct stat status {};
  if (::fstat(file, &status) != 0 || status.st_size == 0) {
    const int number = errno;
    ::close(file);
    return status.st_size == 0 ? input_error(path + ": is empty") : error(number);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  // Private and writable: kernels that write over what they are given change pages of their own.
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  const int number = errno;
  ::close(file);
  if (data == MAP_FAILED) return error(number);
  return MappedBytes{std::shared_ptr<const void>(
                         data, [size](const void* p) { ::munmap(const_cast<void*>(p), size); }),
                     static_cast<Bytes>(size)};
}

// Files that are mapped once, by path.
class Mapper {
 public:
  Result<MappedTensor> tensor(const std::string& path, Bytes offset, DType dtype,
                              const Shape& shape, const std::string& name) {
    auto found = files_.find(path);
    if (found == files_.end()) {
      AUTOPAR_TRY(file, map_file(path));
      found = files_.emplace(path, std::move(file)).first;
    }
    const Bytes bytes = element_count(shape) * size_of(dtype);
    if (offset + bytes > found->second.size) {
      return input_error(path + ": ends at byte " + std::to_string(found->second.size) +
                         ", weight '" + name + "' at byte " + std::to_string(offset + bytes));
    }
    return MappedTensor{dtype, shape, static_cast<const char*>(found->second.data.get()) + offset,
                        bytes};
  }
  std::vector<std::shared_ptr<const void>> take() {
    std::vector<std::shared_ptr<const void>> files;
    for (auto& entry : files_) files.push_back(std::move(entry.second.data));
    return files;
  }

 private:
  std::map<std::string, MappedBytes> files_;
};

// The folder of the plan itself, where `plan_path` may be that of a rank.
fs::path plan_folder(const PlanFile& plan, const std::string& plan_path) {
  const fs::path folder = fs::absolute(plan_path).parent_path();
  for (const Value& value : plan.plan.program.values) {
    const auto* external = std::get_if<ExternalData>(&value.data);
    if (external != nullptr && external->location == kWeightsFile) return folder.parent_path();
  }
  return folder;
}

}  // namespace

std::string rank_plan_path(const PlanFile& plan, const std::string& plan_path, std::int64_t rank) {
  if (!plan.metadata.sharded()) return plan_path;
  return (plan_folder(plan, plan_path) / rank_folder(rank) / "plan.onnx").string();
}

Result<MappedWeights> map_weights(const PlanFile& plan, const std::string& plan_path,
                                  std::int64_t rank) {
  MappedWeights mapped;
  Mapper files;
  const bool sharded = plan.metadata.sharded();
  const fs::path folder = sharded ? fs::path(rank_plan_path(plan, plan_path, rank)).parent_path()
                                  : fs::path(plan_path).parent_path();
  for (const Value& value : plan.plan.program.values) {
    const auto* external = std::get_if<ExternalData>(&value.data);
    if (external == nullptr) continue;
    const fs::path file = folder / (sharded ? kWeightsFile : external->location);
    AUTOPAR_TRY(tensor, files.tensor(file.string(), external->offset, value.dtype, value.shape,
                                     value.name));
    mapped.initializers[value.name] = tensor;
  }
  if (sharded) {
    const std::string path = (folder / kWeightsFile).string();
    AUTOPAR_TRY(head, read_safetensors(path));
    for (const BoundaryValue& input : plan.plan.inputs) {
      for (const SafetensorsEntry& entry : head.entries) {
        if (entry.name != input.name) continue;
        AUTOPAR_TRY(tensor, files.tensor(path, entry.offset, entry.dtype, entry.shape, entry.name));
        mapped.inputs[entry.name] = tensor;
      }
    }
  }
  mapped.files = files.take();
  return mapped;
}

}  // namespace autopar
