// Bytes between ranks: what is written is read again, and any other bytes are errors.
#include "exec/process/wire.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "exec/process/frames.hpp"
#include "exec/process/handshake.hpp"
#include "exec/process/inquiry.hpp"
#include "exec/record.hpp"

namespace autopar::wire_test {

namespace {

constexpr int kRandomTexts = 3000;

Whereabouts some_whereabouts() {
  Whereabouts where;
  where.waits_in = "AllReduce 'a'";
  where.group = {0, 2};
  where.last_call = "AllGather 'b'";
  where.finished = true;
  where.meetings[{0, 2}] = 7;
  where.meetings[{0, 1, 2, 3}] = 1;
  return where;
}

RankRecord some_record() {
  RankRecord record;
  record.changed = "changed";
  record.runs.resize(2);
  record.runs[1].times["MatMul"].kind = "MatMul";
  record.events.resize(3);
  record.events[2].name = "last";
  return record;
}

std::string random_text(std::mt19937& random, std::size_t most) {
  std::string text(random() % (most + 1), '\0');
  // Small numbers, such as lengths that fit, and any bytes.
  for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 256 : random() % 4);
  return text;
}

// Every way to read bytes, by name; whether they were what was expected.
struct Reading {
  const char* name;
  std::string well;  // bytes that are
  bool (*reads)(const std::string& bytes);
};
std::vector<Reading> readings() {
  return {
      {"whereabouts", to_bytes(some_whereabouts()),
       [](const std::string& bytes) { return whereabouts_of(bytes).ok(); }},
      {"question", to_bytes(Question{"why", "advice", some_whereabouts()}),
       [](const std::string& bytes) { return question_of(bytes).ok(); }},
      {"hello", to_bytes(Hello{4, 1, "process 1 on x", random_bytes(16)}),
       [](const std::string& bytes) { return hello_of(bytes).ok(); }},
      {"record", to_bytes(some_record()),
       [](const std::string& bytes) { return record_of(bytes).ok(); }},
  };
}

}  // namespace

TEST_CASE("what ranks say of themselves is read as it was written", "[wire]") {
  const Whereabouts where = whereabouts_of(to_bytes(some_whereabouts())).value();
  CHECK(where.waits_in == "AllReduce 'a'");
  CHECK(where.group == RankGroup{0, 2});
  CHECK(where.last_call == "AllGather 'b'");
  CHECK(where.finished);
  CHECK(where.meetings == some_whereabouts().meetings);
  const Question question = question_of(to_bytes(Question{"why", "", where})).value();
  CHECK(question.why == "why");
  CHECK(question.advice.empty());
  CHECK(question.asked.meetings == where.meetings);
  const RankRecord record = record_of(to_bytes(some_record())).value();
  CHECK(record.runs.size() == 2);
  CHECK(record.runs[1].times.count("MatMul") == 1);
  CHECK(record.events[2].name == "last");
}

TEST_CASE("bytes that are cut off, longer or of something else are errors", "[wire]") {
  for (const Reading& reading : readings()) {
    CAPTURE(reading.name);
    CHECK(reading.reads(reading.well));
    CHECK(!reading.reads(reading.well + "x"));
    std::size_t accepted = 0;
    for (std::size_t length = 0; length < reading.well.size(); ++length) {
      accepted += reading.reads(reading.well.substr(0, length)) ? 1 : 0;
    }
    CHECK(accepted == 0);
    std::mt19937 random(7);
    for (int i = 0; i < kRandomTexts; ++i) {
      static_cast<void>(reading.reads(random_text(random, 80)));
      std::string damaged = reading.well;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
      static_cast<void>(reading.reads(damaged));
    }
  }
}

TEST_CASE("a reader gives zeros after the end, and says so at the end", "[wire]") {
  WireWriter writer;
  writer.put<std::uint64_t>(1000);  // entries that do not follow
  writer.put<std::uint8_t>(200);
  const std::string bytes = writer.take();
  {
    WireReader reader(bytes);
    CHECK(reader.count(8) == 0);
    CHECK(reader.failed());
    CHECK(reader.number<std::uint8_t>() == 0);
    CHECK(reader.text().empty());
    CHECK(!reader.finish());
  }
  {
    WireReader reader(bytes);
    CHECK(reader.number<std::uint64_t>() == 1000);
    CHECK(!reader.finish());
    CHECK(reader.number<bool>());  // any byte but 0
    CHECK(reader.finish());
  }
}

TEST_CASE("frames come in any pieces", "[wire]") {
  const std::vector<Frame> frames = {{FrameKind::kPiece, std::string(5000, 'x')},
                                     {FrameKind::kAlive, ""},
                                     {FrameKind::kLastPiece, "end"}};
  std::string bytes;
  for (const Frame& frame : frames)
    bytes += frame_header(frame.kind, frame.payload) + frame.payload;
  for (std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, bytes.size()}) {
    FrameReader reader(kMostFrameBytes);
    std::vector<Frame> found;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      for (auto frame = reader.next(); *frame; frame = reader.next()) found.push_back(**frame);
    }
    REQUIRE(found.size() == frames.size());
    for (std::size_t f = 0; f < frames.size(); ++f) {
      CHECK(found[f].kind == frames[f].kind);
      CHECK(found[f].payload == frames[f].payload);
    }
  }
}

TEST_CASE("a frame that is too long, or of no kind, is refused by its header", "[wire]") {
  FrameReader reader(100);
  reader.add(frame_header(FrameKind::kPiece, std::string(101, 'x')));
  CHECK(!reader.next());
  FrameReader allowed(100);
  allowed.allow(101);
  allowed.add(frame_header(FrameKind::kPiece, std::string(101, 'x')));
  CHECK(allowed.next());
  FrameReader unknown(100);
  unknown.add(std::string("\x0e\x00\x00\x00\x00", 5));
  CHECK(!unknown.next());
  std::mt19937 random(3);
  for (int i = 0; i < kRandomTexts; ++i) {
    FrameReader any(1000);
    for (int piece = 0; piece < 4; ++piece) {
      any.add(random_text(random, 60));
      for (auto frame = any.next(); frame && *frame; frame = any.next()) {
        CHECK((*frame)->payload.size() <= 1000);
      }
    }
  }
}

}  // namespace autopar::wire_test
