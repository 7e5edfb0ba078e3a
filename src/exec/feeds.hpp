// What one rank is fed with that no program makes: its slices of the given inputs, each held once
// for all of its programs that read the same one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "exec/blocks.hpp"
#include "exec/tensors.hpp"
#include "exec/wiring.hpp"

namespace autopar {

class RankFeeds {
 public:
  // `whole`: views of these where slices lie in one piece, and they outlive this; null: only the
  // rank's slices are made or read.
  static Result<RankFeeds> make(const RunRequest& request, const Wiring& wiring,
                                const std::map<std::string, Distribution>& distributions,
                                std::int64_t rank, const InputTensors* whole);

  // What a call reads as one of its program's inputs, which is given at first.
  Ort::Value view(std::size_t input, const ProgramCall& call) const;

 private:
  // The slices of one input: one for all calls, or one per micro-batch.
  struct Held {
    DType dtype = DType::kFloat32;
    Shape shape;
    std::vector<const char*> parts;
    std::vector<std::string> copies;     // of what does not lie in one piece
    std::shared_ptr<const Slice> slice;  // of a whole tensor
    std::shared_ptr<const Tensor> own;
  };
  using Key = std::tuple<std::string, Shape, Shape, bool>;  // name, offset, extent, cut

  void add_parts(const BoundaryValue& input, const InputSource& source, std::int64_t micro_batches,
                 const char* data, Held& held);

  std::map<Key, Held> held_;
  std::vector<std::vector<const Held*>> by_program_;
};

}  // namespace autopar
