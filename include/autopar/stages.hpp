// The chunks of a training step that is run as a pipeline: which of them every op belongs to, and
// each as a graph of its own.
//
//   AUTOPAR_TRY(cuts, balanced_cuts(step.graph, 4, places, seconds_of_ops, bytes_per_s));
//   AUTOPAR_TRY(chunks, chunks_of(step.graph, cuts));
//   chunks[1].graph      // forward, backward and update ops of the second chunk
//
// A chunk holds consecutive forward ops, the backward ops that belong to them, and the updates of
// what they train. What it reads of other chunks is an input of its graph, and what others read of
// it an output, under the value's own name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// A value that one chunk makes and others read.
struct Handed {
  std::string value;
  int from = 0;
  std::vector<int> to;  // ascending
  // In each micro-batch; false: once, for the update.
  bool in_pass = true;
  bool operator==(const Handed&) const = default;
};

struct Chunk {
  Graph graph;  // with phases and passes; ops in the order of the step
  // Update ops that other chunks need the results of, by name: they run before all updates (R).
  std::vector<std::string> reduce_ops;
};

struct Chunks {
  std::vector<Chunk> chunks;
  std::vector<Handed> handed;  // in the order in which the step makes them
};

// Cuts a step of several passes (Graph::passes) before each of the given forward ops, which are in
// the order of the graph. What depends on data and constants alone is made by every chunk that
// reads it; what is made of stored values alone, by the first that does. Sums of gradients are made
// by the first of the chunks that their parts come from: of one value one gradient crosses a cut.
//
// Errors (kInput): fewer than two passes; cuts that are no forward ops, or not ascending; a chunk
// without ops. O(values + ops) for each chunk.
Result<Chunks> chunks_of(const Graph& step, const std::vector<OpId>& cuts,
                         const std::string& updates = kNextPattern);

// Per forward op of a step the one whose place among the cuts says which chunk makes it: the op
// itself, or the first reader of what is made of stored values alone. Not valid: each chunk that
// reads it makes it, or it is no forward op.
std::vector<OpId> deciding_ops(const Graph& step, const std::string& updates = kNextPattern);

// Seconds of a step's forward ops in one pass, and of the backward ops that belong to each: per op
// of the step. What is of no forward op is of the loss. `inputs`: of the backward ops those that do
// not make the gradient of one stored value alone (see weight_gradient_ops); empty: not known.
// `update`: of the updates of what the forward op is the first to read, once a step; empty: none.
struct OpSeconds {
  std::vector<Seconds> forward, backward, inputs = {}, update = {};
  std::vector<Seconds> updating = {};  // of an op of the update, what it takes itself
};
// What a chunk takes beside its ops: by its number, its first op and that of the next one (not
// valid at the end). It must not get less with more ops.
using ChunkSeconds = std::function<Seconds(std::size_t chunk, OpId from, OpId to)>;
// Where chunks of a step may begin that is cut into so many: with what reads a parameter before and
// behind them, where no kernel of the step (Graph::kernels) is cut, and no fewer bytes cross beside
// them. Where what lies between two of these is more than 1.25 times as busy as a chunk is on
// average, also anywhere in it (between layers of one width, or beside a branch that joins late);
// where they are too few for the chunks, anywhere. Ascending.
std::vector<OpId> cut_places(const Graph& step, int chunks, const OpSeconds& seconds,
                             const std::string& updates = kNextPattern);

// Cuts for so many chunks that the busiest of them, with what it sends to the next, is as little
// busy as it can be, and of those the ones that hand over the fewest bytes in all. `at`: the places
// that are looked at, such as cut_places(). `bytes_per_s`: of the link between stages. Places
// before like ops, such as those between layers, are taken where the busiest chunk is then at most
// 1 % busier; of several such kinds the one where the fewest bytes cross. Errors (kInput): more
// chunks than there are places. Dynamic programming: O(chunks x places^2) for each kind. `beside`:
// none by default.
Result<std::vector<OpId>> balanced_cuts(const Graph& step, int chunks, const std::vector<OpId>& at,
                                        const OpSeconds& seconds, double bytes_per_s,
                                        const std::string& updates = kNextPattern,
                                        const ChunkSeconds& beside = nullptr);

// Of the places for two chunks the ones between layers: before the same types of ops, where the
// fewest bytes cross; of several such kinds the one where the names of the ops on both sides begin
// least alike (`layers.0.` and `layers.1.`), then the most frequent. None: no two are alike.
std::vector<OpId> layer_cuts(const Graph& step, const OpSeconds& seconds,
                             const std::string& updates = kNextPattern);

// Places before ops that are like each other (one in each layer, for one), where no kernel of the
// passes has ops on both sides: so what lies between two of them costs as much by itself as in the
// whole. None: there are no two such places. O(kinds of ops x (values + ops)).
std::vector<OpId> like_cuts(const Graph& step, const std::string& updates = kNextPattern);

// A chunk without its update ops, and without what only they read.
Graph without_update(const Graph& chunk);

// Where the user said of which stage forward ops are: per op of the step its stage, or -1: that of
// the op before it (the first ones: stage 0). Errors (kInput), with the op: a stage before that of
// an op before, a stage that no op has, one that is no number of a stage.
Result<std::vector<OpId>> cuts_of_stages(const Graph& step, const std::vector<int>& stage_of_op,
                                         int stages, const std::string& updates = kNextPattern);

// Per op of a chunk whether it is a backward op that the gradient of one stored value alone waits
// for, and no other chunk: what schedules with backward passes in two parts may put off (W). The
// others make the gradients of the chunk's inputs (I), or what several gradients are made of.
std::vector<char> weight_gradient_ops(const Graph& chunk,
                                      const std::string& updates = kNextPattern);

// Of two graphs that are the same but for names, per value of the first the one of the second;
// nothing where they are not. Ops are compared in their order. O(values + ops).
std::optional<std::vector<ValueId>> same_values(const Graph& a, const Graph& b);

}  // namespace autopar
