// What the chunks of a pipeline take at least of the time of their stages, by a schedule and sums
// of what lies between places; the inequalities are those of pipeline_bound.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "autopar/pipeline.hpp"
#include "autopar/streams.hpp"

namespace autopar {

// What a schedule says of the passes of a chunk, and of its stage.
struct ChunkShape {
  std::size_t stage = 0;
  bool is_first = false;              // of its stage
  bool is_back_first = false;         // has the first backward pass of its stage
  std::int64_t forward_first = 0;     // forward passes before the first backward pass of the stage
  std::int64_t backward_between = 0;  // backward passes between that one and the last forward pass
};
std::vector<ChunkShape> shapes_of(const PipelineSchedule& schedule);
// Whether backward passes are in two parts, of which the stage before waits for one.
bool is_apart(const PipelineSchedule& schedule);
// Whether stage s has the s-th chunk, and the s-th from the end.
bool is_there_and_back(const PipelineSchedule& schedule);

// What lies between two places takes at least, as sums: of whole units what is known of these, and
// of the rest its compute, evenly split. Where the sums are of busy times by the weights of
// streams, compute counts by its weights too: only so is the whole no more than the weighted times
// of a plan, and so than the longest of them.
struct UnitSums {
  std::vector<Seconds> until;  // at the ends of units; none: nothing is known of these
  double of_compute = 1;       // for each second that a device computes in a micro-batch
};
// Weights by which busy times are added; nothing: of what is done one after the other.
struct StreamSum {
  std::optional<StreamTimes> weights;
  // What compute at least counts for, by the passes that it is done in, so many at a time: all of
  // it is compute, and what comes before the backward pass of the last ones is in the tail.
  double least_of_compute(double passes, double copies) const;
  // What at most is added by what each device does by itself: kernels, which the host issues.
  Seconds most_of_kernels(Seconds compute, Seconds host) const;
  // The same of a collective that compute waits for.
  Seconds most_of_collective(Seconds seconds) const;
};

// Least times of what lies between two places.
class Parts {
 public:
  Parts(const std::vector<Seconds>& forward, const std::vector<Seconds>& backward,
        const std::vector<Seconds>& inputs, const std::vector<std::size_t>& unit_ends,
        double devices)
      : forward_(forward),
        backward_(backward),
        inputs_(inputs),
        unit_ends_(unit_ends),
        devices_(devices) {}

  Seconds forward(std::size_t from, std::size_t to) const {
    return (forward_[to] - forward_[from]) / devices_;
  }
  Seconds backward(std::size_t from, std::size_t to) const {
    return (backward_[to] - backward_[from]) / devices_;
  }
  Seconds inputs(std::size_t from, std::size_t to) const {
    return (inputs_[to] - inputs_[from]) / devices_;
  }
  // The whole units between two places, by their ends; none: first is not before last.
  std::pair<std::size_t, std::size_t> whole_units(std::size_t from, std::size_t to) const {
    const auto first = std::lower_bound(unit_ends_.begin(), unit_ends_.end(), from);
    const auto last = std::upper_bound(unit_ends_.begin(), unit_ends_.end(), to) - 1;
    return {static_cast<std::size_t>(first - unit_ends_.begin()),
            static_cast<std::size_t>(last - unit_ends_.begin())};
  }
  Seconds least(const UnitSums& sums, std::size_t from, std::size_t to) const {
    const auto compute = [&](std::size_t a, std::size_t b) {
      return sums.of_compute * (forward(a, b) + backward(a, b));
    };
    if (sums.until.empty()) return compute(from, to);
    const auto [a, b] = whole_units(from, to);
    if (b <= a) return compute(from, to);
    return compute(from, unit_ends_[a]) + (sums.until[b] - sums.until[a]) +
           compute(unit_ends_[b], to);
  }

 private:
  const std::vector<Seconds>& forward_;
  const std::vector<Seconds>& backward_;
  const std::vector<Seconds>& inputs_;
  const std::vector<std::size_t>& unit_ends_;
  const double devices_;
};

// What chunks are made of.
struct ChunkSums {
  // By compute alone.
  explicit ChunkSums(double micro_batches = 1)
      : step{{}, micro_batches}, passes{{}, micro_batches}, pass{{}, 1} {}

  UnitSums step;       // all micro-batches and the update, by the weights of streams
  double waiting = 1;  // the weight in these of what waits for the first micro-batch
  UnitSums passes;     // all micro-batches: compute, with the collectives that it waits for
  UnitSums pass;       // the same of one
};

// What a chunk adds to the time of its stage; where stages have one chunk, that time.
class ChunkBound {
 public:
  // Of a step's weighted times only compute and what is done behind it at the end wait for the
  // first micro-batch, weights are fetched meanwhile. `sums` must live as long.
  ChunkBound(const Parts& parts, const ChunkSums& sums, const PipelineSchedule& schedule,
             std::size_t end)
      : parts_(parts),
        step_(sums.step),
        of_waiting_(sums.waiting),
        passes_(sums.passes),
        pass_(sums.pass),
        micro_batches_(static_cast<double>(schedule.micro_batches)),
        is_apart_(is_apart(schedule)),
        all_(is_apart_ ? parts.forward(0, end) : parts.least(sums.pass, 0, end)),
        end_(end) {}

  // Of a stage with this chunk alone.
  Seconds of_stage(const ChunkShape& shape, std::size_t from, std::size_t to,
                   Seconds of_memory) const {
    const Seconds before = parts_.forward(0, from);
    // With the way back of the last gradient, where stages wait for it.
    const Seconds others = is_apart_ ? before : parts_.least(pass_, 0, from);
    const Seconds alone = std::max(of_waiting_ * before + parts_.least(step_, from, to) + of_memory,
                                   others + parts_.least(passes_, from, to));
    if (is_apart_) return std::max(alone, all_ + parts_.inputs(to, end_) + left(shape, from, to));
    return std::max({alone, all_ + left(shape, from, to), all_ + until_last(shape, from, to)});
  }

  // Of the longest stage, wherever chunks begin: all stages alike busy, a micro-batch that goes
  // through all of them, and the backward passes that a stage has left when the first has.
  Seconds anywhere(std::size_t stages, bool has_one_chunk) const {
    const Seconds forward = parts_.forward(0, end_), backward = parts_.backward(0, end_);
    const auto of_stages = static_cast<double>(stages);
    const Seconds through = forward + (is_apart_ ? parts_.inputs(0, end_) : backward);
    const Seconds left = has_one_chunk && !is_apart_
                             ? all_ + (micro_batches_ - 1) * backward / of_stages
                             : forward + micro_batches_ * backward / of_stages;
    return std::max({parts_.least(passes_, 0, end_) / of_stages, through, left});
  }

  // Of a stage with several: without what the first micro-batch takes apart.
  Seconds alone(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    return parts_.least(step_, from, to) +
           (shape.is_first ? of_waiting_ * parts_.forward(0, from) : 0);
  }

  // From the first backward pass until the last forward pass, and that one's way on and back;
  // nothing where that forward pass comes before.
  Seconds until_last(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    const double forward = micro_batches_ - static_cast<double>(shape.forward_first);
    const auto backward = static_cast<double>(shape.backward_between);
    if (forward <= 0) return 0;
    const double both = std::min(forward, backward);
    return both * parts_.least(pass_, from, to) + (forward - both) * parts_.forward(from, to) +
           (1 + backward - both) * parts_.backward(from, to) + parts_.least(pass_, to, end_);
  }

  // Of a stage with one chunk, what is left when its first backward pass has ended; where backward
  // passes are in two parts, when it begins.
  Seconds left(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    return left_behind(is_apart_ ? 0 : 1, shape, from, to);
  }
  // Of a stage with several: the sum over these is no more than the step takes. The first backward
  // pass of the stage ends when a micro-batch has been through all chunks and back to the one that
  // has it; then the other passes are left, and the way back from the first chunk.
  Seconds of_several(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    const bool is_back_first = shape.is_back_first && !is_apart_;
    Seconds sum = left_behind(is_back_first ? 1 : 0, shape, from, to);
    if (is_back_first) sum += parts_.forward(0, from) + parts_.least(pass_, from, end_);
    if (shape.is_first) sum += is_apart_ ? all_ : parts_.backward(0, from);
    return sum;
  }

 private:
  // What a chunk has left when so many of its backward passes have ended, at the first of its
  // stage.
  Seconds left_behind(double backward, const ChunkShape& shape, std::size_t from,
                      std::size_t to) const {
    const auto first = static_cast<double>(shape.forward_first);
    const double rest = std::max(0.0, micro_batches_ - std::max(first, backward));
    return rest * parts_.least(pass_, from, to) +
           std::max(0.0, micro_batches_ - backward - rest) * parts_.backward(from, to);
  }

  const Parts& parts_;
  const UnitSums& step_;
  const double of_waiting_;
  const UnitSums& passes_;
  const UnitSums& pass_;
  const double micro_batches_;
  const bool is_apart_;
  const Seconds all_;  // the first micro-batch, through all chunks and back
  const std::size_t end_;
};

}  // namespace autopar
