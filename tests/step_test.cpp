// Step folders: step.json and schedule.csv, what is written, read and refused.
#include "autopar/step.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "autopar/step_file.hpp"
#include "folder.hpp"

namespace autopar::step_test {

using namespace testing;

namespace {

// Two chunks on two ranks each; the first one in two passes, the second in one.
Step two_chunks() {
  Step step;
  step.world_size = 4;
  step.micro_batches = 2;
  step.programs = {{"plan.c0.F.onnx", 0, StepPhase::kForward, {0, 1}},
                   {"plan.c0.B.onnx", 0, StepPhase::kBackward, {0, 1}},
                   {"plan.c0.U.onnx", 0, StepPhase::kUpdate, {0, 1}},
                   {"plan.c1.FB.onnx", 1, StepPhase::kForwardBackward, {2, 3}},
                   {"plan.c1.R.onnx", 1, StepPhase::kReduce, {2, 3}}};
  step.micro_inputs = {{"masks", 1}, {"tokens", 0}};
  step.outputs = {{"logits", Combining::kConcat, 1}, {"loss", Combining::kMean, 0}};
  step.lines = plain_schedule(step.programs, 2);
  return step;
}

std::string why_not(const Step& step) {
  const Status valid = verify(step);
  return valid.ok() ? "" : valid.error().message;
}

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("a step is read back as it was written", "[step]") {
  Folder folder;
  Step step = two_chunks();
  step.reference = GENERATE(StepReference::kWholeBatch, StepReference::kPasses);
  REQUIRE(why_not(step) == "");
  UnfinishedFiles files;
  REQUIRE(write_step(step, folder / "out", files).ok());
  CHECK_FALSE(is_step_folder(folder / "out"));
  REQUIRE(files.keep().ok());
  REQUIRE(is_step_folder(folder / "out"));
  const Result<Step> read = read_step(folder / "out");
  if (!read.ok()) FAIL(read.error().message);
  CHECK(read->world_size == 4);
  CHECK(read->micro_batches == 2);
  CHECK(read->programs == step.programs);
  CHECK(read->micro_inputs == step.micro_inputs);
  CHECK(read->outputs == step.outputs);
  CHECK(read->reference == step.reference);
  CHECK(read->lines == step.lines);
  CHECK(step_json_text(*read) == step_json_text(step));
}

TEST_CASE("the text of a step", "[step]") {
  const Step step = two_chunks();
  CHECK(schedule_text(step.lines) == "0F0,0B0,0F1,0B1,0U\n1FB0,1FB1,1R\n");
  CHECK(
      step_json_text(step) ==
      R"({"format": "autopar-step", "version": 1, "world_size": 4, "micro_batches": 2, "schedule": "schedule.csv",
 "programs": [{"file": "plan.c0.F.onnx", "chunk": 0, "phase": "F", "ranks": [0, 1]},
              {"file": "plan.c0.B.onnx", "chunk": 0, "phase": "B", "ranks": [0, 1]},
              {"file": "plan.c0.U.onnx", "chunk": 0, "phase": "U", "ranks": [0, 1]},
              {"file": "plan.c1.FB.onnx", "chunk": 1, "phase": "FB", "ranks": [2, 3]},
              {"file": "plan.c1.R.onnx", "chunk": 1, "phase": "R", "ranks": [2, 3]}],
 "micro_inputs": {"masks": 1, "tokens": 0},
 "outputs": {"logits": "concat:1", "loss": "mean"}}
)");
}

TEST_CASE("what a step cannot be is refused by name", "[step]") {
  Step step = two_chunks();
  SECTION("a way out of the folder") {
    const std::string name = GENERATE("../plan.onnx", "/etc/passwd", "a/b", "..", ".", "", "a\\b");
    step.programs[1].file = name;
    CHECK_THAT(why_not(step),
               Contains("'" + name + "'") && Contains("name of a file in the folder"));
    step = two_chunks();
    step.schedule = name;
    CHECK_THAT(why_not(step), Contains("schedule: ") && Contains("'" + name + "'"));
  }
  SECTION("a rank outside the world") {
    step.programs[3].ranks = step.programs[4].ranks = {2, 4};
    CHECK_THAT(why_not(step), Contains("rank 4 is outside the world of 4 ranks"));
  }
  SECTION("a rank without a program") {
    step.world_size = 5;
    CHECK_THAT(why_not(step), Contains("rank 4 of the world of 5 runs no program"));
  }
  SECTION("a rank twice") {
    step.programs[3].ranks = {2, 2};
    CHECK_THAT(why_not(step), Contains("lists rank 2 twice"));
  }
  SECTION("ranks that differ within a chunk") {
    step.programs[1].ranks = {1, 0};
    CHECK_THAT(why_not(step), Contains("'plan.c0.B.onnx'") && Contains("[1, 0]") &&
                                  Contains("'plan.c0.F.onnx'") && Contains("[0, 1]"));
  }
  SECTION("two programs of one chunk and phase") {
    step.programs.push_back({"more.onnx", 0, StepPhase::kUpdate, {0, 1}});
    CHECK_THAT(why_not(step), Contains("'more.onnx'") && Contains("of the same chunk and phase"));
  }
  SECTION("phases that exclude each other") {
    step.programs[4].phase = StepPhase::kForward;
    CHECK_THAT(why_not(step), Contains("chunk 1: has a program FB"));
    step = two_chunks();
    step.programs[2].phase = StepPhase::kWeightGradients;
    CHECK_THAT(why_not(step), Contains("chunk 0: has a program B"));
    step.programs[1].phase = StepPhase::kUpdate;
    CHECK_THAT(why_not(step), Contains("chunk 0: has one of I and W"));
  }
  SECTION("an action that is missing, or too many") {
    step.lines[0].erase(step.lines[0].begin() + 1);
    CHECK_THAT(why_not(step), Contains("0B0 stands nowhere; expected exactly once"));
    step.lines[0].push_back(step.lines[0][0]);
    step.lines[0].insert(step.lines[0].begin(), {0, StepPhase::kBackward, 0});
    CHECK_THAT(why_not(step), Contains("0F0 stands 2 times"));
  }
  SECTION("an action of no program") {
    step.lines[1].push_back({1, StepPhase::kUpdate, -1});
    CHECK_THAT(why_not(step), Contains("line 2: 1U: there is no program for chunk 1, phase U"));
  }
  SECTION("a micro-batch that there is not") {
    step.lines[0].push_back({0, StepPhase::kForward, 2});
    CHECK_THAT(why_not(step), Contains("0F2: expected a micro-batch from 0 to 1"));
    step.lines[0].back() = {0, StepPhase::kUpdate, 0};
    CHECK_THAT(why_not(step), Contains("0U0: expected no micro-batch"));
  }
  SECTION("lines that mix ranks, or share them") {
    step.lines[0].push_back(step.lines[1].back());
    step.lines[1].pop_back();
    CHECK_THAT(why_not(step), Contains("line 1: 1R is of other ranks than 0F0"));
    step = two_chunks();
    step.lines.push_back({step.lines[0].back()});
    step.lines[0].pop_back();
    CHECK_THAT(why_not(step), Contains("line 3: rank 0 runs the chunks of line 1 too"));
  }
  SECTION("numbers") {
    step.micro_batches = 0;
    CHECK_THAT(why_not(step), Contains("micro_batches: expected 1 to"));
    step = two_chunks();
    step.micro_inputs[1].dimension = -1;
    CHECK_THAT(why_not(step), Contains("'tokens': expected a dimension from 0 on"));
  }
}

TEST_CASE("step.json that is wrong is refused with its place", "[step]") {
  Folder folder;
  const std::string text = step_json_text(two_chunks());
  folder.write("schedule.csv", schedule_text(two_chunks().lines));
  struct Row {
    std::string from, to, message;
  };
  const Row row = GENERATE(
      Row{R"("version": 1)", R"("version": 2)", "version"},
      Row{R"("world_size": 4)", R"("world_size": "4")", "world_size: expected"},
      Row{R"("phase": "B")", R"("phase": "X")", "expected one of F, B, I, W, FB, R, U"},
      Row{R"("ranks": [0, 1]})", R"("ranks": 1})", "programs[0].ranks"},
      Row{R"("file": "plan.c0.U.onnx", )", "", "file"},
      Row{R"("concat:1")", R"("concat:x")", "expected mean, sum, last or concat:<dimension>"},
      Row{R"("mean")", R"("median")", "expected mean, sum, last or concat:<dimension>"},
      Row{R"("schedule.csv")", R"("../schedule.csv")", "name of a file in the folder"},
      Row{R"("schedule.csv")", R"("none.csv")", "none.csv"});
  std::string changed = text;
  changed.replace(changed.find(row.from), row.from.size(), row.to);
  folder.write("step.json", changed);
  const Result<Step> read = read_step(folder / "");
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == ErrorCode::kInput);
  CHECK_THAT(read.error().message, Contains(row.message));
}

TEST_CASE("schedules are read as they are written and as PyTorch writes them", "[step]") {
  const std::vector<StepProgram> apart = {{"F", 0, StepPhase::kForward, {0}},
                                          {"I", 0, StepPhase::kInputGradients, {0}},
                                          {"W", 0, StepPhase::kWeightGradients, {0}},
                                          {"R", 0, StepPhase::kReduce, {0}},
                                          {"U", 0, StepPhase::kUpdate, {0}}};
  const std::vector<StepProgram> full = {{"F", 0, StepPhase::kForward, {0}},
                                         {"B", 0, StepPhase::kBackward, {0}},
                                         {"U", 0, StepPhase::kUpdate, {0}}};
  const auto read = [](const std::string& text, const std::vector<StepProgram>& programs) {
    const auto lines = parse_schedule(text, programs, "s.csv");
    if (!lines.ok()) return lines.error().message;
    return schedule_text(*lines);
  };
  CHECK(read("0F0, 0F1,,0B0,0B1 ,0U\r\n\n", full) == "0F0,0F1,0B0,0B1,0U\n");
  CHECK(read("0F0,0SEND_F0,0RECV_B0,0BW0,0UNSHARD,0RESHARD", full) == "0F0,0B0,0U\n");
  CHECK(read("0F0,(0F1;0B0)OVERLAP_F_B,0B1", full) == "0F0,0F1,0B0,0B1,0U\n");
  CHECK(read("0F0,0F1,0B0,0B1,0W1", apart) == "0F0,0F1,0I0,0W0,0I1,0W1,0R,0U\n");
  CHECK(read("0F0,0U,0FB0", full) == "0F0,0U,0FB0\n");
  CHECK(read("0F0\n0X0", full) ==
        "s.csv: line 2: '0X0': expected <chunk><phase><micro-batch>, such as 0F3, with a phase of "
        "F, B, I, W, FB, R or U");
  for (const char* wrong : {"F0", "0", "0F-1", "0F1x", "99999999999999999999F0", "(0F1;0B0"}) {
    CHECK_THAT(read(wrong, full), Contains("s.csv: line 1: '" + std::string(wrong) + "'"));
  }
}

}  // namespace autopar::step_test
