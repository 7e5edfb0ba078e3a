#include "exec/calls.hpp"

#include <algorithm>
#include <cstring>

#include "exec/reduce.hpp"
#include "exec/session.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

using Kind = InputSource::Kind;

Ort::Value view_of(const Ort::Value& value) {
  const auto type = value.GetTensorTypeAndShapeInfo();
  const auto dtype = dtype_of(type.GetElementType());
  AUTOPAR_CHECK(dtype.has_value(), "tensor of an unsupported type");
  return autopar::view_of(*dtype, type.GetShape(), value.GetTensorRawData());
}

std::size_t bytes_in(DType dtype, const Shape& shape) {
  return static_cast<std::size_t>(element_count(shape) * size_of(dtype));
}

Ort::Value new_value(DType dtype, const Shape& shape) {
  Ort::AllocatorWithDefaultOptions allocator;
  return Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), element_type_of(dtype));
}

void check(const Status& status, Rank& rank) {
  if (status.ok()) return;
  rank.collectives.stop();
  throw Ort::Exception(std::string(status.error().message), ORT_FAIL);
}

// What the micro-batches gave, in their order, as one.
Ort::Value combined(const RunOutput& result, const Mesh& mesh,
                    std::vector<std::shared_ptr<Ort::Value>> parts) {
  const bool sums = result.combining == Combining::kMean || result.combining == Combining::kSum;
  if (!result.cut && (!sums || parts.size() == 1) && parts.back().use_count() == 1) {
    return std::move(*parts.back());
  }
  const DType dtype = result.value.dtype;
  const Shape shape = local_shape(result.value.spec, result.value.shape, mesh);
  Ort::Value whole = new_value(dtype, shape);
  auto* to = static_cast<char*>(whole.GetTensorMutableRawData());
  if (result.cut) {
    Shape extent = shape;
    extent[*result.cut] = 1;
    Shape offset(shape.size(), 0);
    for (const auto& part : parts) {
      copy_block(extent, static_cast<std::size_t>(size_of(dtype)), part->GetTensorRawData(),
                 {extent, Shape(extent.size(), 0)}, to, {shape, offset});
      ++offset[*result.cut];
    }
    return whole;
  }
  if (!sums || parts.size() == 1) {
    std::memcpy(to, parts.back()->GetTensorRawData(), bytes_in(dtype, shape));
    return whole;
  }
  std::vector<const void*> from;
  for (const auto& part : parts) from.push_back(part->GetTensorRawData());
  reduce(result.combining == Combining::kMean ? ReduceOp::kAvg : ReduceOp::kSum, dtype, from,
         static_cast<std::size_t>(element_count(shape)), to);
  return whole;
}

}  // namespace

RankCalls::RankCalls(Rank& rank, const RunRequest& request, const Wiring& wiring,
                     const RankFeeds& feeds)
    : rank_(rank),
      request_(request),
      wiring_(wiring),
      feeds_(feeds),
      self_(rank.communicator->rank()) {
  for (std::size_t m = 0; m < wiring.movements.size(); ++m) {
    movements_of_[wiring.movements[m].maker].push_back(m);
  }
  for (std::size_t p = 0; p < rank.programs.size(); ++p) {
    if (!rank.programs[p]) continue;
    for (const InputSource& source : wiring.inputs[p]) {
      if (source.kind == Kind::kMade) ++readers_of_[source.maker];
      if (source.kind == Kind::kMade && source.movement) ++readers_of_moved_[*source.movement];
    }
  }
}

std::vector<Ort::Value> RankCalls::run() {
  for (step_ = 0; step_ < request_.steps; ++step_) {
    begin_step(step_);
    const std::size_t line = wiring_.line_of_rank[static_cast<std::size_t>(self_)];
    for (const ProgramCall& next : wiring_.lines[line]) call(next);
    end_step();
  }
  check(rank_.communicator->settle(), rank_);
  return results();
}

void RankCalls::begin_step(int step) {
  step_ = step;
  call_number_ = 0;
  accumulators_.clear();
  made_.clear();
  readers_.clear();
  parts_.clear();
  // All that others send in this step, which they do in the order of their lines.
  for (const auto& line : wiring_.lines) {
    for (const ProgramCall& maker : line) {
      for (std::size_t o = 0; o < wiring_.outputs[maker.program].size(); ++o) {
        const auto at = movements_of_.find({maker.program, o});
        if (at == movements_of_.end() || wiring_.outputs[maker.program][o].is_next_value) continue;
        expect_messages(at->second, maker.micro_batch);
      }
    }
  }
  if (step + 1 == request_.steps) return;
  for (const auto& [maker, movements] : movements_of_) {
    if (!wiring_.outputs[maker.program][maker.output].is_next_value) continue;
    expect_messages(movements, -1);
  }
}

void RankCalls::expect_messages(const std::vector<std::size_t>& movements,
                                std::int64_t micro_batch) {
  for (const std::size_t m : movements) {
    const ValueMovement& movement = wiring_.movements[m];
    const auto position = position_of(request_.programs[movement.reader], self_);
    if (!position) continue;
    std::vector<std::int64_t> told;
    for (const MovedPiece& piece : movement.slices.pieces[static_cast<std::size_t>(*position)]) {
      if (piece.from == self_) continue;
      if (std::find(told.begin(), told.end(), piece.from) != told.end()) continue;
      told.push_back(piece.from);
      expected_[piece.from].emplace_back(step_, m, micro_batch);
    }
  }
}

void RankCalls::call(const ProgramCall& call) {
  RankProgram& program = *rank_.programs[call.program];
  rank_.collectives.begin_call(step_, call_number_++);
  std::vector<Ort::Value> values;
  for (const std::size_t i : program.input_index) values.push_back(input(call, i));
  std::vector<Ort::Value> outputs =
      run_session(*program.session, rank_.run_options, program.inputs, values, program.outputs);
  values.clear();
  let_go(call);
  // In the program's own order, which all ranks share.
  std::vector<std::size_t> at(outputs.size());
  for (std::size_t o = 0; o < outputs.size(); ++o) at[program.output_index[o]] = o;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    keep(call, o, std::make_shared<Ort::Value>(std::move(outputs[at[o]])));
  }
}

Ort::Value RankCalls::input(const ProgramCall& call, std::size_t input) {
  const InputSource& source = wiring_.inputs[call.program][input];
  const BoundaryValue& value = request_.programs[call.program].inputs[input];
  switch (source.kind) {
    case Kind::kGiven:
      return feeds_.view(input, call);
    case Kind::kAccumulator:
      return accumulator(call, value);
    case Kind::kMade:
      return made(call, source);
    case Kind::kState:
      break;
  }
  if (source.movement && step_ > 0) {
    const auto own = state_.find(source.maker);
    return view_of(
        *moved(*source.movement, -1, step_ - 1, own == state_.end() ? nullptr : own->second));
  }
  const auto known = state_.find(source.maker);
  return known == state_.end() ? feeds_.view(input, call) : view_of(*known->second);
}

Ort::Value RankCalls::accumulator(const ProgramCall& call, const BoundaryValue& value) {
  const std::int64_t chunk = request_.step->programs[call.program].chunk;
  Value& held = accumulators_[{chunk, value.name}];
  if (!held) {
    Ort::Value zeros = new_value(
        value.dtype, local_shape(value.spec, value.shape, request_.programs[call.program].mesh));
    const Shape shape = zeros.GetTensorTypeAndShapeInfo().GetShape();
    std::memset(zeros.GetTensorMutableRawData(), 0, bytes_in(value.dtype, shape));
    held = std::make_shared<Ort::Value>(std::move(zeros));
  }
  return view_of(*held);
}

Ort::Value RankCalls::made(const ProgramCall& call, const InputSource& source) {
  const auto own = made_.find({source.maker, call.micro_batch});
  const Value held = own == made_.end() ? nullptr : own->second;
  if (!source.movement) return view_of(*held);
  return view_of(*moved(*source.movement, call.micro_batch, step_, held));
}

void RankCalls::keep(const ProgramCall& call, std::size_t output, Value value) {
  const OutputUse& use = wiring_.outputs[call.program][output];
  const Port port{call.program, output};
  const BoundaryValue& boundary = request_.programs[call.program].outputs[output];
  if (use.is_accumulator) {
    const std::int64_t chunk = request_.step->programs[call.program].chunk;
    accumulators_[{chunk, boundary.name.substr(4)}] = std::move(value);
    return;
  }
  if (use.is_next_value) {
    // What a pass gives, the next micro-batch reads; what an update gives, the next step.
    const bool of_pass = request_.step && is_pass(request_.step->programs[call.program].phase);
    (of_pass ? state_ : next_state_)[port] = std::move(value);
    return;
  }
  if (use.result) parts_[*use.result][call.micro_batch] = value;
  const auto movements = movements_of_.find(port);
  if (movements != movements_of_.end()) {
    for (const std::size_t m : movements->second) send(m, *value);
  }
  const auto readers = readers_of_.find(port);
  if (readers == readers_of_.end()) return;
  readers_[{port, call.micro_batch}] = readers->second;
  made_[{port, call.micro_batch}] = std::move(value);
}

void RankCalls::let_go(const ProgramCall& call) {
  for (const InputSource& source : wiring_.inputs[call.program]) {
    if (source.kind != Kind::kMade) continue;
    if (source.movement) let_go_of_moved({*source.movement, call.micro_batch});
    const Made key{source.maker, call.micro_batch};
    const auto at = readers_.find(key);
    if (at == readers_.end() || --at->second > 0) continue;
    made_.erase(key);
    readers_.erase(at);
  }
}

void RankCalls::let_go_of_moved(const Moved& moved) {
  const auto left = moved_readers_.try_emplace(moved, readers_of_moved_.at(moved.first)).first;
  if (--left->second > 0) return;
  arrived_.erase(moved);
  moved_readers_.erase(left);
}

// The new state takes the place of the old one, and goes to the ranks that read it elsewhere.
void RankCalls::end_step() {
  for (const auto& [maker, movements] : movements_of_) {
    if (!wiring_.outputs[maker.program][maker.output].is_next_value) continue;
    for (const std::size_t m : movements) arrived_.erase({m, -1});
  }
  for (auto& [port, value] : next_state_) state_[port] = std::move(value);
  next_state_.clear();
  if (step_ + 1 == request_.steps) return;
  for (const auto& [maker, movements] : movements_of_) {
    if (!wiring_.outputs[maker.program][maker.output].is_next_value) continue;
    const auto own = state_.find(maker);
    if (own == state_.end()) continue;
    for (const std::size_t m : movements) send(m, *own->second);
  }
}

std::vector<Ort::Value> RankCalls::results() {
  std::vector<Ort::Value> results;
  for (const ResultPlace& at : rank_.results) {
    const RunOutput& result = wiring_.results[at.result];
    const auto parts = parts_.find(at.result);
    if (parts != parts_.end()) {
      std::vector<Value> in_order;
      for (auto& [micro_batch, value] : parts->second) in_order.push_back(std::move(value));
      parts_.erase(parts);
      results.push_back(combined(result, at.place.program->mesh, std::move(in_order)));
      continue;
    }
    const auto& outputs = at.place.program->outputs;
    const auto output = static_cast<std::size_t>(
        std::find_if(outputs.begin(), outputs.end(),
                     [&](const BoundaryValue& v) { return v.name == result.value.name; }) -
        outputs.begin());
    std::vector<Value> last;
    last.push_back(std::move(state_.at({result.program, output})));
    results.push_back(combined(result, at.place.program->mesh, std::move(last)));
  }
  return results;
}

RankCalls::Value RankCalls::moved(std::size_t movement, std::int64_t micro_batch, int step,
                                  const Value& own) {
  const ValueMovement& moving = wiring_.movements[movement];
  const RunProgram& reader = request_.programs[moving.reader];
  const RunProgram& maker = request_.programs[moving.maker.program];
  const BoundaryValue& value = reader.inputs[moving.input];
  const std::int64_t position = *position_of(reader, self_);
  const auto& pieces = moving.slices.pieces[static_cast<std::size_t>(position)];
  if (pieces.empty()) return own;
  Value& known = arrived_[{movement, micro_batch}];
  if (known) return known;
  const Block slice = block_of(value, reader, position);
  const auto size = static_cast<std::size_t>(size_of(value.dtype));
  Ort::Value whole = new_value(value.dtype, slice.extent);
  void* to = whole.GetTensorMutableRawData();
  std::map<std::int64_t, std::pair<std::string, std::size_t>> received;  // bytes, how far read
  for (const MovedPiece& piece : pieces) {
    const std::size_t bytes = bytes_in(value.dtype, piece.block.extent);
    if (piece.from == self_) {
      const Block held =
          block_of(maker.outputs[moving.maker.output], maker, *position_of(maker, self_));
      std::string packed(bytes, '\0');
      pack_piece(piece.block, size, held, own->GetTensorRawData(), packed.data());
      unpack_piece(piece.block, size, packed.data(), slice, to);
      continue;
    }
    auto at = received.find(piece.from);
    if (at == received.end()) {
      const Message message(step, movement, micro_batch);
      at = received.emplace(piece.from, std::pair(receive(piece.from, message), 0)).first;
    }
    unpack_piece(piece.block, size, at->second.first.data() + at->second.second, slice, to);
    at->second.second += bytes;
  }
  known = std::make_shared<Ort::Value>(std::move(whole));
  return known;
}

std::size_t RankCalls::bytes_of(std::size_t movement, std::int64_t from, std::int64_t to) const {
  const ValueMovement& moving = wiring_.movements[movement];
  const RunProgram& reader = request_.programs[moving.reader];
  std::size_t bytes = 0;
  for (const MovedPiece& piece :
       moving.slices.pieces[static_cast<std::size_t>(*position_of(reader, to))]) {
    if (piece.from == from) {
      bytes += bytes_in(reader.inputs[moving.input].dtype, piece.block.extent);
    }
  }
  return bytes;
}

CollectiveCall RankCalls::message_call(CollectiveKind kind, std::size_t movement, std::int64_t from,
                                       std::int64_t to) const {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = request_.programs[wiring_.movements[movement].reader]
                     .inputs[wiring_.movements[movement].input]
                     .name;
  call.seq = 0;
  call.group = {from, to};
  call.position = kind == CollectiveKind::kSend ? 0 : 1;
  call.dtype = DType::kUInt8;
  call.input_shape = call.output_shape = {static_cast<std::int64_t>(bytes_of(movement, from, to))};
  return call;
}

void RankCalls::send(std::size_t movement, const Ort::Value& value) {
  const ValueMovement& moving = wiring_.movements[movement];
  const RunProgram& reader = request_.programs[moving.reader];
  const RunProgram& maker = request_.programs[moving.maker.program];
  const BoundaryValue& made = maker.outputs[moving.maker.output];
  const Block held = block_of(made, maker, *position_of(maker, self_));
  const auto size = static_cast<std::size_t>(size_of(made.dtype));
  for (std::size_t p = 0; p < moving.slices.pieces.size(); ++p) {
    const std::int64_t to = rank_at(reader, static_cast<std::int64_t>(p));
    if (to == self_) continue;
    std::string packed;
    bool any = false;
    for (const MovedPiece& piece : moving.slices.pieces[p]) {
      if (piece.from != self_) continue;
      any = true;
      const std::size_t at = packed.size();
      packed.resize(at + bytes_in(made.dtype, piece.block.extent));
      pack_piece(piece.block, size, held, value.GetTensorRawData(), packed.data() + at);
    }
    if (!any) continue;
    const CollectiveCall call = message_call(CollectiveKind::kSend, movement, self_, to);
    const Seconds begin = steady_seconds();
    check(rank_.communicator->post(call, packed.data()), rank_);
    rank_.collectives.note_message(call, static_cast<int>(self_), begin);
  }
}

// Messages between two ranks come in the order in which they were sent; one that is needed later
// waits here.
std::string RankCalls::receive(std::int64_t from, const Message& message) {
  const auto early = early_.find({from, message});
  if (early != early_.end()) {
    std::string bytes = std::move(early->second);
    early_.erase(early);
    return bytes;
  }
  std::deque<Message>& expected = expected_[from];
  while (true) {
    AUTOPAR_CHECK(!expected.empty(), "a message that no rank sends");
    const Message next = expected.front();
    expected.pop_front();
    const CollectiveCall call = message_call(CollectiveKind::kRecv, std::get<1>(next), from, self_);
    std::string bytes(static_cast<std::size_t>(call.output_shape[0]), '\0');
    const Seconds begin = steady_seconds();
    check(rank_.communicator->take(call, bytes.data()), rank_);
    rank_.collectives.note_message(call, static_cast<int>(self_), begin);
    if (next == message) return bytes;
    early_[{from, next}] = std::move(bytes);
  }
}

}  // namespace autopar
