#include "weights/step_weights.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "weights/rank_files.hpp"
#include "weights/safetensors.hpp"

namespace autopar {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFilesOfAnotherPlan =
    "; the files are of another plan, with other stages or layouts: write them anew by `autopar "
    "reshard-weights --from WEIGHTS --to DIR`, where WEIGHTS is the folder that they are of, or a "
    "file";

std::int64_t position_in(const StepPlace& place, std::int64_t rank) {
  const auto at = std::find(place.ranks->begin(), place.ranks->end(), rank);
  return at - place.ranks->begin();
}

Box box_on(const StepPlace& place, std::int64_t rank) {
  return box_of(place.value, *place.mesh, position_in(place, rank));
}

// Of a rank's file: where its slices begin, per value. Another layout may have slices of the same
// shapes.
constexpr const char* kSlices = "autopar.slices";

std::string slices_text(const std::map<std::string, StepPlace>& places, std::int64_t rank) {
  nlohmann::ordered_json slices = nlohmann::ordered_json::object();
  for (const auto& [name, place] : places) slices[name] = box_on(place, rank).offset;
  return slices.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Files of before they said so are taken by their shapes.
Status check_slices(const SafetensorsFile& file, const std::string& path,
                    const std::map<std::string, StepPlace>& places, std::int64_t rank) {
  const auto said = file.metadata.find(kSlices);
  if (said == file.metadata.end()) return Ok{};
  const auto slices = nlohmann::json::parse(said->second, nullptr, false);
  for (const SafetensorsEntry& entry : file.entries) {
    const Shape expected = box_on(places.at(entry.name), rank).offset;
    const nlohmann::json found =
        slices.is_object() ? slices.value(entry.name, nlohmann::json()) : nlohmann::json();
    if (found.is_null() || found == nlohmann::json(expected)) continue;
    return input_error(path + ": '" + entry.name + "' begins at " + found.dump() + " of the whole" +
                       ", expected " + nlohmann::json(expected).dump() + kFilesOfAnotherPlan);
  }
  return Ok{};
}

// What each program reads that no other makes, and that is no data.
class LayoutOf {
 public:
  LayoutOf(const Step& step, const std::vector<const Plan*>& plans) : step_(step), plans_(plans) {}

  StepLayout run(TrainingRoles roles) {
    std::set<std::string> made, data(roles.data.begin(), roles.data.end());
    for (const MicroInput& input : step_.micro_inputs) data.insert(input.name);
    for (const Plan* plan : plans_) {
      for (const BoundaryValue& output : plan->outputs) made.insert(output.name);
    }
    StepLayout layout;
    layout.of_rank.resize(static_cast<std::size_t>(step_.world_size));
    // Those who give the next values come first.
    for (const bool updates : {true, false}) {
      for (std::size_t p = 0; p < plans_.size(); ++p) {
        const std::set<std::string> held = held_by(plans_[p]->program);
        for (const BoundaryValue& input : plans_[p]->inputs) {
          const bool is_stored = made.count(input.name) == 0 && data.count(input.name) == 0 &&
                                 held.count(input.name) == 0 && !is_accumulator(input.name) &&
                                 is_known(roles, input.name, made);
          if (!is_stored || updates != gives_next(*plans_[p], input.name)) continue;
          add(p, input, layout);
        }
      }
    }
    layout.roles = std::move(roles);
    return layout;
  }

 private:
  // Inputs that the program has itself, unless it is fed with them.
  static std::set<std::string> held_by(const Graph& program) {
    std::set<std::string> names;
    for (ValueId input : program.inputs) {
      if (program.value(input).has_data()) names.insert(program.value(input).name);
    }
    return names;
  }

  static bool gives_next(const Plan& plan, const std::string& name) {
    return std::any_of(plan.outputs.begin(), plan.outputs.end(),
                       [&](const BoundaryValue& output) { return output.name == next_name(name); });
  }

  // Where the step says what its inputs are, all but data is stored.
  static bool is_known(const TrainingRoles& roles, const std::string& name,
                       const std::set<std::string>& made) {
    return made.count(next_name(name)) != 0 || !roles.optimizer.empty();
  }

  void add(std::size_t p, const BoundaryValue& input, StepLayout& layout) const {
    const StepPlace place{input, &plans_[p]->mesh, &step_.programs[p].ranks};
    layout.whole.emplace(input.name, place);
    for (const std::int64_t rank : *place.ranks) {
      layout.of_rank[static_cast<std::size_t>(rank)].emplace(input.name, place);
    }
  }

  const Step& step_;
  const std::vector<const Plan*>& plans_;
};

// One rank's file against what the rank reads.
Result<SafetensorsFile> read_rank_file(const StepLayout& layout, const std::string& path,
                                       std::int64_t rank) {
  AUTOPAR_TRY(file, read_safetensors(path));
  const auto& expected = layout.of_rank[static_cast<std::size_t>(rank)];
  std::set<std::string> found;
  for (const SafetensorsEntry& entry : file.entries) {
    const auto place = expected.find(entry.name);
    if (place == expected.end()) {
      return input_error(path + ": holds '" + entry.name + "', which rank " + std::to_string(rank) +
                         " of the step does not read" + kFilesOfAnotherPlan);
    }
    const BoundaryValue& value = place->second.value;
    const Box box = box_on(place->second, rank);
    if (entry.dtype != value.dtype || entry.shape != box.extent) {
      return input_error(path + ": '" + entry.name + "' is " + type_text(entry.dtype, entry.shape) +
                         ", expected " + type_text(value.dtype, box.extent) + kFilesOfAnotherPlan);
    }
    found.insert(entry.name);
  }
  AUTOPAR_RETURN_IF_ERROR(check_slices(file, path, expected, rank));
  for (const auto& [name, place] : expected) {
    if (found.count(name) != 0 || has_name(layout.roles.states, name)) continue;
    return input_error(path + ": lacks '" + name + "', which rank " + std::to_string(rank) +
                       " of the step reads" + kFilesOfAnotherPlan);
  }
  return file;
}

Status check_complete(const StepLayout& layout, const StoredTensors& stored,
                      const std::string& from) {
  std::vector<std::string> missing, missing_states;
  bool has_states = false;
  for (const auto& [name, place] : layout.whole) {
    const bool is_state = has_name(layout.roles.states, name);
    const auto found = stored.find(name);
    if (found == stored.end()) {
      if (!layout.roles.follows(name)) (is_state ? missing_states : missing).push_back(name);
      continue;
    }
    has_states = has_states || (is_state && !layout.roles.follows(name));
    const StoredTensor& tensor = found->second;
    const DType dtype = tensor.narrow.value_or(tensor.dtype);
    if (dtype == place.value.dtype && tensor.shape == place.value.shape) continue;
    return input_error(from + ": '" + name + "' is " + type_text(tensor.dtype, tensor.shape) +
                       ", the step expects " + type_text(place.value.dtype, place.value.shape));
  }
  if (has_states) missing.insert(missing.end(), missing_states.begin(), missing_states.end());
  if (missing.empty()) return Ok{};
  return input_error(from + ": lacks '" + missing.front() + "'" +
                     (missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more"
                                         : std::string()) +
                     " of the step; expected all parameters, and all states or none; try another "
                     "file (of `search` --weights-from FILE, of `reshard-weights` --from FILE)");
}

class RankWriter {
 public:
  RankWriter(const StepLayout& layout, const StoredTensors& stored, const std::string& folder,
             UnfinishedFiles& files)
      : layout_(layout), stored_(stored), folder_(folder), files_(files) {}

  Result<RankFolders> run() {
    const auto world = static_cast<std::int64_t>(layout_.of_rank.size());
    for (std::int64_t rank = 0; rank < world; ++rank) AUTOPAR_RETURN_IF_ERROR(reserve(rank));
    for (const auto& [name, place] : layout_.whole) {
      if (stored_.count(name) != 0) AUTOPAR_RETURN_IF_ERROR(write(name));
    }
    std::error_code ignored;
    if (fs::exists(weights_file(folder_, world), ignored)) {
      written_.warnings.push_back(weights_file(folder_, world) +
                                  " and those after it are of another plan: this one has " +
                                  std::to_string(world) + " ranks");
    }
    return std::move(written_);
  }

 private:
  Status reserve(std::int64_t rank) {
    std::vector<SafetensorsEntry> entries;
    const auto& places = layout_.of_rank[static_cast<std::size_t>(rank)];
    for (const auto& [name, place] : places) {
      if (stored_.count(name) == 0) continue;
      entries.push_back({name, place.value.dtype, box_on(place, rank).extent});
    }
    AUTOPAR_TRY(
        layout,
        layout_safetensors(
            std::move(entries),
            {{"autopar.rank", five_digits(rank)},
             {"autopar.world_size", five_digits(static_cast<std::int64_t>(layout_.of_rank.size()))},
             {kSlices, slices_text(places, rank)}}));
    const std::string path = weights_file(folder_, rank);
    AUTOPAR_TRY(part, add_reserved(files_, path, layout.size));
    AUTOPAR_RETURN_IF_ERROR(write_bytes(part, 0, layout.head));
    for (const SafetensorsEntry& entry : layout.entries) at_[{entry.name, rank}] = entry.offset;
    parts_.push_back(part);
    written_.files.push_back(path);
    written_.bytes_per_rank = std::max(written_.bytes_per_rank, layout.size);
    return Ok{};
  }

  // Slices of one extent at a time.
  Status write(const std::string& name) {
    std::map<Shape, std::map<Box, std::vector<std::int64_t>>> ranks_of;
    for (std::size_t r = 0; r < layout_.of_rank.size(); ++r) {
      const auto place = layout_.of_rank[r].find(name);
      if (place == layout_.of_rank[r].end()) continue;
      const auto rank = static_cast<std::int64_t>(r);
      const Box box = box_on(place->second, rank);
      ranks_of[box.extent][box].push_back(rank);
    }
    const StoredTensor& tensor = stored_.at(name);
    for (const auto& [extent, boxes] : ranks_of) {
      std::vector<Box> wanted;
      std::vector<const std::vector<std::int64_t>*> ranks;
      for (const auto& [box, of_box] : boxes) {
        wanted.push_back(box);
        ranks.push_back(&of_box);
      }
      const auto put = [&](std::size_t box, Bytes at, std::string_view bytes) -> Status {
        for (const std::int64_t rank : *ranks[box]) {
          AUTOPAR_RETURN_IF_ERROR(write_bytes(parts_[static_cast<std::size_t>(rank)],
                                              at_.at({name, rank}) + at, bytes));
        }
        return Ok{};
      };
      AUTOPAR_RETURN_IF_ERROR(cut_as_read(tensor, wanted, put));
    }
    return Ok{};
  }

  const StepLayout& layout_;
  const StoredTensors& stored_;
  const std::string folder_;
  UnfinishedFiles& files_;
  std::vector<std::string> parts_;  // by rank: under which name it is written
  std::map<std::pair<std::string, std::int64_t>, Bytes> at_;
  RankFolders written_;
};

}  // namespace

std::vector<std::string> StepLayout::not_trained() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : whole) {
    const bool is_trained = has_name(roles.parameters, name) || has_name(roles.states, name) ||
                            has_name(roles.statistics, name);
    if (!is_trained && !roles.optimizer.empty()) names.push_back(name);
  }
  return names;
}

Result<StepLayout> step_layout(const Step& step, const std::vector<const Plan*>& plans,
                               const PlanMetadata& metadata, const std::string& where) {
  TrainingRoles roles;
  if (!metadata.training.empty()) {
    AUTOPAR_TRY(said, parse_training_roles(metadata.training, where));
    roles = std::move(said);
  } else if (metadata.data) {
    roles.optimizer = "none";
    roles.data = *metadata.data;
  }
  return LayoutOf(step, plans).run(std::move(roles));
}

Result<StepFolder> read_step_folder(const std::string& folder) {
  AUTOPAR_TRY(step, read_step(folder));
  AUTOPAR_TRY(files, read_step_programs(folder, step));
  StepFolder found{std::move(step), std::move(files), {}};
  std::vector<const Plan*> plans;
  for (const PlanFile& file : found.files) plans.push_back(&file.plan);
  const PlanFile& first = found.files.front();
  AUTOPAR_TRY(layout, step_layout(found.step, plans, first.metadata, first.path));
  found.layout = std::move(layout);
  return found;
}

bool has_rank_files(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(weights_file(folder, 0), ignored);
}

Result<StoredTensors> stored_in_step(const StepLayout& layout, const std::string& folder) {
  StoredTensors tensors;
  std::map<std::string, std::map<Box, std::size_t>> pieces;
  std::map<std::string, std::size_t> holders;
  for (std::size_t r = 0; r < layout.of_rank.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    const std::string path = weights_file(folder, rank);
    AUTOPAR_TRY(file, read_rank_file(layout, path, rank));
    for (const SafetensorsEntry& entry : file.entries) {
      const StepPlace& place = layout.whole.at(entry.name);
      const auto& ranks = *place.ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      ++holders[entry.name];
      StoredTensor& tensor = tensors[entry.name];
      if (tensor.pieces.empty()) tensor = {entry.name, place.value.dtype, place.value.shape, {}};
      const Box box = box_on(place, rank);
      const auto [at, added] = pieces[entry.name].try_emplace(box, tensor.pieces.size());
      if (added) tensor.pieces.push_back({box, {}});
      tensor.pieces[at->second].places.push_back(
          {.path = path, .offset = entry.offset, .rank = rank});
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.box < b.box; });
    if (holders[name] == layout.whole.at(name).ranks->size()) continue;
    return input_error(folder + ": " + std::to_string(holders[name]) + " of the " +
                       std::to_string(layout.whole.at(name).ranks->size()) + " ranks that hold '" +
                       name + "' have it in their files" + kFilesOfAnotherPlan);
  }
  return tensors;
}

void narrow_to_step(const StepLayout& layout, StoredTensors& stored) {
  for (auto& [name, tensor] : stored) {
    const auto place = layout.whole.find(name);
    if (place == layout.whole.end() || tensor.dtype != DType::kFloat32) continue;
    const DType read = place->second.value.dtype;
    if (read == DType::kFloat16 || read == DType::kBFloat16) tensor.narrow = read;
  }
}

Result<std::vector<BoundaryValue>> inputs_in(const Plan& plan, const std::string& training,
                                             bool narrows, const std::string& from,
                                             StoredTensors& stored) {
  StepLayout layout;
  AUTOPAR_TRY(roles, parse_training_roles(training, from));
  layout.roles = std::move(roles);
  for (const BoundaryValue& input : plan.inputs) {
    if (!has_name(layout.roles.data, input.name)) layout.whole[input.name] = {input};
  }
  if (narrows) narrow_to_step(layout, stored);
  AUTOPAR_RETURN_IF_ERROR(check_complete(layout, stored, from));
  std::vector<BoundaryValue> inputs;
  for (const BoundaryValue& input : plan.inputs) {
    if (layout.whole.count(input.name) != 0 && stored.count(input.name) != 0) {
      inputs.push_back(input);
    }
  }
  return inputs;
}

Result<RankFolders> write_step_ranks(const StepLayout& layout, const StoredTensors& stored,
                                     const std::string& from, const std::string& folder,
                                     UnfinishedFiles& files) {
  AUTOPAR_RETURN_IF_ERROR(check_complete(layout, stored, from));
  return RankWriter(layout, stored, folder, files).run();
}

}  // namespace autopar
