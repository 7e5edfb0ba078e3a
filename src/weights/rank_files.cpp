#include "weights/rank_files.hpp"

#include <filesystem>
#include <map>

#include "autopar/errors.hpp"
#include "weights/safetensors.hpp"
#include "weights/stores.hpp"

namespace autopar {

namespace fs = std::filesystem;

std::string five_digits(std::int64_t rank) {
  const std::string number = std::to_string(rank);
  return std::string(number.size() < 5 ? 5 - number.size() : 0, '0') + number;
}

std::string rank_folder(std::int64_t rank) { return "rank" + five_digits(rank); }

std::string weights_file(const std::string& folder, std::int64_t rank) {
  return (fs::path(folder) / rank_folder(rank) / kWeightsFile).string();
}

Result<std::string> add_reserved(UnfinishedFiles& files, const std::string& path, Bytes size) {
  AUTOPAR_TRY(part, files.add(path));
  AUTOPAR_RETURN_IF_ERROR(reserve_file(part, size));
  return std::move(part);
}

Status add_link(UnfinishedFiles& files, const std::string& path, const std::string& part) {
  AUTOPAR_TRY(link, files.add(path));
  std::error_code failed;
  fs::create_hard_link(part, link, failed);
  if (failed) fs::copy_file(part, link, failed);
  if (failed) return system_error(path + ": cannot be written", failed.value());
  return Ok{};
}

namespace {

// No rank's folder is called so. ONNX's checker does not look for files whose name begins with #
// where it checks a program in memory.
constexpr const char* kAnyRankFolder = "#rankNNNNN";

// What of the tensors goes to the ranks' files.
struct Sharded {
  BoundaryValue whole;
  ValueId initializer;  // invalid: a graph input
};

// Slices of a tensor by box; every rank holds one.
struct Slices {
  std::vector<Box> boxes;
  std::vector<std::vector<std::int64_t>> ranks;  // by box
};

Slices slices_of(const BoundaryValue& whole, const Mesh& mesh) {
  std::map<Box, std::size_t> known;
  Slices slices;
  for (std::int64_t rank = 0; rank < mesh.size(); ++rank) {
    Box box = box_of(whole, mesh, rank);
    const auto [at, added] = known.try_emplace(box, slices.boxes.size());
    if (added) {
      slices.boxes.push_back(std::move(box));
      slices.ranks.emplace_back();
    }
    slices.ranks[at->second].push_back(rank);
  }
  return slices;
}

// All heads have one length.
Result<SafetensorsLayout> layout_of(const std::vector<Sharded>& tensors, const Mesh& mesh,
                                    std::int64_t rank) {
  std::vector<SafetensorsEntry> entries;
  for (const Sharded& tensor : tensors) {
    const BoundaryValue& whole = tensor.whole;
    entries.push_back({whole.name, whole.dtype, local_shape(whole.spec, whole.shape, mesh)});
  }
  return layout_safetensors(std::move(entries), {{"autopar.rank", five_digits(rank)},
                                                 {"autopar.world_size", five_digits(mesh.size())}});
}

class FolderWriter {
 public:
  FolderWriter(ShardedProgram program, PlanMetadata metadata, const StoredTensors& stored,
               std::string folder, UnfinishedFiles& files)
      : program_(std::move(program)),
        mesh_(program_.plan.mesh),
        metadata_(std::move(metadata)),
        stored_(stored),
        folder_(std::move(folder)),
        files_(files) {
    metadata_.weights = "sharded";
    metadata_.weights_io = program_.weights;
  }

  Result<RankFolders> run(const std::vector<BoundaryValue>& inputs) {
    AUTOPAR_RETURN_IF_ERROR(place_weights());
    for (const BoundaryValue& input : inputs) sharded_.push_back({input, ValueId()});
    AUTOPAR_TRY(layout, layout_of(sharded_, mesh_, 0));
    for (const SafetensorsEntry& entry : layout.entries) entries_[entry.name] = &entry;
    AUTOPAR_RETURN_IF_ERROR(reserve(layout));
    for (const Sharded& tensor : sharded_) AUTOPAR_RETURN_IF_ERROR(write(tensor));
    written_.bytes_per_rank = layout.size;
    AUTOPAR_RETURN_IF_ERROR(write_plans());
    replace_plans();
    warn_of_others();
    return std::move(written_);
  }

 private:
  std::string in_rank(std::int64_t rank, const char* name) const {
    return (fs::path(folder_) / rank_folder(rank) / name).string();
  }

  // Small weights into the program, the others into the ranks' files.
  Status place_weights() {
    for (std::size_t w = 0; w < program_.weights.size(); ++w) {
      const BoundaryValue& whole = program_.weights[w];
      Value& value = program_.plan.program.value(program_.initializers[w]);
      value.shape = local_shape(whole.spec, whole.shape, mesh_);
      const bool small = is_replicated(whole.spec) && value.bytes() <= kInlineWeightBytes;
      if (value.bytes() == 0) {
        value.data = Tensor{value.dtype, value.shape, ""};
      } else if (small) {
        AUTOPAR_TRY(tensor, read_tensor(stored_.at(whole.name)));
        value.data = std::move(tensor);
      } else {
        sharded_.push_back({whole, program_.initializers[w]});
      }
    }
    return Ok{};
  }

  Status reserve(const SafetensorsLayout& first) {
    for (std::int64_t rank = 0; rank < mesh_.size(); ++rank) {
      AUTOPAR_TRY(path, add_reserved(files_, in_rank(rank, kWeightsFile), first.size));
      AUTOPAR_TRY(layout, layout_of(sharded_, mesh_, rank));
      AUTOPAR_CHECK(layout.head.size() == first.head.size(), "heads of one length");
      AUTOPAR_RETURN_IF_ERROR(write_bytes(path, 0, layout.head));
      temporary_.push_back(path);
      written_.files.push_back(in_rank(rank, kWeightsFile));
    }
    return Ok{};
  }

  Status write(const Sharded& tensor) {
    const Slices slices = slices_of(tensor.whole, mesh_);
    const Bytes start = entries_.at(tensor.whole.name)->offset;
    const auto put = [&](std::size_t box, Bytes at, std::string_view bytes) -> Status {
      for (std::int64_t rank : slices.ranks[box]) {
        AUTOPAR_RETURN_IF_ERROR(
            write_bytes(temporary_[static_cast<std::size_t>(rank)], start + at, bytes));
      }
      return Ok{};
    };
    return cut_as_read(stored_.at(tensor.whole.name), slices.boxes, put);
  }

  Status write_plans() {
    const std::string whole = (fs::path(folder_) / "plan.onnx").string();
    const std::string first = in_rank(0, "plan.onnx");
    AUTOPAR_RETURN_IF_ERROR(write_plan_at(first, kWeightsFile));
    written_.files.push_back(first);
    for (std::int64_t rank = 1; rank < mesh_.size(); ++rank) {
      const std::string path = in_rank(rank, "plan.onnx");
      AUTOPAR_RETURN_IF_ERROR(add_link(files_, path, files_.part_of(first)));
      written_.files.push_back(path);
    }
    AUTOPAR_RETURN_IF_ERROR(write_plan_at(whole, std::string(kAnyRankFolder) + "/" + kWeightsFile));
    written_.files.push_back(whole);
    return Ok{};
  }

  Status write_plan_at(const std::string& path, const std::string& location) {
    for (const Sharded& tensor : sharded_) {
      if (!tensor.initializer.valid()) continue;
      const SafetensorsEntry& entry = *entries_.at(tensor.whole.name);
      program_.plan.program.value(tensor.initializer).data =
          ExternalData{location, entry.offset, entry.bytes()};
    }
    const auto warnings = write_plan(program_.plan, metadata_, path, "", files_);
    if (!warnings) return warnings.error();
    return Ok{};
  }

  // A plan of before would find weights that are not its own: it goes first.
  void replace_plans() {
    files_.replace((fs::path(folder_) / "plan.onnx").string());
    for (std::int64_t rank = 0; rank < mesh_.size(); ++rank) {
      files_.replace(in_rank(rank, "plan.onnx"));
    }
  }

  void warn_of_others() {
    std::error_code ignored;
    const std::string other = weights_file(folder_, mesh_.size());
    if (!fs::exists(other, ignored)) return;
    written_.warnings.push_back(other + " and those after it are of another plan: this one has " +
                                std::to_string(mesh_.size()) + " ranks");
  }

  ShardedProgram program_;
  const Mesh mesh_;
  PlanMetadata metadata_;
  const StoredTensors& stored_;
  const std::string folder_;
  std::vector<Sharded> sharded_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  UnfinishedFiles& files_;
  std::vector<std::string> temporary_;  // by rank
  RankFolders written_;
};

}  // namespace

Result<RankFolders> write_rank_folders(ShardedProgram program,
                                       const std::vector<BoundaryValue>& inputs,
                                       PlanMetadata metadata, const StoredTensors& stored,
                                       const std::string& folder, UnfinishedFiles& files) {
  FolderWriter writer(std::move(program), std::move(metadata), stored, folder, files);
  return writer.run(inputs);
}

Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder) {
  UnfinishedFiles files;
  AUTOPAR_TRY(written, write_sharded_plan(plan, metadata, folder, model_folder, files));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  return std::move(written);
}

Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder,
                                       UnfinishedFiles& files) {
  return write_sharded_plan(plan, metadata, folder, model_folder, files, {}, {});
}

Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder,
                                       UnfinishedFiles& files,
                                       const std::vector<BoundaryValue>& inputs,
                                       StoredTensors stored) {
  AUTOPAR_TRY(tensors, stored_in_program(plan, model_folder));
  for (auto& [name, tensor] : tensors) stored.insert_or_assign(name, std::move(tensor));
  return write_rank_folders(shard_program(plan, {}), inputs, metadata, stored, folder, files);
}

}  // namespace autopar
