// What programs with collectives cost: every op on its local shapes, every collective by its
// groups.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "autopar/report.hpp"
#include "cli/one_device.hpp"
#include "cli/show_program.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

// Terms of one program and its memory.
Status add_program(const PlanFile& file, std::size_t number, const Cluster& cluster,
                   ProgramPrice& price) {
  const Graph& program = file.plan.program;
  const OnOneDevice one = on_one_device(program);
  // What of a program is one kernel but views is not known: prices are ideal.
  Cluster ideal = cluster;
  ideal.profile = {};
  RooflineModel model(std::move(ideal), one.strategy.mesh);
  AUTOPAR_TRY(cost, evaluate(program, one.rules, one.strategy, model));
  price.memory.push_back(cost.memory);
  price.held.push_back(std::move(cost.held));
  AUTOPAR_TRY(collectives, collectives_of(file.plan));
  const std::vector<char> known = known_at_load(program);
  // Many collectives have the same list of groups.
  std::map<std::pair<const void*, std::int64_t>, std::string> tiers;
  std::map<std::tuple<CollectiveKind, const void*, std::int64_t, Bytes>, Seconds> seconds;
  std::map<OpId, ProgramTerm> by_op;
  for (const ProgramCollective& c : collectives) {
    const void* list = &c.groups.values();
    const auto bytes = static_cast<double>(c.input_bytes);
    ProgramTerm term{number, c.op, true, "", 0, sent_bytes(c.collective.kind, bytes, c.group_size)};
    const bool slice = !communicates(c.collective.kind);
    if (!slice) {
      const auto [found, added] = tiers.try_emplace({list, c.group_size});
      if (added) found->second = crossed_tiers(c.groups, c.group_size, cluster);
      term.tiers = found->second;
    }
    if (!slice || !known[program.op(c.op).inputs[0].index()]) {
      const auto [found, added] =
          seconds.try_emplace({c.collective.kind, list, c.group_size, c.input_bytes});
      if (added) {
        found->second =
            collective_seconds(c.collective.kind, bytes, c.groups, c.group_size, cluster);
      }
      term.seconds = found->second;
    }
    by_op[c.op] = term;
  }
  for (const CostTerm& term : cost.terms) {
    const auto found = by_op.find(term.op);
    price.terms.push_back(found != by_op.end()
                              ? found->second
                              : ProgramTerm{number, term.op, false, "", term.seconds, 0});
  }
  return Ok{};
}

// The clocks of all ranks, from meeting to meeting.
class Clocks {
 public:
  Clocks(const std::vector<PlanFile>& files, const Cluster& cluster,
         const std::vector<ProgramTerm>& terms)
      : files_(files), cluster_(cluster), ranks_(static_cast<std::size_t>(files[0].world_size)) {
    for (const PlanFile& file : files) {
      before_.emplace_back(file.plan.program.ops.size() + 1);
      calls_.emplace_back(file.plan.program.ops.size());
    }
    for (const ProgramTerm& term : terms) {
      const Op& op = files[term.file].plan.program.op(term.op);
      const auto kind = parse_collective_kind(op.type);
      const bool waits = term.collective && kind && communicates(*kind);
      (waits ? calls_[term.file][term.op.index()] : before_[term.file][term.op.index() + 1]) +=
          term.seconds;
    }
    for (auto& sums : before_) {
      for (std::size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
    }
  }

  void meet(const std::vector<Caller>& callers) {
    Seconds start = 0;
    for (const Caller& caller : callers) start = std::max(start, arrival(caller));
    const Seconds end = start + seconds_of(callers);
    for (const Caller& caller : callers) {
      ranks_[static_cast<std::size_t>(caller.rank)] = {end, caller.op.index() + 1};
    }
  }

  Seconds end() const {
    Seconds last = 0;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      for (std::int64_t rank : files_[f].ranks) {
        const Rank& at = ranks_[static_cast<std::size_t>(rank)];
        last = std::max(last, at.clock + before_[f].back() - before_[f][at.next]);
      }
    }
    return last;
  }

 private:
  struct Rank {
    Seconds clock = 0;
    std::size_t next = 0;  // op
  };

  Seconds arrival(const Caller& caller) const {
    const Rank& at = ranks_[static_cast<std::size_t>(caller.rank)];
    const auto& sums = before_[caller.program];
    return at.clock + sums[caller.op.index()] - sums[at.next];
  }

  // A message takes what its own two ranks need, not the slowest pair of the op.
  Seconds seconds_of(const std::vector<Caller>& callers) const {
    const Caller& first = callers[0];
    const Graph& program = files_[first.program].plan.program;
    const Op& op = program.op(first.op);
    if (op.type != name_of(CollectiveKind::kSend)) return calls_[first.program][first.op.index()];
    return collective_seconds(CollectiveKind::kSend,
                              static_cast<double>(program.value(op.inputs[0]).bytes()),
                              {callers[0].rank, callers[1].rank}, 2, cluster_);
  }

  const std::vector<PlanFile>& files_;
  const Cluster& cluster_;
  std::vector<std::vector<Seconds>> before_;  // by program: of local ops before each
  std::vector<std::vector<Seconds>> calls_;   // by program, by op
  std::vector<Rank> ranks_;
};

bool sends_messages(const std::vector<PlanFile>& files) {
  for (const PlanFile& file : files) {
    for (const Op& op : file.plan.program.ops) {
      const auto kind = parse_collective_kind(op.type);
      if (is_collective(op) && kind && is_message(*kind)) return true;
    }
  }
  return false;
}

}  // namespace

Result<ProgramPrice> price_programs(const std::vector<PlanFile>& files, const Cluster& cluster) {
  const std::int64_t world_size = files[0].world_size;
  if (world_size > cluster.device_count()) {
    return input_error(files[0].path + ": is for " + std::to_string(world_size) +
                       " ranks, the cluster " + cluster.name + " has " +
                       std::to_string(cluster.device_count()) + " devices");
  }
  ProgramPrice price;
  for (std::size_t f = 0; f < files.size(); ++f) {
    AUTOPAR_RETURN_IF_ERROR(add_program(files[f], f, cluster, price));
  }
  if (files.size() == 1 && !sends_messages(files)) {  // all ranks do the same
    for (const ProgramTerm& term : price.terms) price.seconds += term.seconds;
    return price;
  }
  Clocks clocks(files, cluster, price.terms);
  AUTOPAR_RETURN_IF_ERROR(
      prove_order(programs_of(files), world_size,
                  [&](const std::vector<Caller>& callers) { clocks.meet(callers); }));
  price.seconds = clocks.end();
  return price;
}

namespace {

struct Sums {
  Seconds compute = 0, communication = 0;
  double sent = 0;
};

Sums sums_of(const ProgramPrice& price, std::size_t file) {
  Sums sums;
  for (const ProgramTerm& term : price.terms) {
    if (term.file != file) continue;
    (term.collective ? sums.communication : sums.compute) += term.seconds;
    sums.sent += term.sent_bytes;
  }
  return sums;
}

// By hand programs may say their ranks alone; then they are numbered as they are read.
std::string stage_text(const std::vector<PlanFile>& files, std::size_t f) {
  const PlanMetadata& metadata = files[f].metadata;
  if (metadata.ranks.empty()) return "";
  return "stage " + (metadata.stage < 0 ? std::to_string(f) : std::to_string(metadata.stage)) + " ";
}

}  // namespace

std::string price_table(const std::vector<PlanFile>& files, const ProgramPrice& price) {
  TextTable table{{{"op", "what", "tiers", "time", "sent/rank"}},
                  {false, false, false, true, true}};
  std::map<std::pair<std::size_t, OpId>, std::string> what;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto collectives = collectives_of(files[f].plan);
    AUTOPAR_CHECK(collectives.ok(), "a priced program has collectives that can be read");
    for (const ProgramCollective& c : *collectives) {
      what[{f, c.op}] = collective_text(files[f].plan, c);
    }
  }
  for (const ProgramTerm& term : price.terms) {
    const Op& op = files[term.file].plan.program.op(term.op);
    const auto found = what.find({term.file, term.op});
    table.rows.push_back({stage_text(files, term.file) + op.name,
                          found == what.end() ? op.type : found->second, term.tiers,
                          format_seconds(term.seconds),
                          term.sent_bytes > 0 ? format_bytes(term.sent_bytes) : ""});
  }
  std::string text = to_text(table);
  for (std::size_t f = 0; f < files.size(); ++f) {
    const Sums sums = sums_of(price, f);
    text += "\n  " + stage_text(files, f) + "on a rank: " + format_seconds(sums.compute) +
            " compute, " + format_seconds(sums.communication) + " communication (" +
            format_bytes(sums.sent) + " sent), " +
            format_bytes(static_cast<double>(price.memory[f].total)) + " of memory";
  }
  return text + "\n  " + std::to_string(files[0].world_size) +
         " ranks: " + format_seconds(price.seconds) + ", " + kIdealPrices + "\n";
}

std::string price_json(const std::vector<PlanFile>& files, const ProgramPrice& price) {
  Json j = {{"format", "autopar-program-price"},
            {"version", 1},
            {"ranks", files[0].world_size},
            {"seconds", price.seconds}};
  j["programs"] = Json::array();
  for (std::size_t f = 0; f < files.size(); ++f) {
    const Sums sums = sums_of(price, f);
    Json program = {{"ranks", files[f].ranks.size()},
                    {"compute_seconds", sums.compute},
                    {"communication_seconds", sums.communication},
                    {"sent_bytes", sums.sent},
                    {"memory_bytes", price.memory[f].total}};
    program["terms"] = Json::array();
    for (const ProgramTerm& term : price.terms) {
      if (term.file != f) continue;
      const Op& op = files[f].plan.program.op(term.op);
      Json entry = {{"op", op.name}, {"type", op.type}, {"seconds", term.seconds}};
      if (term.collective) {
        entry["tiers"] = term.tiers;
        entry["sent_bytes"] = term.sent_bytes;
      }
      program["terms"].push_back(std::move(entry));
    }
    j["programs"].push_back(std::move(program));
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace autopar::cli
