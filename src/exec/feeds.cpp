#include "exec/feeds.hpp"

#include <algorithm>

namespace autopar {

void RankFeeds::add_parts(const BoundaryValue& input, const InputSource& source,
                          std::int64_t micro_batches, const char* data, Held& held) {
  if (!source.cut) {
    held.parts = {data};
    return;
  }
  const auto element_size = static_cast<std::size_t>(size_of(input.dtype));
  const std::size_t bytes = static_cast<std::size_t>(element_count(held.shape)) * element_size;
  // Local slices of all micro-batches, with a dimension for these.
  Shape all = held.shape;
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(*source.cut), micro_batches);
  Shape extent = all;
  extent[*source.cut] = 1;
  const bool in_one_piece =
      std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(*source.cut),
                  [](std::int64_t n) { return n == 1; });
  held.copies.reserve(static_cast<std::size_t>(micro_batches));
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    if (in_one_piece) {
      held.parts.push_back(data + static_cast<std::size_t>(m) * bytes);
      continue;
    }
    Shape offset(all.size(), 0);
    offset[*source.cut] = m;
    std::string& copy = held.copies.emplace_back(bytes, '\0');
    copy_block(extent, element_size, data, {all, offset}, copy.data(),
               {extent, Shape(extent.size(), 0)});
    held.parts.push_back(copy.data());
  }
}

Result<RankFeeds> RankFeeds::make(const RunRequest& request, const Wiring& wiring,
                                  const std::map<std::string, Distribution>& distributions,
                                  std::int64_t rank, const InputTensors* whole) {
  RankFeeds feeds;
  for (std::size_t p = 0; p < request.programs.size(); ++p) {
    const RunProgram& program = request.programs[p];
    auto& inputs = feeds.by_program_.emplace_back(program.inputs.size(), nullptr);
    const auto position = position_of(program, rank);
    if (!position) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const BoundaryValue& input = program.inputs[i];
      const InputSource& source = wiring.inputs[p][i];
      const bool is_given =
          source.kind == InputSource::Kind::kGiven || source.kind == InputSource::Kind::kState;
      if (!is_given) continue;
      const Block block = block_of(input, program, *position);
      auto [at, is_new] = feeds.held_.try_emplace(
          Key{input.name, block.offset, block.extent, source.cut.has_value()});
      Held& held = at->second;
      inputs[i] = &held;
      if (!is_new) continue;
      held.dtype = input.dtype;
      held.shape = block.extent;
      const RankPlace place{&program, *position};
      if (whole != nullptr) {
        const BoundaryValue value =
            source.cut ? with_micro_batches(input, *source.cut, wiring.micro_batches) : input;
        held.slice = std::make_shared<const Slice>(whole->at(input.name), value.shape, value.spec,
                                                   program.mesh, *position);
      } else {
        AUTOPAR_TRY(slice, slice_of_input(request, input, source, wiring.micro_batches,
                                          distributions, place));
        held.own = std::make_shared<const Tensor>(std::move(slice));
      }
      const char* data =
          held.slice ? static_cast<const char*>(held.slice->data()) : held.own->bytes.data();
      feeds.add_parts(input, source, wiring.micro_batches, data, held);
    }
  }
  return feeds;
}

Ort::Value RankFeeds::view(std::size_t input, const ProgramCall& call) const {
  const Held& held = *by_program_[call.program][input];
  const std::size_t part = held.parts.size() > 1 ? static_cast<std::size_t>(call.micro_batch) : 0;
  return view_of(held.dtype, held.shape, held.parts[part]);
}

}  // namespace autopar
