#include "cli/price_step.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "autopar/report.hpp"
#include "cli/show_step.hpp"
#include "exec/wiring.hpp"
#include "support/counted.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;
using Kind = InputSource::Kind;

double bytes_in(const BoundaryValue& value, const Shape& extent) {
  return static_cast<double>(element_count(extent) * size_of(value.dtype));
}

// What moving one micro-batch of a value takes.
struct MessagePrice {
  Seconds seconds = 0;
  double sent = 0;  // by the rank that sends most
};

using Pairs = std::map<std::pair<std::int64_t, std::int64_t>, double>;  // from, to: bytes

void add_pieces(const ValueMovement& movement, const RunRequest& request, Pairs& bytes) {
  const RunProgram& reader = request.programs[movement.reader];
  const BoundaryValue& value = reader.inputs[movement.input];
  for (std::size_t p = 0; p < movement.slices.pieces.size(); ++p) {
    const std::int64_t to = rank_at(reader, static_cast<std::int64_t>(p));
    for (const MovedPiece& piece : movement.slices.pieces[p]) {
      if (piece.from != to) bytes[{piece.from, to}] += bytes_in(value, piece.block.extent);
    }
  }
}

// A rank waits for the start of its messages once, and for their bytes one after the other.
MessagePrice price_of(const Pairs& bytes, const Cluster& cluster) {
  struct OfRank {
    Seconds start = 0, bytes = 0;
    double sent = 0;
  };
  std::map<std::pair<bool, std::int64_t>, OfRank> of_rank;  // as sender, as receiver
  for (const auto& [ranks, sent] : bytes) {
    const auto& [from, to] = ranks;
    const auto seconds = [&, from = from, to = to](double size) {
      return collective_seconds(CollectiveKind::kSend, size, {from, to}, 2, cluster);
    };
    const Seconds start = seconds(1);
    for (OfRank* rank : {&of_rank[{true, from}], &of_rank[{false, to}]}) {
      rank->start = std::max(rank->start, start);
      rank->bytes += seconds(sent) - start;
    }
    of_rank[{true, from}].sent += sent;
  }
  MessagePrice most;
  for (const auto& [rank, price] : of_rank) {
    most.seconds = std::max(most.seconds, price.start + price.bytes);
    most.sent = std::max(most.sent, price.sent);
  }
  return most;
}

class StepPricing {
 public:
  StepPricing(const std::vector<PlanFile>& files, const RunRequest& request, Wiring wiring,
              const Cluster& cluster, StepPrice& price)
      : files_(files), request_(request), wiring_(std::move(wiring)), price_(price) {
    for (std::size_t l = 0; l < wiring_.lines.size(); ++l) {
      for (const ProgramCall& call : wiring_.lines[l]) line_of_program_[call.program] = l;
    }
    std::map<std::pair<std::size_t, std::size_t>, Pairs> bytes;
    for (const ValueMovement& movement : wiring_.movements) {
      const Port maker = movement.maker;
      // What the next step reads goes with that.
      if (wiring_.outputs[maker.program][maker.output].is_next_value) continue;
      add_pieces(movement, request, bytes[{maker.program, line_of_program_.at(movement.reader)}]);
    }
    for (const auto& [way, of_way] : bytes) {
      messages_[way.first].push_back({way.second, price_of(of_way, cluster)});
    }
  }

  void run() {
    price_.lines.resize(wiring_.lines.size());
    std::vector<std::size_t> at(wiring_.lines.size());
    // The wiring is proven to come to its end.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t l = 0; l < wiring_.lines.size(); ++l) {
        for (; at[l] < wiring_.lines[l].size(); ++at[l]) {
          const auto start = start_of(wiring_.lines[l][at[l]]);
          if (!start) break;
          call(wiring_.lines[l][at[l]], std::max(*start, price_.lines[l].ended), l);
          moved = true;
        }
      }
    }
    for (std::size_t l = 0; l < wiring_.lines.size(); ++l) {
      price_.lines[l].memory = memory_of(l);
      price_.seconds = std::max(price_.seconds, price_.lines[l].ended);
    }
  }

 private:
  using Made = std::pair<Port, std::int64_t>;
  struct Message {
    std::size_t to = 0;  // line
    MessagePrice price;
  };

  // When all that a call reads is there; nothing: that is not known yet.
  std::optional<Seconds> start_of(const ProgramCall& call) const {
    Seconds start = 0;
    for (const InputSource& source : wiring_.inputs[call.program]) {
      if (source.kind != Kind::kMade) continue;
      const auto made = made_.find({source.maker.program, call.micro_batch});
      if (made == made_.end()) return std::nullopt;
      start = std::max(start, made->second);
      if (!source.movement) continue;
      const std::size_t line = line_of_program_.at(call.program);
      start = std::max(start, arrived_.at({source.maker.program, call.micro_batch, line}));
    }
    return start;
  }

  void call(const ProgramCall& call, Seconds start, std::size_t line) {
    const Seconds seconds = price_.programs[call.program].seconds;
    const Seconds end = start + seconds;
    price_.lines[line].busy += seconds;
    price_.lines[line].ended = end;
    made_[{call.program, call.micro_batch}] = end;
    const auto messages = messages_.find(call.program);
    if (messages == messages_.end()) return;
    for (const auto& [to, message] : messages->second) {
      Seconds& link = links_[{line, to}];
      link = std::max(link, end) + message.seconds;
      arrived_[{call.program, call.micro_batch, to}] = link;
      price_.lines[line].sent += message.sent;
    }
  }

  // What is stored, each layout once, and the most that at one time waits for readers and is beside
  // the inputs of the program that runs. What that is the last to read is there until its last
  // reader.
  // Of a model that is not trained, data and outputs of all micro-batches are there.
  std::int64_t times_held(std::size_t program, const std::string& name, bool is_input) const {
    const Step& step = *request_.step;
    if (!files_[program].metadata.data) return 1;
    const auto is_it = [&name](const auto& one) { return one.name == name; };
    const bool is_cut =
        is_input
            ? std::any_of(step.micro_inputs.begin(), step.micro_inputs.end(), is_it)
            : std::any_of(step.outputs.begin(), step.outputs.end(), [&](const StepOutput& one) {
                return is_it(one) && one.combining == Combining::kConcat;
              });
    return is_cut ? step.micro_batches : 1;
  }

  Bytes memory_of(std::size_t line) const {
    std::set<std::tuple<std::string, std::string>> stored;
    Bytes held = 0, now = 0, most = 0;
    struct Waiting {
      int readers = 0;
      Bytes bytes = 0;
    };
    std::map<Made, Waiting> waiting;
    std::set<std::size_t> programs;
    std::map<Port, int> readers_of;
    for (const auto& [program, of_program] : line_of_program_) {
      if (of_program != line) continue;
      for (const InputSource& source : wiring_.inputs[program]) {
        if (source.kind == Kind::kMade) ++readers_of[source.maker];
      }
    }
    for (const ProgramCall& call : wiring_.lines[line]) {
      const RunProgram& program = request_.programs[call.program];
      if (programs.insert(call.program).second) {
        for (std::size_t i = 0; i < program.inputs.size(); ++i) {
          const BoundaryValue& value = program.inputs[i];
          if (wiring_.inputs[call.program][i].kind == Kind::kMade) continue;
          if (stored.insert({value.name, to_text(value.spec, program.mesh)}).second) {
            held += times_held(call.program, value.name, true) *
                    local_bytes(value.spec, value.shape, value.dtype, program.mesh);
          }
        }
        for (const BoundaryValue& value : program.outputs) {
          held += (times_held(call.program, value.name, false) - 1) *
                  local_bytes(value.spec, value.shape, value.dtype, program.mesh);
        }
        // Whole, and the same in all programs.
        for (const BoundaryValue& weight : files_[call.program].metadata.weights_io) {
          if (!stored.insert({weight.name, "in the program"}).second) continue;
          held += element_count(weight.shape) * size_of(weight.dtype);
        }
      }
      std::vector<std::pair<std::size_t, Made>> read;  // inputs
      for (std::size_t i = 0; i < program.inputs.size(); ++i) {
        const InputSource& source = wiring_.inputs[call.program][i];
        if (source.kind != Kind::kMade) continue;
        const Made made{source.maker, call.micro_batch};
        read.emplace_back(i, made);
        if (waiting.count(made) != 0) continue;
        // From another line.
        const BoundaryValue& value = program.inputs[i];
        const Bytes bytes = local_bytes(value.spec, value.shape, value.dtype, program.mesh);
        waiting[made] = {readers_of[source.maker], bytes};
        now += bytes;
      }
      std::vector<std::pair<std::size_t, Bytes>> freed;
      Bytes after = now;
      for (const auto& [input, made] : read) {
        const auto left = waiting.find(made);
        if (--left->second.readers > 0) continue;
        freed.emplace_back(input, left->second.bytes);
        after -= left->second.bytes;
        waiting.erase(left);
      }
      most = std::max(most, now + beside_inputs(call.program, freed));
      now = after;
      for (std::size_t o = 0; o < program.outputs.size(); ++o) {
        const auto readers = readers_of.find({call.program, o});
        if (readers == readers_of.end()) continue;
        const Bytes bytes = bytes_of({call.program, o});
        waiting[{{call.program, o}, call.micro_batch}] = {readers->second, bytes};
        now += bytes;
      }
      most = std::max(most, now);
    }
    return held + most;
  }

  // The most of a program beside all of its inputs, of which some, by number, go with their last
  // readers.
  Bytes beside_inputs(std::size_t program,
                      const std::vector<std::pair<std::size_t, Bytes>>& freed) const {
    const Graph& graph = files_[program].plan.program;
    const std::vector<Bytes>& held = price_.programs[program].held.front();
    std::map<ValueId, Bytes> until_read;
    for (const auto& [input, bytes] : freed) until_read[graph.inputs[input]] = bytes;
    std::vector<Bytes> gone(held.size() + 1, 0);
    for (std::size_t o = held.size(); o-- > 0;) {
      for (const ValueId id : graph.ops[o].inputs) {
        const auto found = until_read.find(id);
        if (found == until_read.end()) continue;
        gone[o + 1] += found->second;
        until_read.erase(found);
      }
    }
    const Bytes inputs = price_.programs[program].memory.front().parameters;
    Bytes most = 0, so_far = 0;
    for (std::size_t o = 0; o < held.size(); ++o) {
      so_far += gone[o];
      most = std::max(most, held[o] - inputs - so_far);
    }
    return most;
  }

  Bytes bytes_of(Port port) const {
    const RunProgram& program = request_.programs[port.program];
    const BoundaryValue& value = program.outputs[port.output];
    return local_bytes(value.spec, value.shape, value.dtype, program.mesh);
  }

  const std::vector<PlanFile>& files_;
  const RunRequest& request_;
  const Wiring wiring_;
  StepPrice& price_;
  std::map<std::size_t, std::vector<Message>> messages_;  // by program, to other lines and its own
  std::map<std::size_t, std::size_t> line_of_program_;
  std::map<std::pair<std::size_t, std::int64_t>, Seconds> made_;  // by program, micro-batch
  std::map<std::tuple<std::size_t, std::int64_t, std::size_t>, Seconds> arrived_;  // and line
  std::map<std::pair<std::size_t, std::size_t>, Seconds> links_;  // by lines, from and to
};

struct Sums {
  Seconds compute = 0, communication = 0;
  double sent = 0;
};

Sums sums_of(const ProgramPrice& price) {
  Sums sums;
  for (const ProgramTerm& term : price.terms) {
    (term.collective ? sums.communication : sums.compute) += term.seconds;
    sums.sent += term.sent_bytes;
  }
  return sums;
}

std::size_t calls_of(const Step& step, const StepProgram& program) {
  std::size_t count = 0;
  for (const StepLine& line : step.lines) {
    count += static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [&](const auto& a) {
      return a.chunk == program.chunk && a.phase == program.phase;
    }));
  }
  return count;
}

std::string ranks_of_line(const Step& step, std::size_t line) {
  if (step.lines[line].empty()) return "";
  const std::vector<std::int64_t>& ranks = program_of(step, step.lines[line][0])->ranks;
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  return std::to_string(*least) + " to " + std::to_string(*most);
}

}  // namespace

Result<StepPrice> price_step(const Step& step, const std::vector<PlanFile>& files,
                             const Cluster& cluster) {
  StepPrice price;
  for (const PlanFile& file : files) {
    AUTOPAR_TRY(program, price_programs({file}, cluster));
    price.programs.push_back(std::move(program));
  }
  const RunRequest request = request_of_values(step, files);
  AUTOPAR_RETURN_IF_ERROR(verify_request(request));
  AUTOPAR_TRY(wiring, wiring_of(request));
  StepPricing(files, request, std::move(wiring), cluster, price).run();
  return price;
}

std::string step_price_table(const Step& step, const std::vector<PlanFile>& files,
                             const StepPrice& price) {
  TextTable programs{{{"program", "ranks", "runs", "compute", "communication", "sent/rank"}},
                     {false, true, true, true, true, true}};
  for (std::size_t p = 0; p < files.size(); ++p) {
    const Sums sums = sums_of(price.programs[p]);
    programs.rows.push_back({step.programs[p].file, std::to_string(step.programs[p].ranks.size()),
                             std::to_string(calls_of(step, step.programs[p])),
                             format_seconds(sums.compute), format_seconds(sums.communication),
                             sums.sent > 0 ? format_bytes(sums.sent) : ""});
  }
  TextTable lines{{{"ranks", "busy", "idle", "messages/rank", "memory/rank"}},
                  {false, true, true, true, true}};
  for (std::size_t l = 0; l < price.lines.size(); ++l) {
    const LinePrice& line = price.lines[l];
    lines.rows.push_back({ranks_of_line(step, l), format_seconds(line.busy),
                          format_seconds(price.seconds - line.busy), format_bytes(line.sent),
                          format_bytes(static_cast<double>(line.memory))});
  }
  return to_text(programs) + "\n" + to_text(lines) + "\n  " + counted(step.world_size, "rank") +
         ", " + counted(step.micro_batches, "micro-batch", "micro-batches") + ": " +
         format_seconds(price.seconds) + ", " + kIdealPrices + "\n";
}

std::string step_price_json(const Step& step, const std::vector<PlanFile>& files,
                            const StepPrice& price) {
  Json j = {{"format", "autopar-step-price"},
            {"version", 1},
            {"ranks", step.world_size},
            {"micro_batches", step.micro_batches},
            {"seconds", price.seconds}};
  j["programs"] = Json::array();
  for (std::size_t p = 0; p < files.size(); ++p) {
    const Sums sums = sums_of(price.programs[p]);
    j["programs"].push_back({{"file", step.programs[p].file},
                             {"chunk", step.programs[p].chunk},
                             {"phase", name_of(step.programs[p].phase)},
                             {"runs", calls_of(step, step.programs[p])},
                             {"seconds", price.programs[p].seconds},
                             {"compute_seconds", sums.compute},
                             {"communication_seconds", sums.communication},
                             {"sent_bytes", sums.sent},
                             {"memory_bytes", price.programs[p].memory.front().total}});
  }
  j["lines"] = Json::array();
  for (std::size_t l = 0; l < price.lines.size(); ++l) {
    const LinePrice& line = price.lines[l];
    const bool is_empty = step.lines[l].empty();
    j["lines"].push_back(
        {{"ranks", is_empty ? Json::array() : Json(program_of(step, step.lines[l][0])->ranks)},
         {"busy_seconds", line.busy},
         {"idle_seconds", price.seconds - line.busy},
         {"message_bytes", line.sent},
         {"memory_bytes", line.memory}});
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace autopar::cli
