// What ranks are fed: slices of the same tensors, made or read without the rest.
#include "exec/request.hpp"

#include <catch2/catch.hpp>

#include "exec/blocks.hpp"
#include "exec/generate.hpp"
#include "exec/wiring.hpp"

namespace autopar::request_test {
namespace {

Mesh mesh_2x3() { return {{{"a", 2, 1, 3}, {"b", 3, 0, 1}}}; }

Spec spec(const std::vector<std::vector<int>>& dims) {
  Spec result = replicated(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d)
    result.dims[d].append(dims[d].begin(), dims[d].end());
  return result;
}

RunRequest request() {
  RunRequest request;
  request.seed = 5;
  RunProgram program;
  program.path = "plan.onnx";
  program.mesh = mesh_2x3();
  program.inputs = {{"whole", DType::kFloat32, {4, 5}, spec({{}, {}})},
                    {"rows", DType::kFloat16, {6, 2, 3}, spec({{1}, {0}, {}})},
                    {"inner", DType::kInt64, {2, 3, 12}, spec({{}, {}, {0, 1}})},
                    {"flags", DType::kBool, {12}, spec({{1}})},
                    {"number", DType::kFloat64, {}, spec({})}};
  request.programs.push_back(program);
  return request;
}

// The slices by way of the whole tensors.
std::map<std::string, Tensor> slices_of(const InputTensors& whole, const RankPlace& place) {
  std::map<std::string, Tensor> slices;
  for (const BoundaryValue& input : place.program->inputs) {
    const Slice slice(whole.at(input.name), input.spec, place.program->mesh, place.position);
    slices[input.name] = {
        input.dtype, slice.shape(), {static_cast<const char*>(slice.data()), slice.size()}};
  }
  return slices;
}

// The slices without the whole tensors.
Result<std::map<std::string, Tensor>> rank_slices(
    const RunRequest& request, const Wiring& wiring,
    const std::map<std::string, Distribution>& distributions, const RankPlace& place) {
  std::map<std::string, Tensor> slices;
  for (std::size_t i = 0; i < place.program->inputs.size(); ++i) {
    const BoundaryValue& input = place.program->inputs[i];
    AUTOPAR_TRY(slice,
                slice_of_input(request, input, wiring.inputs[0][i], 1, distributions, place));
    slices[input.name] = std::move(slice);
  }
  return slices;
}

TEST_CASE("inputs: a rank's slices are those of the whole tensors", "[exec]") {
  RunRequest made = request();
  const std::map<std::string, Distribution> distributions = {{"inner", {.mean = 1, .indices = 9}},
                                                             {"rows", {.deviation = 2}}};
  const Wiring wiring = wiring_of(made).value();
  const auto whole = whole_inputs(made, wiring, distributions);
  REQUIRE(whole.ok());
  RunRequest given = request();
  std::vector<std::string> read;
  given.read_data = [&](const std::string& name) -> Result<std::optional<Tensor>> {
    read.push_back(name);
    if (name == "flags") return std::optional<Tensor>();
    return std::optional(whole->at(name));
  };
  for (std::int64_t rank = 0; rank < 6; ++rank) {
    const RankPlace place{&made.programs[0], rank};
    CHECK((rank_slices(made, wiring, distributions, place).value() == slices_of(*whole, place)));
    const auto from_file = rank_slices(given, wiring, distributions, place);
    REQUIRE(from_file.ok());
    CHECK((*from_file == slices_of(*whole, place)));
  }
  CHECK(read.size() == 6 * 5);
  given.read_data = [](const std::string&) -> Result<std::optional<Tensor>> {
    return std::optional(Tensor{DType::kBool, {1}, "x"});
  };
  const auto wrong = rank_slices(given, wiring, distributions, {&given.programs[0], 3});
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().message == "data for input 'whole': expected float32[4,5], found bool[1]");
}

TEST_CASE("inputs: places of ranks in several programs", "[exec]") {
  RunRequest two = request();
  two.programs.push_back(two.programs[0]);
  two.programs[0].ranks = {0, 2, 4, 6, 8, 10};
  two.programs[1].ranks = {11, 9, 7, 5, 3, 1};
  CHECK(position_of(two.programs[0], 4) == 2);
  CHECK(position_of(two.programs[1], 3) == 4);
  CHECK_FALSE(position_of(two.programs[1], 4).has_value());
  const Wiring wiring = wiring_of(two).value();
  CHECK(wiring.line_of_rank == std::vector<std::size_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
}

}  // namespace
}  // namespace autopar::request_test
