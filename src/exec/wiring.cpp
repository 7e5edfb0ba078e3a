#include "exec/wiring.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace autopar {

namespace {

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::string type_text(const BoundaryValue& value) {
  return name_of(value.dtype) + to_text(value.shape);
}

bool is_alike(const BoundaryValue& a, const BoundaryValue& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

template <class Named>
std::optional<std::size_t> find_name(const std::vector<Named>& values, const std::string& name) {
  const auto at =
      std::find_if(values.begin(), values.end(), [&](const Named& v) { return v.name == name; });
  if (at == values.end()) return std::nullopt;
  return static_cast<std::size_t>(at - values.begin());
}

// Every rank calls its one program once.
Wiring one_call_each(const RunRequest& request) {
  Wiring wiring;
  wiring.world_size = world_size(request);
  wiring.line_of_rank.resize(static_cast<std::size_t>(wiring.world_size));
  for (std::size_t p = 0; p < request.programs.size(); ++p) {
    const RunProgram& program = request.programs[p];
    wiring.lines.push_back({{p, 0}});
    for (std::int64_t at = 0; at < program.mesh.size(); ++at) {
      wiring.line_of_rank[static_cast<std::size_t>(rank_at(program, at))] = p;
    }
    std::vector<OutputUse>& uses = wiring.outputs.emplace_back();
    for (const BoundaryValue& output : program.outputs) {
      uses.push_back({false, false, wiring.results.size()});
      wiring.results.push_back({p, output, std::nullopt, Combining::kLast});
    }
    std::vector<InputSource>& sources = wiring.inputs.emplace_back();
    for (const BoundaryValue& input : program.inputs) {
      InputSource& source = sources.emplace_back();
      const auto output = find_name(program.outputs, update_of(input.name, request.updates));
      if (!output || !is_alike(program.outputs[*output], input)) continue;
      source.kind = InputSource::Kind::kState;
      source.maker = {p, *output};
      uses[*output].is_next_value = true;
    }
  }
  return wiring;
}

// The wiring of a step of several programs.
class StepWiring {
 public:
  explicit StepWiring(const RunRequest& request) : request_(request), step_(*request.step) {}

  Result<Wiring> build() {
    wiring_.micro_batches = step_.micro_batches;
    wiring_.world_size = step_.world_size;
    add_lines();
    AUTOPAR_RETURN_IF_ERROR(find_makers());
    AUTOPAR_RETURN_IF_ERROR(add_outputs());
    AUTOPAR_RETURN_IF_ERROR(add_inputs());
    AUTOPAR_RETURN_IF_ERROR(check_partial_sums());
    AUTOPAR_RETURN_IF_ERROR(check_given());
    AUTOPAR_RETURN_IF_ERROR(check_order());
    return std::move(wiring_);
  }

 private:
  const RunProgram& program(std::size_t p) const { return request_.programs[p]; }
  const std::string& path(std::size_t p) const { return request_.programs[p].path; }
  bool is_pass_of(std::size_t p) const { return is_pass(step_.programs[p].phase); }
  const BoundaryValue& output(Port port) const {
    return program(port.program).outputs[port.output];
  }

  void add_lines() {
    wiring_.line_of_rank.resize(static_cast<std::size_t>(step_.world_size));
    for (const StepLine& line : step_.lines) {
      std::vector<ProgramCall>& calls = wiring_.lines.emplace_back();
      for (const StepAction& action : line) {
        const auto index =
            static_cast<std::size_t>(autopar::program_of(step_, action) - step_.programs.data());
        calls.push_back({index, action.micro_batch});
        for (const std::int64_t rank : program(index).ranks) {
          wiring_.line_of_rank[static_cast<std::size_t>(rank)] = wiring_.lines.size() - 1;
        }
      }
    }
  }

  Status find_makers() {
    for (std::size_t p = 0; p < request_.programs.size(); ++p) {
      for (std::size_t o = 0; o < program(p).outputs.size(); ++o) {
        const std::string& name = program(p).outputs[o].name;
        // Each chunk adds to accumulators of its own.
        if (is_next_accumulator(name)) continue;
        const auto [at, is_new] = makers_.emplace(name, Port{p, o});
        if (is_new) continue;
        return input_error(path(p) + ": makes " + quoted(name) + ", which " +
                           path(at->second.program) +
                           " makes too; a value is made by one program of a step");
      }
    }
    return Ok{};
  }

  Status add_outputs() {
    for (std::size_t p = 0; p < request_.programs.size(); ++p) {
      std::vector<OutputUse>& uses = wiring_.outputs.emplace_back();
      for (const BoundaryValue& value : program(p).outputs) {
        OutputUse& use = uses.emplace_back();
        use.is_accumulator = is_next_accumulator(value.name);
        use.is_next_value = !use.is_accumulator && is_next(value.name);
        if (use.is_next_value) {
          use.result = wiring_.results.size();
          wiring_.results.push_back({p, value, std::nullopt, Combining::kLast});
        }
      }
    }
    for (const StepOutput& wanted : step_.outputs) {
      const auto maker = makers_.find(wanted.name);
      if (maker == makers_.end()) {
        return input_error("step.json: outputs: no program makes " + quoted(wanted.name));
      }
      OutputUse& use = wiring_.outputs[maker->second.program][maker->second.output];
      if (use.is_next_value) {
        return input_error("step.json: outputs: " + quoted(wanted.name) +
                           " is a next value, which leaves as it is");
      }
      AUTOPAR_TRY(result, result_of(wanted, maker->second));
      use.result = wiring_.results.size();
      wiring_.results.push_back(std::move(result));
    }
    return Ok{};
  }

  Result<RunOutput> result_of(const StepOutput& wanted, Port maker) const {
    RunOutput result{maker.program, output(maker), std::nullopt, wanted.combining};
    const bool sums = wanted.combining == Combining::kMean || wanted.combining == Combining::kSum;
    if (sums && result.value.dtype == DType::kBool) {
      return input_error("step.json: outputs: " + quoted(wanted.name) + " is " +
                         type_text(result.value) + ", of which there is no " + to_text(wanted));
    }
    if (wanted.combining != Combining::kConcat || !is_pass_of(maker.program)) return result;
    const auto dimension = static_cast<std::size_t>(wanted.dimension);
    if (dimension >= result.value.shape.size()) {
      return input_error("step.json: outputs: " + quoted(wanted.name) + " is " +
                         type_text(result.value) + " and has no dimension " +
                         std::to_string(wanted.dimension));
    }
    result.cut = dimension;
    result.value = with_micro_batches(result.value, dimension, step_.micro_batches);
    return result;
  }

  Status add_inputs() {
    for (std::size_t p = 0; p < request_.programs.size(); ++p) {
      wiring_.inputs.emplace_back();
      for (std::size_t i = 0; i < program(p).inputs.size(); ++i) {
        AUTOPAR_TRY(source, source_of(p, i));
        wiring_.inputs[p].push_back(std::move(source));
      }
    }
    return Ok{};
  }

  Result<InputSource> source_of(std::size_t p, std::size_t i) {
    const BoundaryValue& input = program(p).inputs[i];
    InputSource source;
    if (is_accumulator(input.name)) {
      source.kind = InputSource::Kind::kAccumulator;
      AUTOPAR_RETURN_IF_ERROR(check_accumulator(p, input));
      return source;
    }
    const auto next = makers_.find(next_name(input.name));
    const auto made = makers_.find(input.name);
    if (next != makers_.end()) {
      source.kind = InputSource::Kind::kState;
      source.maker = next->second;
    } else if (made != makers_.end()) {
      source.kind = InputSource::Kind::kMade;
      source.maker = made->second;
      const bool in_pass = is_pass_of(p);
      if (in_pass != is_pass_of(source.maker.program)) {
        return input_error(path(p) + ": reads " + quoted(input.name) + ", which " +
                           path(source.maker.program) + " makes " +
                           (in_pass ? "once after all passes; a pass cannot wait for it"
                                    : "for every micro-batch, but it is read once for all"));
      }
    } else {
      AUTOPAR_TRY(cut, cut_of(p, input));
      source.cut = cut;
      return source;
    }
    AUTOPAR_RETURN_IF_ERROR(add_movement(p, i, source));
    return source;
  }

  Result<std::optional<std::size_t>> cut_of(std::size_t p, const BoundaryValue& input) const {
    const auto micro = find_name(step_.micro_inputs, input.name);
    if (!micro || !is_pass_of(p)) return std::optional<std::size_t>();
    const auto dimension = static_cast<std::size_t>(step_.micro_inputs[*micro].dimension);
    if (dimension < input.shape.size()) return std::optional<std::size_t>(dimension);
    return input_error(path(p) + ": step.json cuts " + quoted(input.name) + " along dimension " +
                       std::to_string(dimension) + ", but it is " + type_text(input));
  }

  Status check_accumulator(std::size_t p, const BoundaryValue& input) const {
    const std::int64_t chunk = step_.programs[p].chunk;
    bool is_made = false;
    for (std::size_t q = 0; q < request_.programs.size(); ++q) {
      if (step_.programs[q].chunk != chunk) continue;
      const auto made = find_name(program(q).outputs, next_name(input.name));
      const auto read = find_name(program(q).inputs, input.name);
      is_made = is_made || made;
      for (const BoundaryValue* other : {made ? &program(q).outputs[*made] : nullptr,
                                         read ? &program(q).inputs[*read] : nullptr}) {
        if (other == nullptr) continue;
        const bool same =
            other->dtype == input.dtype && other->shape == input.shape &&
            to_text(other->spec, program(q).mesh) == to_text(input.spec, program(p).mesh) &&
            program(q).mesh.sizes() == program(p).mesh.sizes();
        if (same) continue;
        return input_error(path(p) + ": " + quoted(input.name) + " is " + type_text(input) +
                           " and lies as " + to_text(input.spec, program(p).mesh) + ", in " +
                           path(q) + " " + type_text(*other) + " as " +
                           to_text(other->spec, program(q).mesh) +
                           "; all programs of a chunk hold an accumulator alike");
      }
    }
    if (is_made) return Ok{};
    return input_error(path(p) + ": reads " + quoted(input.name) +
                       ", to which no program of chunk " + std::to_string(chunk) + " adds ('new." +
                       input.name + "')");
  }

  // Whether the reader can have what the maker makes, and how it gets there.
  Status add_movement(std::size_t p, std::size_t i, InputSource& source) {
    const BoundaryValue& input = program(p).inputs[i];
    const BoundaryValue& made = output(source.maker);
    const std::string& maker = path(source.maker.program);
    if (made.dtype != input.dtype || made.shape != input.shape) {
      return input_error(path(p) + ": reads " + quoted(input.name) + " as " + type_text(input) +
                         ", but " + maker + " makes " + quoted(made.name) + " as " +
                         type_text(made));
    }
    if (!made.spec.partial.empty() || !input.spec.partial.empty()) return Ok{};  // refused later
    const RunProgram& from = program(source.maker.program);
    const RunProgram& to = program(p);
    if (from.ranks == to.ranks && from.mesh == to.mesh && made.spec == input.spec) return Ok{};
    if (const auto same = same_movement(p, input, source.maker)) {
      source.movement = same;
      return Ok{};
    }
    Movement slices = movement_of(made, from, input, to);
    if (!slices.is_needed()) return Ok{};
    const bool of_pass = is_pass_of(source.maker.program);
    if (source.kind == InputSource::Kind::kState && of_pass) {
      return input_error(path(p) + ": reads " + quoted(input.name) + " as it lies by " +
                         to_text(input.spec, program(p).mesh) + ", but " + maker +
                         ", a pass, gives its next value to other ranks or in another layout; the "
                         "next micro-batch must find it where it is made");
    }
    source.movement = wiring_.movements.size();
    movements_from_[source.maker].push_back(wiring_.movements.size());
    wiring_.movements.push_back({source.maker, p, i, std::move(slices)});
    return Ok{};
  }

  // Another program of the same ranks reads the value in that layout: it comes once for both.
  std::optional<std::size_t> same_movement(std::size_t p, const BoundaryValue& input,
                                           const Port& maker) const {
    const auto known = movements_from_.find(maker);
    if (known == movements_from_.end()) return std::nullopt;
    for (const std::size_t m : known->second) {
      const ValueMovement& other = wiring_.movements[m];
      const RunProgram& reader = program(other.reader);
      const bool is_same = reader.ranks == program(p).ranks && reader.mesh == program(p).mesh &&
                           reader.inputs[other.input].spec == input.spec;
      if (is_same) return m;
    }
    return std::nullopt;
  }

  Status check_partial_sums() const {
    for (std::size_t p = 0; p < request_.programs.size(); ++p) {
      for (const auto* values : {&program(p).inputs, &program(p).outputs}) {
        for (const BoundaryValue& value : *values) {
          if (value.spec.partial.empty() || is_accumulator(value.name) ||
              is_next_accumulator(value.name)) {
            continue;
          }
          return input_error(path(p) + ": " + quoted(value.name) +
                             " is a partial sum; only accumulators (acc.*) may be");
        }
      }
    }
    return Ok{};
  }

  // All programs read a given input as one and the same tensor.
  Status check_given() const {
    std::map<std::string, std::pair<std::size_t, BoundaryValue>> given;
    for (std::size_t p = 0; p < request_.programs.size(); ++p) {
      for (std::size_t i = 0; i < program(p).inputs.size(); ++i) {
        const InputSource& source = wiring_.inputs[p][i];
        const bool is_given =
            source.kind == InputSource::Kind::kGiven || source.kind == InputSource::Kind::kState;
        if (!is_given) continue;
        const BoundaryValue whole = whole_of(program(p).inputs[i], source, step_.micro_batches);
        const auto [at, is_new] = given.emplace(whole.name, std::pair(p, whole));
        const BoundaryValue& other = at->second.second;
        if (is_new || (other.dtype == whole.dtype && other.shape == whole.shape)) continue;
        return input_error(path(p) + ": reads " + quoted(whole.name) + " of the whole batch as " +
                           type_text(whole) + ", " + path(at->second.first) + " as " +
                           type_text(other));
      }
    }
    for (const MicroInput& input : step_.micro_inputs) {
      if (given.count(input.name) > 0 && makers_.count(next_name(input.name)) == 0) continue;
      return input_error("step.json: micro_inputs: no program reads " + quoted(input.name) +
                         " as an input of the model");
    }
    return Ok{};
  }

  // Plays the lines against each other: a call runs when the values that it reads are there.
  Status check_order() const {
    std::set<std::pair<std::size_t, std::int64_t>> done;
    std::vector<std::size_t> at(wiring_.lines.size(), 0);
    const auto missing = [&](const ProgramCall& call) -> std::optional<std::size_t> {
      for (std::size_t i = 0; i < program(call.program).inputs.size(); ++i) {
        const InputSource& source = wiring_.inputs[call.program][i];
        if (source.kind != InputSource::Kind::kMade) continue;
        if (done.count({source.maker.program, call.micro_batch}) == 0) return i;
      }
      return std::nullopt;
    };
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t l = 0; l < wiring_.lines.size(); ++l) {
        const auto& line = wiring_.lines[l];
        for (; at[l] < line.size() && !missing(line[at[l]]); ++at[l]) {
          done.insert({line[at[l]].program, line[at[l]].micro_batch});
          moved = true;
        }
      }
    }
    for (std::size_t l = 0; l < wiring_.lines.size(); ++l) {
      if (at[l] == wiring_.lines[l].size()) continue;
      const ProgramCall& call = wiring_.lines[l][at[l]];
      const std::size_t i = *missing(call);
      const Port maker = wiring_.inputs[call.program][i].maker;
      return input_error(step_.schedule + ": " + action_text(call) + " reads " +
                         quoted(program(call.program).inputs[i].name) + " of " +
                         action_text({maker.program, call.micro_batch}) +
                         ", which does not run before it; the schedule stops there");
    }
    return Ok{};
  }

  std::string action_text(const ProgramCall& call) const {
    const StepProgram& program = step_.programs[call.program];
    return to_text(StepAction{program.chunk, program.phase, call.micro_batch});
  }

  const RunRequest& request_;
  const Step& step_;
  std::map<Port, std::vector<std::size_t>> movements_from_;
  Wiring wiring_;
  std::map<std::string, Port> makers_;  // of all but accumulators
};

}  // namespace

Result<Wiring> wiring_of(const RunRequest& request) {
  if (!request.step) return one_call_each(request);
  return StepWiring(request).build();
}

Status verify_request(const RunRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(verify(request));
  AUTOPAR_TRY(wiring, wiring_of(request));
  static_cast<void>(wiring);
  return Ok{};
}

BoundaryValue whole_of(const BoundaryValue& input, const InputSource& source,
                       std::int64_t micro_batches) {
  BoundaryValue whole = input;
  if (source.cut) whole.shape[*source.cut] *= micro_batches;
  return whole;
}

BoundaryValue with_micro_batches(const BoundaryValue& value, std::size_t dimension,
                                 std::int64_t micro_batches) {
  BoundaryValue result = value;
  const auto at = static_cast<std::ptrdiff_t>(dimension);
  result.shape.insert(result.shape.begin() + at, micro_batches);
  result.spec.dims.insert(result.spec.dims.begin() + at, AxisList());
  return result;
}

void to_result_form(const Wiring& wiring, std::map<std::string, Tensor>& tensors) {
  const std::string added = kOutputOfInput;
  for (const RunOutput& result : wiring.results) {
    const std::string& name = result.value.name;
    const std::size_t end = name.size() - std::min(added.size(), name.size());
    if (name.substr(end) != added || tensors.count(name) != 0) continue;
    if (auto of_model = tensors.extract(name.substr(0, end))) {
      of_model.key() = name;
      tensors.insert(std::move(of_model));
    }
  }
  for (const RunOutput& result : wiring.results) {
    const auto at = tensors.find(result.value.name);
    if (!result.cut || at == tensors.end()) continue;
    Shape whole = result.value.shape;
    const auto batches = whole.begin() + static_cast<std::ptrdiff_t>(*result.cut);
    batches[1] *= batches[0];
    whole.erase(batches);
    if (at->second.shape == whole) at->second.shape = result.value.shape;
  }
}

void from_result_form(const Wiring& wiring, std::map<std::string, Tensor>& tensors) {
  for (const RunOutput& result : wiring.results) {
    const auto at = tensors.find(result.value.name);
    if (!result.cut || at == tensors.end()) continue;
    Shape& shape = at->second.shape;
    const auto batches = shape.begin() + static_cast<std::ptrdiff_t>(*result.cut);
    batches[1] *= batches[0];
    shape.erase(batches);
  }
}

std::optional<std::int64_t> position_of(const RunProgram& program, std::int64_t rank) {
  if (program.ranks.empty()) {
    if (rank < program.mesh.size()) return rank;
    return std::nullopt;
  }
  const auto at = std::find(program.ranks.begin(), program.ranks.end(), rank);
  if (at == program.ranks.end()) return std::nullopt;
  return at - program.ranks.begin();
}

std::vector<ResultPlace> results_of(const RunRequest& request, const Wiring& wiring, int rank) {
  std::vector<std::optional<std::int64_t>> positions;  // by program
  for (const RunProgram& program : request.programs) {
    positions.push_back(position_of(program, rank));
  }
  std::vector<ResultPlace> places;
  for (std::size_t r = 0; r < wiring.results.size(); ++r) {
    const std::size_t p = wiring.results[r].program;
    if (positions[p]) places.push_back({r, {&request.programs[p], *positions[p]}});
  }
  return places;
}

std::vector<std::vector<std::int64_t>> message_pairs(const RunRequest& request,
                                                     const Wiring& wiring) {
  std::set<std::vector<std::int64_t>> pairs;
  for (const ValueMovement& movement : wiring.movements) {
    for (std::size_t p = 0; p < movement.slices.pieces.size(); ++p) {
      const std::int64_t to =
          rank_at(request.programs[movement.reader], static_cast<std::int64_t>(p));
      for (const MovedPiece& piece : movement.slices.pieces[p]) {
        if (piece.from != to) pairs.insert({piece.from, to});
      }
    }
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace autopar
