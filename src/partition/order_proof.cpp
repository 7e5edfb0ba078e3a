#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_map>

#include "partition/calls.hpp"

namespace autopar {
namespace {

// All ranks' sequences of calls, played against each other. A call waits until all ranks of its
// group (of a message: sender and receiver) are there, so what has met never depends on who goes
// first: one order of play stands for all.
class Play {
 public:
  using Met = std::function<void(const std::vector<Caller>&)>;

  Play(std::vector<Calls> programs, std::int64_t world_size, Met met)
      : programs_(std::move(programs)),
        ranks_(static_cast<std::size_t>(world_size)),
        met_(std::move(met)) {
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      if (!met_) drop_repeats(programs_[p].collectives);
      for (std::int64_t rank : programs_[p].program->ranks) state(rank).program = p;
      places_.push_back(places_of(programs_[p]));
    }
  }

  Status run() {
    for (std::size_t rank = ranks_.size(); rank-- > 0;) ready_.push_back(as_rank(rank));
    while (!ready_.empty()) {
      const std::int64_t rank = ready_.back();
      ready_.pop_back();
      AUTOPAR_RETURN_IF_ERROR(call(rank));
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!at_end(as_rank(rank))) return stopped(as_rank(rank));
    }
    return Ok{};
  }

 private:
  // Where the ranks stand in a list of groups.
  struct Places {
    // Collectives: the group's index in groups_, -1 in none.
    std::vector<std::int32_t> group;
    // Messages: to whom a rank sends, from whom it receives; -1 nobody.
    std::vector<std::int32_t> receiver, sender;
  };
  struct Group {
    std::vector<std::int64_t> ranks;
    std::int64_t first = -1;  // the first that came
    std::size_t waiting = 0;
  };
  struct Rank {
    std::size_t program = 0;
    std::size_t next = 0;  // call
    bool waits = false;    // in it
  };

  static std::int64_t as_rank(std::size_t index) { return static_cast<std::int64_t>(index); }
  Rank& state(std::int64_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& state(std::int64_t rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const std::vector<CollectiveOfProgram>& calls(std::int64_t rank) const {
    return programs_[state(rank).program].collectives;
  }
  const CollectiveOfProgram& next(std::int64_t rank) const { return calls(rank)[state(rank).next]; }
  const Places& places(std::int64_t rank) const {
    return *places_[state(rank).program][state(rank).next];
  }
  bool at_end(std::int64_t rank) const { return state(rank).next == calls(rank).size(); }
  // -1: takes no part in the message that is next.
  std::int64_t partner(std::int64_t rank) const {
    const Places& at = places(rank);
    const auto& list = next(rank).kind == CollectiveKind::kSend ? at.receiver : at.sender;
    return list[static_cast<std::size_t>(rank)];
  }

  // Once a group has met, it meets again in the calls that follow over the same groups.
  static void drop_repeats(std::vector<CollectiveOfProgram>& calls) {
    std::vector<CollectiveOfProgram> kept;
    for (CollectiveOfProgram& call : calls) {
      const bool repeats = !kept.empty() && !call.spans && !is_message(call.kind) &&
                           !is_message(kept.back().kind) && call.groups == kept.back().groups &&
                           call.group_size == kept.back().group_size;
      if (!repeats) kept.push_back(std::move(call));
    }
    calls = std::move(kept);
  }

  std::vector<std::shared_ptr<const Places>> places_of(const Calls& program) {
    std::map<std::pair<const void*, std::int64_t>, std::shared_ptr<const Places>> seen;
    std::vector<std::shared_ptr<const Places>> result;
    for (const CollectiveOfProgram& call : program.collectives) {
      const bool message = is_message(call.kind);
      auto& places = seen[{call.groups, message ? -2 : call.group_size}];
      if (!places) places = message ? pairs_of(call) : groups_of(call);
      result.push_back(places);
    }
    return result;
  }

  std::shared_ptr<const Places> pairs_of(const CollectiveOfProgram& call) const {
    auto places = std::make_shared<Places>();
    places->receiver.assign(ranks_.size(), -1);
    places->sender.assign(ranks_.size(), -1);
    for (std::size_t i = 0; i < call.groups->size(); i += 2) {
      const std::int64_t from = (*call.groups)[i], to = (*call.groups)[i + 1];
      places->receiver[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(to);
      places->sender[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(from);
    }
    return places;
  }

  std::shared_ptr<const Places> groups_of(const CollectiveOfProgram& call) {
    auto places = std::make_shared<Places>();
    places->group.assign(ranks_.size(), -1);
    for (auto at = call.groups->begin(); at != call.groups->end(); at += call.group_size) {
      std::vector<std::int64_t> ranks(at, at + call.group_size);
      auto index = static_cast<std::int32_t>(groups_.size());
      // Only groups over several programs stand in several lists.
      if (call.spans) index = shared_groups_.try_emplace(ranks, index).first->second;
      for (std::int64_t rank : ranks) places->group[static_cast<std::size_t>(rank)] = index;
      if (static_cast<std::size_t>(index) == groups_.size()) {
        groups_.push_back({std::move(ranks)});
      }
    }
    return places;
  }

  void go_on(std::int64_t rank) {
    Rank& at = state(rank);
    ++at.next;
    at.waits = false;
    ready_.push_back(rank);
  }

  Status call(std::int64_t rank) {
    while (!at_end(rank) && is_message(next(rank).kind) && partner(rank) < 0) ++state(rank).next;
    if (at_end(rank)) return Ok{};
    state(rank).waits = true;
    return is_message(next(rank).kind) ? exchange(rank) : meet(rank);
  }

  Status meet(std::int64_t rank) {
    Group& group =
        groups_[static_cast<std::size_t>(places(rank).group[static_cast<std::size_t>(rank)])];
    if (group.waiting++ == 0) {
      group.first = rank;
    } else if (next(rank).op != next(group.first).op) {
      AUTOPAR_RETURN_IF_ERROR(check_alike(rank, group));
    }
    if (group.waiting < group.ranks.size()) return Ok{};
    group.waiting = 0;
    tell(group.ranks);
    for (std::int64_t member : group.ranks) go_on(member);
    return Ok{};
  }

  void tell(const std::vector<std::int64_t>& ranks) const {
    if (!met_) return;
    std::vector<Caller> callers;
    for (std::int64_t rank : ranks) {
      const std::size_t p = state(rank).program;
      const Op* first = programs_[p].program->program->ops.data();
      callers.push_back({rank, p, OpId(next(rank).op - first)});
    }
    met_(callers);
  }

  Status check_alike(std::int64_t came, const Group& group) const {
    const auto [reference, rank] = std::minmax(came, group.first);
    const CollectiveOfProgram& mine = next(rank);
    const CollectiveOfProgram& first = next(reference);
    const std::string call = "rank " + std::to_string(rank) + " issues " + to_text(mine);
    if (mine.kind != first.kind) {
      return input_error(call + " where rank " + std::to_string(reference) + " issues " +
                         to_text(first) + " on the group " + to_text(group.ranks));
    }
    const std::string difference = difference_of(mine, first, reference);
    if (difference.empty()) return Ok{};
    return input_error(call + " on the group " + to_text(group.ranks) + " with " + difference);
  }

  Status exchange(std::int64_t rank) {
    const std::int64_t other = partner(rank);
    if (!state(other).waits || !is_message(next(other).kind) ||
        next(other).kind == next(rank).kind || partner(other) != rank) {
      return Ok{};
    }
    const std::int64_t sender = next(rank).kind == CollectiveKind::kSend ? rank : other;
    const std::int64_t receiver = sender == rank ? other : rank;
    const std::string difference = difference_of(next(receiver), next(sender), sender);
    if (!difference.empty()) {
      return input_error("rank " + std::to_string(receiver) + " issues " + to_text(next(receiver)) +
                         " with " + difference);
    }
    tell({sender, receiver});
    go_on(receiver);
    go_on(sender);
    return Ok{};
  }

  // Whom a rank that waits is kept by: itself waiting elsewhere, or at its end.
  std::int64_t kept_by(std::int64_t rank) const {
    if (is_message(next(rank).kind)) return partner(rank);
    const Group& group = group_of(rank);
    for (std::int64_t member : group.ranks) {
      if (at_end(member) || is_message(next(member).kind) || &group_of(member) != &group) {
        return member;
      }
    }
    AUTOPAR_CHECK(false, "a group that is complete does not wait");
    return rank;
  }

  const Group& group_of(std::int64_t rank) const {
    return groups_[static_cast<std::size_t>(places(rank).group[static_cast<std::size_t>(rank)])];
  }

  std::string where(std::int64_t rank) const {
    const CollectiveOfProgram& call = next(rank);
    std::string text = "rank " + std::to_string(rank) + " issues " + to_text(call);
    if (call.kind == CollectiveKind::kSend)
      return text + " to rank " + std::to_string(partner(rank));
    if (call.kind == CollectiveKind::kRecv)
      return text + " from rank " + std::to_string(partner(rank));
    return text + " on the group " + to_text(group_of(rank).ranks);
  }

  // The ranks from this one on, each kept by the next, up to one that has ended or stood there
  // before: then all from there on wait for each other.
  Error stopped(std::int64_t rank) const {
    std::vector<std::int64_t> chain = {rank};
    while (true) {
      const std::int64_t keeper = kept_by(chain.back());
      const auto before = std::find(chain.begin(), chain.end(), keeper);
      if (before != chain.end()) {
        chain.erase(chain.begin(), before);
        break;
      }
      chain.push_back(keeper);
      if (at_end(keeper)) break;
    }
    if (at_end(chain.back())) return missing(chain[chain.size() - 2], chain.back());
    std::string text = "the ranks stop in a circle: ";
    constexpr std::size_t kMost = 6;
    for (std::size_t i = 0; i < std::min(chain.size(), kMost); ++i) {
      const std::int64_t keeper = chain[(i + 1) % chain.size()];
      text += (i ? "; " : "") + where(chain[i]) + " and waits for rank " + std::to_string(keeper);
    }
    if (chain.size() > kMost) text += "; and " + std::to_string(chain.size() - kMost) + " more";
    return input_error(text);
  }

  Error missing(std::int64_t waits, std::int64_t ended) const {
    const CollectiveOfProgram& call = next(waits);
    std::string expected = "no further collective";
    if (call.kind == CollectiveKind::kSend) expected = "no Recv for it";
    if (call.kind == CollectiveKind::kRecv) expected = "no Send for it";
    return input_error(where(waits) + ", but rank " + std::to_string(ended) + " has " + expected);
  }

  std::vector<Calls> programs_;
  std::vector<std::vector<std::shared_ptr<const Places>>> places_;  // by program, by call
  std::vector<Group> groups_;
  std::map<std::vector<std::int64_t>, std::int32_t> shared_groups_;
  std::vector<Rank> ranks_;
  std::vector<std::int64_t> ready_;
  Met met_;
};

}  // namespace

Status check_ranks(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size, bool all) {
  if (world_size < 1 || world_size > std::int64_t{1} << 20) {
    return input_error("a world of " + std::to_string(world_size) +
                       " ranks; expected from 1 to 1048576");
  }
  std::vector<const ProgramOnRanks*> of(static_cast<std::size_t>(world_size));
  for (const ProgramOnRanks& program : programs) {
    const std::string where = program.name.empty() ? "" : program.name + ": ";
    for (std::int64_t rank : program.ranks) {
      if (rank < 0 || rank >= world_size) {
        return input_error(where + "rank " + std::to_string(rank) + " is none of the world's " +
                           std::to_string(world_size));
      }
      const ProgramOnRanks* other = std::exchange(of[static_cast<std::size_t>(rank)], &program);
      if (other == nullptr) continue;
      return input_error(where + "rank " + std::to_string(rank) + " already runs " +
                         (other == &program ? "it" : other->name) +
                         "; a rank runs exactly one program");
    }
  }
  for (std::size_t rank = 0; all && rank < of.size(); ++rank) {
    if (of[rank] == nullptr) {
      return input_error("rank " + std::to_string(rank) + " of " + std::to_string(world_size) +
                         " runs no program");
    }
  }
  return Ok{};
}

Status prove_order(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size) {
  return prove_order(programs, world_size, {});
}

Status prove_order(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size,
                   const std::function<void(const std::vector<Caller>&)>& met) {
  AUTOPAR_RETURN_IF_ERROR(check_ranks(programs, world_size, true));
  std::vector<Calls> calls;
  bool alike = true;  // the ranks of a program, and no program has to do with another
  for (const ProgramOnRanks& program : programs) {
    AUTOPAR_TRY(found, calls_of(program, world_size));
    for (const CollectiveOfProgram& c : found.collectives) alike &= !c.spans;
    calls.push_back(std::move(found));
  }
  if (alike && !met) return Ok{};
  return Play(std::move(calls), world_size, met).run();
}

}  // namespace autopar
