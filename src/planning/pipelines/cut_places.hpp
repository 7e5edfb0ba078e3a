// Where chunks, and units, of a step may begin: numbers from 0, the begin of the step, to end().
#pragma once

#include <cstddef>
#include <vector>

#include "autopar/mesh.hpp"
#include "autopar/stages.hpp"
#include "planning/pipelines/chunk_bound.hpp"

namespace autopar {

struct CutPlaces {
  std::vector<OpId> ops;  // but for the first
  std::vector<std::size_t> unit_ends;
  // Until each place, and in all: compute on one device, of a micro-batch.
  std::vector<Seconds> forward, backward, inputs;  // inputs: the first part of backward passes

  // `decides`: deciding_ops().
  void add(const std::vector<OpId>& cuts, const std::vector<OpId>& unit_cuts,
           const OpSeconds& seconds, const std::vector<OpId>& decides);
  std::size_t end() const { return ops.size() + 1; }
  // The last one that is not behind an op; 0: the begin.
  std::size_t of(OpId op) const;
  // The places must live as long.
  Parts parts(const Cluster& stage) const;
};

}  // namespace autopar
