// Every number that decides how much a search over pipelines tries, with its unit and what is
// behind it. None of them changes what is true of an answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "search/small_step.hpp"

namespace autopar::tuning {

// Which forms are there.
namespace forms {
// Most chunks per stage that `auto` tries; more of them send more for little.
inline constexpr std::int64_t kMostChunks = 4;
}  // namespace forms

// The loop over forms and cuts.
namespace outer {
// Cuts are made anew where that promises so much less time (a part of the step's), so often at
// most. Assumed: what is less is lost among the errors of the prices.
inline constexpr double kGain = 2e-3;
inline constexpr int kRounds = 2;
// Small steps (kSmallStep) are also cut as if there was no update, and as balances the chunks. A
// step of gpt2_tiny in 2 stages took 332 us without these cuts and 296 us with them.
// The plan of such a step that is further than this above its bound (a part of the time) is also
// made of a template: what chunks take is estimated. Of a Llama of 6 layers in 2 stages one took 3
// to 8 % less.
inline constexpr double kWorthTemplates = 0.05;
// A pipeline is given up where its first chunks, as they are planned, and the bounds of the others
// make it take so much longer (a part) than what there is to beat: units that a cut divides are
// taken to wait evenly. Of 8B in 4 stages the bounds said 1.835 s for cuts whose plan took 1.814 s.
inline constexpr double kHopeless = 0.01;
// Above its bound by this part of it, a pipeline under a memory limit is also cut as it would be
// without. What memory adds is an estimate by units: of GPT with 7 layers in 2 stages it said so
// much of the first that the plan took 4.2 % longer than one with even cuts, 7.8 % above the bound.
// On 70B, 3.9 % above, other cuts gained nothing.
inline constexpr double kFarAbove = 0.05;
// A form whose first cuts do not fit is cut in other ways where it is likely to take so much less
// (a part of it) than the best plan. Of 8B on 64 H100 in 11 GiB with all schedules 1.689 s a
// step, 1.714 where only the first form was; in 6.5 GiB it took 12 of 93 CPU seconds, for nothing.
inline constexpr double kPromising = 0.1;
// Where plans of units whose ends are open make a step so much faster (a part of it), by units, the
// best plan is made with these too. Of eight plans they promised up to 0.6 % (8B, 70B, 405B,
// Mixtral) and 2.5 % (GPT 17B and 175B), and took 0.03 to 0.9 % longer, or were given up.
inline constexpr double kOpenGain = 0.01;
// By so much (a part of it) a plan without stages must be faster on finer meshes. 8B on 12 devices
// with 8 micro-batches takes 19.86 s on them in place of 20.55; on 64 H100 nothing is gained, which
// takes 5 CPU seconds to find out with a fifth of it, and none with this.
inline constexpr double kFinerGain = 0.01;
// A plan without stages that is further above its bound is planned of plans of units, too, where
// these promise so much less. 70B on 512 H100 in 8 passes takes 12.27 s so, in place of 13.39; 8B
// on 64 in 24 GiB, 1.1 % above its bound, gains nothing, which takes 3 CPU seconds to find out.
inline constexpr double kSingleGap = 0.01;
// And for this part of the room: GPT 17B on 256 H100, with 0.8 of what it takes without a limit,
// took 2.03 s by plans that were looked for in all of it, and 1.94 by those for 0.6.
inline constexpr double kLessRoom = 0.7;
// Cuts of forms that take so many times what the likeliest one takes, by plans of units, are not
// moved, and others of as many stages are not estimated where that is what they would take by their
// bounds. 405B on 1,024 H100: 16 to 64 stages of several chunks take 1.5 to 9 times as long as 8.
inline constexpr double kFar = 1.5;
// Forms that are looked at beside each other, of other sizes of stages. Chosen for two cores; of
// more of them some are not needed.
inline constexpr std::size_t kFormsAtOnce = 2;
// Of forms that are as likely that of fewer chunks comes first, since it is planned sooner: twice
// as many chunks count as this part of the time. Of 8B plans of 4 chunks took 0.7 % less than their
// units, one of 16 chunks 1 % more. With 0.1 % for each chunk 405B on 16,384 devices was planned in
// 8 stages of 2 chunks before 16 of 4: 20 CPU seconds more for the same plan.
inline constexpr double kPerDoubling = 3e-3;
// Schedules of more actions are not simulated with chunks that take alike long, before anything is
// known of units: a simulated action takes 0.2 us, and there may be some forty forms.
inline constexpr std::size_t kMostEvenActions = 200'000;
// A limit binds where a plan takes more than this part of it. Chosen: what takes less has room for
// any cut.
inline constexpr double kBinding = 0.5;
// Forms whose units take so much longer than the best plan (a part of it) are not planned, though
// their bound does not say so. Plans of 8B and 70B took 2 % less to 5 % more than their units.
inline constexpr double kUnlikely = 0;
// Of small steps, where estimates say less: a Llama of 2 layers on 3 devices takes 2.03 ms by
// `zb-v`, by its units 2.40, and 2.24 by the form that was planned first.
inline constexpr double kUnlikelySmall = 0.1;
// Pipelines of models that are not trained are made so often at most where what waits between their
// stages does not fit beside the chunks, each time with that less. Assumed: what waits hardly
// changes with the plans.
inline constexpr int kWaitingRounds = 3;
// Pins that are put into a plan without them cost less than this part of it in a step that is not
// small, or the search with them is tried, too. 70B on 512 H100 in 8 stages, one op pinned: 3.68 s
// so after 6 CPU seconds, and after 52 by the search.
inline constexpr double kPinsCost = 0.01;
// What is planned again then: ops so many values away, over values that so many ops read at most.
// Chosen: behind a mask or a weight that is shared is the whole step.
inline constexpr int kPinsNear = 2;
inline constexpr std::size_t kPinsFewUses = 8;
}  // namespace outer

// Cuts that are moved one by one.
namespace cuts {
// Rounds over all of them at most, how many places each is moved at most, and what a move must
// gain, as a part of the time.
inline constexpr int kRounds = 10;
inline constexpr int kFarthest = 3;
inline constexpr double kGain = 1e-4;
// Where chunks that may begin and end at any places are more than these, by number, first place and
// last one, the longest stage is not looked for: all count as alike busy. That is where stages are
// more than layers: 70B in 128 stages, cut at any of 2,000 places, has 5e8.
inline constexpr double kMostPlacings = 2e7;
// The cuts of a small step's plan are moved so far, each such step being planned, and so many in
// all. Of 40 small steps 12 took less so and by other cuts under a limit, seven of them 0.3 to 15 %
// less, for a quarter more CPU seconds.
inline constexpr int kFarthestPlanned = 2;
inline constexpr std::size_t kMostPlanned = 40;
}  // namespace cuts

// The searches of chunks.
namespace chunks {
// Of the effort of a search: several meshes and chunks share it. With all of it a chunk of 40 of
// 70B's layers took 12 to 17 s (wall, busy cores) per level of recomputation where memory binds.
inline constexpr double kEffort = 0.1;
// Chunks of fewer ops than these have as large a part of that, but at least so much. A Llama
// of 3 layers on links of 10 MB/s, with passes to be decided, took 4.02 ms a step after 60 CPU
// seconds with all of it, and 4.95 after 10 with a tenth.
inline constexpr double kOpsOfEffort = 1500, kLeastEffort = 0.3;
// Of the effort of a search, for what is open between units that are planned already.
inline constexpr double kPartsEffort = 0.02;
// So often units are planned with what the chunk left of the room, or less; and again where that
// promises so much less time (a part of it).
inline constexpr int kPartRounds = 4;
inline constexpr double kPartGain = 1e-3;
// Of what units save in memory at least this part is taken to lower the peak of a chunk that does
// not fit yet. Of 70B in 2 stages the last chunk saved 0.6 GiB in four rounds, and was 0.2 too
// large after each.
inline constexpr double kLeastFollowing = 1.0 / 16;
// What does not fit then saves twice as much more than that says each time; after so many chunks
// that do not fit it is planned in other ways.
inline constexpr int kMostUnfit = 6;
// A chunk of a small step that takes so many times what its units take by themselves is also
// searched as it is: collectives between units, or of a norm of all gradients, take most of it. A
// Llama of 3 layers in 2 stages on links of 10 MB/s took 79 ms a step, and 28.9 ms so. Chunks of
// 70B and 405B take 1.01 to 1.07 times as long as their units.
inline constexpr double kMisled = 1.25;
// The price (seconds per byte) at which chunks share a room lies below one that is doubled until
// all fits, so often at most, and is then found by halving: 50 times leave the rounding of doubles.
inline constexpr int kDoublings = 60, kHalvings = 50;
// Rounds in which chunks of a schedule from a file get smaller until what parts of their backward
// passes hand on fits, too. Chosen: each takes the stage nearer to its room.
inline constexpr int kShareRounds = 4;
// Chunks of a stage that leave this part of its room are planned again with it. Assumed: less of it
// does not let a chunk repeat less.
inline constexpr double kMuchLeft = 0.1;
// A stage whose chunks wait for what there is no room to fetch ahead, for more than this part of
// their time, is planned with so much of its room less, too. 405B on 16,384 H100 in 16 stages of 4
// chunks takes 5.56 s without it, and 5.21 with 2, 4 and 8 %; of 7 chunks 6.08, and 5.57, 5.77 and
// 5.79.
inline constexpr double kMuchWaited = 0.01;
inline constexpr double kLeft = 0.02;
// A plan that is within this part of its bound is as good as a better one. With five times as much
// the chunks of 8B were so unlike that cuts were not balanced again: 1.68 s a step for 1.64 s.
inline constexpr double kGap = 1e-3;
// A mesh that was pruned is taken to have a plan that takes so many times its bound.
inline constexpr double kFar = 1.02;
// Chunks for which all meshes are tried (the first has the embedding, the second has not), and how
// many of the quickest for the others. Measured on steps of 8B: the same ones are best from the
// second chunk on, and all are within 2 %.
inline constexpr int kSearchedOnAll = 2;
inline constexpr std::size_t kMeshesOfOthers = 2;
}  // namespace chunks

// The bounds by units.
namespace units {
// Weightings of the usual unit that are tried at most (weights_of_more()). With 3 in place of 1 the
// bound of 70B in 2 stages is 12.5 s in place of 11.3.
inline constexpr int kWeightings = 3;
// More kinds of units are not searched: the bound would take longer than the plan. Llama steps
// have four.
inline constexpr std::size_t kMostKinds = 6;
// Kinds with less than this part of the step's compute count with that alone: an embedding, say.
inline constexpr double kSmall = 5e-3;
// Of the effort of a search, for a unit at a price of memory: it has a few hundred nodes, and its
// first look nearly always closes it.
inline constexpr double kEffort = 0.02;
// Of search problems of units that are at hand: with all of them steps of Llama 1B with 9 numbers
// of passes took 4.4 GB, 2.7 of these. Bytes of a candidate and of an op, about, beside tables.
inline constexpr double kBytesAtHand = 3e8;
inline constexpr double kBytesPerCandidate = 250, kBytesPerOp = 3000;
// The first price of memory: a unit's bytes cost this part of its time. Where what that saves is
// too little, the price grows by the factor, so often at most.
inline constexpr double kFirstPrice = 1.0 / 16;
inline constexpr double kDearer = 4;
inline constexpr int kPrices = 4;
// And so many times the first price where nothing fits, for what is known without a search.
inline constexpr double kDearest = 65536;
// Rounds between two prices, and what counts as no news, as a part of the time: below what the
// bound of a whole pipeline is printed with.
inline constexpr int kRounds = 6;
inline constexpr double kNoNews = 1e-3;
// Chunks with at least this part of what another one has in flight take its price. Measured on 405B
// in 16 stages, with it and with a price of its own for each: the same plan and bound, 23.5
// and 26.2 CPU seconds.
inline constexpr double kAlikeInFlight = 0.7;
// The same where plans are looked for: chunks mix them as they have room.
inline constexpr double kAlikePlans = 0.3;
// The part of the weight that goes to links in plans: by what compute alone says, memory is best
// saved by fetching everything in every pass, until a link is what takes longest. Most of it goes
// to inner links: what compute waits for goes over them, and waits behind sums of gradients there.
// Measured with 0.5 and 0.75, 0.4 and 1/3, 0.4 and 0.15 on links and of that on the outermost one:
// 70B in 4 stages 14.00, 13.11 and 13.42 s, 405B in 8 stages 40.40, 37.59 and 37.30 s, 8B in 4
// stages of 30 GiB 1.90, 1.86 and 1.86 s.
inline constexpr double kOnLinks = 0.4;
inline constexpr double kOnTail = 0.2;
inline constexpr double kOnOutermost = 1.0 / 3;  // of what goes to links
// Rounds in which prices of plans follow the paths of the plans before (prices_by_path), and the
// part above its bound that is near enough for a plan. GPT 17B on 256 H100 took 1.683 s with 4
// rounds, and 1.770 s where a round that gained nothing was the last.
inline constexpr int kPathRounds = 4;
inline constexpr double kNearBound = 0.01;
// Weights of streams hold wherever a unit stands, prices by paths where it is by itself: these are
// taken where they gain more than so much of its time. Of Mixtral in 2 stages they gain 0.04 % of a
// unit and lose 0.8 % of the step; elsewhere they gain 5 to 8 % of a unit, or nothing.
inline constexpr double kPathGain = 5e-3;
// A plan that takes so many times what its prices by paths say has moved what is fetched until a
// link takes longest; weights of streams are taken in place of paths then. 405B in 8 stages on
// 1,024 H100 took 50.7 s by paths, whose units took 3.06 s for 1.91 s of price.
inline constexpr double kMisled = 1.25;
// Meshes whose plan by weights takes so many times a plan on another one have no such rounds: these
// gained at most 8 % of a unit's time.
inline constexpr double kFarPlan = 1.1;
// By weights that give no bound only meshes are looked at whose bound is so many times the least:
// on 70B the best plans are on the mesh with the least bound.
inline constexpr double kFar = 1.1;
// Chunks of fewer units are searched as they are. With 8.5 in place of it 405B in 16 stages of 7
// chunks took 6.601 s in place of 6.381, and 260 CPU seconds in place of 97; 8B, Mixtral and GPT
// the same.
inline constexpr double kLeastUnits = 0.9;
// Where memory adds less than this part to what units take, no more is asked about it.
inline constexpr double kWorthwhile = 0.01;
}  // namespace units

// Bounds by paths through schedules.
namespace paths {
// Cuts and paths that are tried in turn, at most; what ends that before, as a part of the time that
// so many of them gain; and of the best mean of paths what the next has of it. Measured on 8B in 4
// stages of 4 interleaved chunks: 1.401 s after 20 rounds, 1.435 after 40 and 1.441 after 80; with
// 0.8 of the best mean 1.400, 1.448 and 1.454. 405B in 16 stages of 2: 2.517, 4.094 and 4.713 s.
inline constexpr int kRounds = 120;
inline constexpr int kRoundsBetween = 20;
inline constexpr double kNoNews = 1e-3;
inline constexpr double kStay = 0.8;
// Of more chunks paths say too little: of 405B in 16 stages of 7 chunks no less than 1.55 s (20
// rounds), and what stages are busy with 3.85 s.
inline constexpr std::size_t kMostChunks = 64;
}  // namespace paths

// Templates of pipelines.
namespace templates {
// More kinds of units are not priced: each template has a plan of each kind. Llama steps have four.
inline constexpr std::size_t kMostKinds = 12;
// Prices of memory at which units are planned, beside none.
inline constexpr std::size_t kPrices = 2;
// The second of them by the first: with few prices, one at which all is saved that can be.
inline constexpr double kDearer = 16;
// Where all templates of one degree of tensor parallelism take so many times the best one, more of
// it is not tried: it only sends more.
inline constexpr double kFar = 1.5;
// Of how many degrees of tensor and context parallelism, the best first, experts are put in parts;
// as the searcher of one stage has it.
inline constexpr std::size_t kExpertDegrees = 2;
// Templates that are listed, the fastest first.
inline constexpr std::size_t kListed = 10;
// Templates that are planned chunk by chunk, the fastest first, as long as the next may be faster
// than the best by its units.
inline constexpr std::size_t kPlanned = 3;
}  // namespace templates

}  // namespace autopar::tuning
