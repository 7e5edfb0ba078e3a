// Every number that decides how much is tried, by stage: a stage's work comes from here and from
// nowhere else. None of them changes what is true of an answer: bounds stay bounds, plans stay
// within the limit.
#pragma once

#include <cstddef>

namespace autopar::solver {

// Passes of messages stop after `most_passes` of them, or where the last `at_once` raised the bound
// by less than both parts.
struct Patience {
  int most_passes = 64;
  int at_once = 8;
  double of_missing = 0.1;  // of what is missing to the cutoff
  double of_bound = 1;
};

// How far above the best bound steps on prices aim, as a part of it: from the first on, and less
// where that is too far, until it is less than the last.
struct StepReach {
  double first = 0.05;
  double last = 1e-6;
};

// A gap below this part of the value is worth only so much work, and only where that suffices for
// so many passes over the whole.
struct SmallGap {
  double gap, work, least_passes = 0;
};

namespace effort {

// Work is counted in table entries that are handled one by one, a few nanoseconds each.
namespace work {
// Of an entry of a row that is handled as a vector.
inline constexpr double kRowEntryWork = 0.2;
inline constexpr double kVisitWork = 20;  // what a visit costs beside the entries
// Of the work of reductions, what counts: what they leave must be looked at too.
inline constexpr double kReducingPart = 0.25;
inline constexpr double kCheapWork = 3e7;
}  // namespace work

// Rows (limit/, plans/).
namespace limit {
inline constexpr double kOver = 1e-7;  // of the capacity, that the mix may use too much
}  // namespace limit

// Orders of nodes.
namespace order {
// A node with more neighbours than this is near everything; it says nothing about what is next.
inline constexpr std::size_t kHubEdges = 24;
}  // namespace order

// The pipeline (solve.cpp): how much work there is, and which stage may spend which part of it.
namespace solve {
// Table entries; a few nanoseconds each. Where the caller gives a time, that is the limit.
inline constexpr double kWorkLimit = 1.5e9;
inline constexpr double kPasses = 60;  // over all tables, more on large problems
// Of it before the limit is looked at, if there is one; where something that was found fits.
inline constexpr double kUnlimitedPart = 0.2, kFittingPart = 0.6;
inline constexpr double kUnlimitedTime = 0.5;  // where time is what is limited
inline constexpr double kPatientUnlimitedWork = 1e8;
// What a second of a patient search is worth. Less than a quarter of what a core does in one, so
// that the clock does not end what could be counted.
inline constexpr double kWorkPerSecond = 1e8;
inline constexpr double kLimitedPart = 0.7;  // where there is time to be used
// Of all work, for how much memory would do. With 0.3 the least of BERT-Large on 12 devices was 628
// MiB in place of 727, and took 5.7 CPU seconds in place of 3.3.
inline constexpr double kPeakPart = 0.1;
// Where a plan that fits is this close to the bound without the limit, and that was work enough,
// the limit is not looked at.
inline constexpr double kCloseEnough = 1e-3;
inline constexpr double kCheapLook = 1e7;  // after which a bound without the limit is cheap, too
}  // namespace solve

// Without the limit (without_limit.cpp).
namespace without_limit {
inline constexpr double kRootPart = 0.5;
inline constexpr Patience kLook = {8, 4, 0.02};
inline constexpr double kLookPart = 0.05;  // of the work that is left, for that
inline constexpr int kLikeRounds = 5;      // of telling like parts apart, for that
inline constexpr Patience kLikeLook = {64, 8, 0.1, 2e-3};
// Where the gap has to be closed. What passes gain later on, those over the reduced network gain
// sooner: by {256, 8, 0.01, 1e-6} a step of ResNet-50 on 512 devices took 9.9 CPU seconds in place
// of 8.2, one of Mixtral 12.7 in place of 10.5, with the same plans and bounds.
inline constexpr Patience kLikeClosing = {256, 8, 0.05, 1e-4};
// Of the gap, looked at before the rest.
inline constexpr double kLikeParts[] = {0, 1.0 / 256, 1.0 / 64, 1.0 / 16};
inline constexpr double kLikeWork = 0.1;   // of the work that is left, for each of them
inline constexpr double kLikeStep = 1e-6;  // of the bound, at least
// Of the value. With so much open, and mixes that cannot be looked through, trials at cutoffs
// gained nothing in 8 CPU seconds (GPT-2 XL and ViT-L on 512 devices).
inline constexpr double kWide = 0.02;
// For trials at cutoffs then, where mixes can be looked through: without it they took 5 CPU seconds
// on GPT-2 XL on 512 devices, 5.5 % above its bound, to raise that by 0.06 %.
inline constexpr double kWideClosingWork = 3e8;
// Mixes of the best labelling and the latest ones, at first of so few.
inline constexpr std::size_t kFirstMixed = 4, kMostMixed = 32;
inline constexpr int kMixedRounds = 5;        // of telling like nodes apart
inline constexpr double kWorthMixing = 1e-3;  // of the value: smaller gaps are closed
inline constexpr double kMixWork = 0.05;      // of the work that is left, for each
inline constexpr double kMostAlive = 0.7;     // of the labels, and the others are worth taking out
// Of the labels, when passes go on without the others: a plan near the bound may leave less than a
// tenth. A step of Mixtral on 64 devices takes 5.8 CPU seconds so, 8.9 with tables as they were.
inline constexpr double kShrinking = 0.5;
}  // namespace without_limit

// Closing the gap (close.cpp): trials at growing cutoffs.
namespace close {
// How far above the bound the first trial looks, as a part of the gap; the next ones look further
// or less far, as it went.
inline constexpr double kFirstPart = 1.0 / 16;
inline constexpr double kLeastPart = 1.0 / 512;
inline constexpr double kLessFar = 1.0 / 8;
inline constexpr double kGuesses[] = {1.0 / 64, 1.0 / 16, 1.0 / 4};
inline constexpr double kGuessWork = 0.05;
// Of the work that is left, for windows: where no more than that part of the value is open, and
// where more is, when most windows soon get too wide. Of the latter, DLRM on 30 devices of three
// tiers with 40 GiB: proven in 0.1 CPU seconds, of 17 % that branching left open in 6.
inline constexpr double kWindowsGap = 5e-3;
inline constexpr double kWindowsWork = 0.7, kWideWindowsWork = 0.25;
inline constexpr double kTrialWork = 0.3;  // of the work that is left, for a trial
// What windows and a trial take per node before they find anything: 58 and 14 microseconds, of
// which little is counted (29,202 nodes of a step of 405B; a unit of work is 2.2 ns). With less
// they do not begin.
inline constexpr double kWindowNodeWork = 2e4;
inline constexpr double kTrialNodeWork = 6e3;
inline constexpr SmallGap kSmallGaps[] = {{1e-5, 3e7}, {1e-4, 5e7}, {5e-3, 1e8}};
}  // namespace close

// Within the limit (limit/within_limit.cpp).
namespace within_limit {
inline constexpr int kRounds = 30;
// Of all tables; smaller problems need no prices for all times.
inline constexpr double kManyEntries = 5e5;
inline constexpr double kPricesPart = 0.3;    // of the work that is left, for where to begin
inline constexpr double kFewTimesPart = 0.5;  // and for prices of the whole
inline constexpr double kOfferedWork = 0.3;   // of that, for repairs of what is met
inline constexpr StepReach kAllTimesReach = {0.5, 2e-5};
inline constexpr int kAllTimesSteps = 600;
inline constexpr double kSettledReach = 0.1;  // with an aim further off, nothing is repaired
inline constexpr double kRoundPart = 0.2;  // of the work that is left, for a round before the last
inline constexpr std::size_t kNodesToPrice = 200;  // fewer are looked through
// A gap below this part of the value is left, unless it took less than that work.
inline constexpr double kCloseEnough = 1e-4;
inline constexpr Patience kSettling = {40, 4, 0.02};
inline constexpr int kRootSteps = 1000;
// The second only where the time is there to be used: elsewhere it took a seventh more on GPT-2 XL
// in 800 MiB, for nothing; without it S of the contest is not proven in 45 CPU seconds, but in 30.
inline constexpr StepReach kReaches[] = {{0.05, 1e-3}, {1e-3, 1e-6}};
inline constexpr double kRowsPart = 0.2;  // of the work that is left, for the steps of a reach
// Eight times that for gaps below 1e-4 took 10 CPU seconds more on a step of 405B in 40 GiB and 2
// on one of 8B in 17 GiB, and found neither a plan nor a proof.
inline constexpr SmallGap kSmallGaps[] = {
    {5e-3, 6e8, 40}, {1e-3, 5e8, 10}, {1e-4, 1.5e9, 10}, {1e-5, 1e9, 100}};
inline constexpr double kNews = 0.05;  // of the gap; then it is worth another round
}  // namespace within_limit

// What is kept of all times (limit/all_times.cpp).
namespace all_times {
inline constexpr std::size_t kManyTimes = 8, kWorstTimes = 4;
inline constexpr double kRepairPart = 0.05;  // of the work that is left, for a repair
inline constexpr double kMostRepairWork = 5e8;
}  // namespace all_times

// Branching on divided nodes (limit/halves.cpp).
namespace halves {
inline constexpr double kWorthwhile = 5e-3;  // of the value: smaller gaps are left to the others
// Of the gap, by which the best mix must be cheaper than the plan. On a step of 8B in 24 GiB it is
// none of it, and halves took 2.6e9 entries for nothing; on BERT-Large in 150 MiB they close it.
inline constexpr double kMixedPart = 0.5;
inline constexpr int kMost = 24;          // nodes that are divided
inline constexpr double kWorkPart = 0.5;  // of the work that is left
}  // namespace halves

// The bound at given prices (limit/pricer.cpp).
namespace pricer {
inline constexpr Patience kPatience = {24, 4, 0.02, 1e-4};
inline constexpr Patience kLongPatience = {128, 8, 0.01, 1e-6};  // where the bound counts
// Where nothing is alike, and passes are dear. With 400 of them a step of U-Net in 273 MiB had two
// prices in all its work, and plans 9 % dearer in four times the CPU seconds.
inline constexpr Patience kAlonePatience = {40, 4, 0.01, 3e-4};
inline constexpr double kFoldingWork = 20;  // per node and edge
}  // namespace pricer

// Prices by cutting planes (limit/prices.cpp).
namespace prices {
inline constexpr int kSteps = 40;
inline constexpr std::size_t kPoolSize = 24;
inline constexpr std::size_t kMostRows = 24, kRowsAtOnce = 4;
inline constexpr double kCloseEnough = 1e-5;  // of the bound, to the program's value
// Times what the costliest labelling is worth. Prices of 4 were six steps too high on a step of 8B
// in 17 GiB; lower ones than 1 took more steps where the limit doubles the cost (Mixtral, 4 GiB).
// They grow twofold, and eightfold beyond kFarReach: where that does not suffice, most likely
// nothing fits, and a bound above all that is possible says so (a step of ResNet-50 in 200 MiB of
// which nothing fits: 84 CPU seconds, 115 with steps of two up to 4096).
inline constexpr double kFirstReach = 1, kFarReach = 16, kMostReach = 65536;
inline constexpr double kGrowth = 2, kFarGrowth = 8;
// How far the prices stay behind, towards the best so far: more after a step that gained little.
inline constexpr double kInwards = 0.3, kInwardsInVain = 0.5;  // half as far after a worse bound
// So many steps that gain less than that part of what is missing end it; one that favours what was
// met before counts twice.
inline constexpr int kInVain = 4;
inline constexpr double kGained = 0.1;
}  // namespace prices

// Column generation (limit/columns.cpp).
namespace columns {
inline constexpr int kRounds = 12;
inline constexpr double kNodeWork = 20;       // of finding like nodes, per node and edge
inline constexpr double kCloseEnough = 1e-4;  // of the value
inline constexpr double kConverged = 2e-4;    // the bound is as good as the mix
inline constexpr int kPatience = 3;           // rounds without news
inline constexpr double kNews = 0.05;         // of the gap
inline constexpr double kNear = 0.05;         // of the bound
}  // namespace columns

// Mixes of what was met (limit/mixes.cpp).
namespace mixes {
inline constexpr Patience kSettling = {24, 4, 0};
inline constexpr int kSteps = 40;
inline constexpr StepReach kReach = {0.01, 1e-4};
inline constexpr double kRowsPart = 0.2;  // of the work that is left, for these steps
inline constexpr double kClosingWork = 1e8;
}  // namespace mixes

// Message passing (bound/dual.cpp).
namespace dual {
inline constexpr int kSweeps = 10;  // of better single labels
}  // namespace dual

// Like nodes (bound/fold.cpp).
namespace fold {
inline constexpr double kMostLeft = 0.5;  // of the nodes; more is not worth the folding
inline constexpr int kFoldRounds = 8;
}  // namespace fold

// Passes of messages (bound/settle.hpp).
namespace settle {
inline constexpr double kQuickly = 1e-6;  // of the bound; passes of floats are no more exact
inline constexpr Patience kFolded = {64, 8, 0.005, 1e-5};  // of like nodes, before single ones
inline constexpr int kStride = 4;  // passes between two that go on in the direction so far
// From messages of nothing, where the bound counts: passes are cheap beside trials at cutoffs. With
// 100 of them, or fewer from where four gained less than 2 % of the gap, a step of U-Net ended 3 %
// above its bound, one of ResNet-50 15 %.
inline constexpr Patience kThorough = {400, 4, 0.001, 1e-5};
}  // namespace settle

// Like parts (bound/like_parts.cpp).
namespace like_parts {
inline constexpr int kMostExactPasses = 16;
inline constexpr double kExactGain = 0.1;  // of what is missing; a pass that gains less is the last
inline constexpr double kFewAlive = 0.3;   // of the labels
}  // namespace like_parts

// Steps on prices (bound/subgradient.cpp).
namespace subgradient {
inline constexpr double kGain = 0.05;     // of what is aimed at; a step that gains less is in vain
inline constexpr double kGoodGain = 0.3;  // then the aim is moved further
inline constexpr double kFurther = 1.5;
inline constexpr int kInVain = 6;  // so many steps, and the aim is halved
inline constexpr double kMomentum = 0.5;
// A step is never so long that sums of the old and the new size would lose digits.
inline constexpr double kLongest = 100;
// Than the rows of a stretch that have a price: then one more has.
inline constexpr double kWorse = 1.1;
inline constexpr double kRowWork = 10;
// Repairs get a part of the work, and are for multipliers that have settled a little.
// Less where what is met is combined later on.
inline constexpr double kRepairs = 0.4, kFewRepairs = 0.1;
inline constexpr std::size_t kMostMet = 20;  // labellings
inline constexpr int kStepsToRepair = 4;
}  // namespace subgradient

// The simplex method (bound/master.cpp).
namespace master {
// Then by Bland's rule, which ends; and so many times these are the last. Chosen, as the others but
// for the work of an entry, and not measured: few programs get there.
inline constexpr int kDantzigPivots = 1000, kPivotsPerPart = 4, kMostRounds = 3;
inline constexpr int kPivotsToRenew = 100;
inline constexpr double kEntryWork = 0.25;  // entries are read one after the other
// What enters is the best of so many parts.
inline constexpr std::size_t kPartsAtOnce = 32, kPartOfParts = 32;
}  // namespace master

// Branch and bound (branch/explore.cpp).
namespace explore {
inline constexpr double kDenseEntries = 4e6;  // more than this stays in shared tables
inline constexpr Patience kPatience = {40, 4, 0.02};
inline constexpr int kSteps = 30;
inline constexpr double kNodeWork = 2000;  // of building and reducing, per node
// Entries of the networks on the way down: with more nothing is branched on. A step of U-Net in 364
// MiB with --gap 0.5% had 6.5 GB of them after 200 s, and 10 after 480; with this limit 1.6 GB
// after 150.
inline constexpr double kMostHeld = 6e7;
}  // namespace explore

// Its merging of nodes (branch/merge.cpp).
namespace merge {
inline constexpr double kLabels[] = {64, 256, 1024, 4096};
inline constexpr double kPairs = 64;  // looked at at most, for each label that may be made
}  // namespace merge

// Presolve (network/presolve.cpp).
namespace presolve {
inline constexpr double kMostWork = 60;  // table entries looked at, per entry of the given tables
inline constexpr double kWorthwhile = 0.95;  // of the nodes may be left, else nothing is done
}  // namespace presolve

// Reductions (network/reduce.cpp).
namespace reduce {
inline constexpr double kPathWork = 6e7;       // entries tried when a node between two others goes
inline constexpr double kPathTable = 1 << 19;  // entries of the table that takes its place
inline constexpr double kDominanceWork = 3e5;  // per table; beyond, its rows are not compared
inline constexpr int kDominanceLabels = 512;
inline constexpr double kGroupWork = 4e6;  // comparisons within the classes of one node
}  // namespace reduce

// Networks (network/network.cpp).
namespace network {
// A node that only takes up others waits with more.
inline constexpr std::size_t kSeparatedUses = 16;
}  // namespace network

// Plans combined part by part (plans/combine.cpp).
namespace combine {
inline constexpr int kRounds = 40;
inline constexpr std::size_t kFirstVariants = 4;  // of a part, in the first program
inline constexpr std::size_t kMoreVariants = 2;   // in each further one
// A capacity's price is at most so many times the cost.
inline constexpr double kMost = 1, kVeryMost = 1e4;
// By higher prices a mix may fit: tried where that is cheap, or so much of the capacity is missing.
inline constexpr std::size_t kFewParts = 100;
inline constexpr double kLittle = 0.02;
inline constexpr double kBetter = 1e-9;  // of the cost, that a variant must be better by
inline constexpr int kChain = 6;         // moves that make up for one that does not fit
inline constexpr int kSweeps = 4;
inline constexpr double kChoosingWork = 2e7;  // for all sweeps
// Where a time is given for all, as a part of the work that is left, and for more sweeps: of
// 5,000 nodes that only share rows a plan 0.33 % above the bound gets to 0.25 %.
inline constexpr double kCountedChoosing = 0.1;
inline constexpr int kCountedSweeps = 100;
inline constexpr double kPassedOverWork = 0.2;  // of a part that does not use a row
}  // namespace combine

// The variants of a part (plans/variants.cpp).
namespace variants {
inline constexpr std::size_t kLargestPart = 16;  // the whole divided by that
inline constexpr std::size_t kSmallPart = 24;    // is always small enough
inline constexpr std::size_t kMostVariants = 96;
}  // namespace variants

// Repair (plans/repair.cpp).
namespace repair {
inline constexpr double kVisitWork = 5;     // of a use or an edge that is looked at
inline constexpr double kWorthWhile = 0.7;  // of the best move's worth
}  // namespace repair

// Windows (windows/windows.cpp).
namespace windows {
inline constexpr double kMostArcs = 4e6;
// The first window, as a part of the gap and of the cutoff.
inline constexpr double kFirstPart = 1.0 / 16;
inline constexpr double kFirst = 2e-4;
}  // namespace windows

// Their trellis (windows/trellis.cpp).
namespace trellis {
inline constexpr double kPruneArcs = 1e5;           // as many since the last time
inline constexpr double kMostBeforePruning = 1.25;  // of the most arcs
inline constexpr double kArcWork = 4;
inline constexpr std::size_t kNarrow = 2000;  // frontiers
}  // namespace trellis

// The sweep over it (windows/exact_sweep.cpp).
namespace exact_sweep {
inline constexpr double kStateWork = 2.5, kCompareWork = 0.5;
inline constexpr std::size_t kMostStates = 200000;    // of a layer
inline constexpr std::size_t kStatesAtOnce = 1024;    // between two looks at the budget
inline constexpr std::size_t kMostTraces = 40000000;  // of all layers
}  // namespace exact_sweep

}  // namespace effort
}  // namespace autopar::solver
