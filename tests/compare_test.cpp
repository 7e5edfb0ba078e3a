// Results against what is expected: tolerances, what is excused behind a jump.
#include "exec/compare.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "encode.hpp"
#include "exec/verdict.hpp"

namespace autopar::compare_test {

using testing::encode;

namespace {

// By the criterion of a result that is alone, with only the tolerance as it is given.
Criterion criterion_for(DType dtype, const std::vector<double>& expected, Tolerance tolerance) {
  double largest = 0;
  for (double element : expected) {
    if (std::isfinite(element)) largest = std::max(largest, std::abs(element));
  }
  return criterion_of(dtype, tolerance, {.largest = largest});
}

Difference differ(DType dtype, const std::vector<double>& found,
                  const std::vector<double>& expected, Tolerance tolerance = {1e-3, 1e-5}) {
  return compare(encode(dtype, found).data(), encode(dtype, expected).data(), expected.size(),
                 criterion_for(dtype, expected, tolerance));
}

TEST_CASE("compare: tolerances, NaN, infinities, integers", "[exec]") {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(differ(DType::kFloat32, {1, 2}, {1, 2}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {1.0005, 2}, {1, 2}).disagreeing == 0);
  const Difference far = differ(DType::kFloat32, {1, 2.5}, {1, 2});
  CHECK(far.disagreeing == 1);
  CHECK(far.max_absolute == 0.5);
  CHECK(far.max_relative == 0.25);
  CHECK(far.first == "element 1 of the slice is 2.5, expected 2");
  CHECK(differ(DType::kFloat64, {0.001}, {0}).disagreeing == 1);
  CHECK(differ(DType::kFloat32, {nan, 1}, {nan, 1}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {nan, 1}, {nan, 1}).nans == 1);
  CHECK(differ(DType::kFloat32, {nan, 1}, {1, nan}).disagreeing == 2);
  CHECK(differ(DType::kFloat32, {inf, -inf}, {inf, -inf}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {inf, 1}, {-inf, inf}).disagreeing == 2);
  CHECK(std::isinf(differ(DType::kFloat32, {inf}, {1}).max_absolute));
  CHECK(differ(DType::kInt64, {3, 4}, {3, 5}).disagreeing == 1);
  CHECK(differ(DType::kBool, {1, 0}, {1, 1}).disagreeing == 1);
  CHECK(differ(DType::kFloat16, {1.005}, {1}).disagreeing == 0);
  CHECK(differ(DType::kFloat16, {1.05}, {1}).disagreeing == 1);
  CHECK(differ(DType::kBFloat16, {1.05}, {1}).disagreeing == 0);
  CHECK(differ(DType::kBFloat16, {1.2}, {1}).disagreeing == 1);
}

TEST_CASE("compare: an updated tensor agrees in its change", "[exec]") {
  const auto whole = [](const std::vector<double>& values) {
    return Tensor{DType::kFloat32,
                  {static_cast<std::int64_t>(values.size())},
                  encode(DType::kFloat32, values)};
  };
  const Tensor before = whole({1, 1, 1, 1});
  const Tensor after = whole({1.001, 0.999, 1.002, 1});
  CHECK(largest_magnitude(after, &before) == Approx(0.002).epsilon(1e-4));
  Scales scales{.largest = largest_magnitude(after),
                .is_next_value = true,
                .largest_change = largest_magnitude(after, &before)};
  const auto differences = [&](const std::vector<double>& found, bool updated) {
    scales.is_next_value = updated;
    Criterion criterion = criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales);
    criterion.jump = "Greater 'op'";
    const Difference difference = compare(whole(found).bytes.data(), after.bytes.data(), 4,
                                          criterion, updated ? before.bytes.data() : nullptr);
    return std::pair(difference.disagreeing, is_excused(difference, criterion));
  };
  const std::vector<double> wrong = {1.0008, 0.9988, 1.0018, 1};
  CHECK(differences(wrong, false).first == 0);  // 2e-4 of a weight of 1
  CHECK(differences(wrong, true) == std::pair(std::size_t{3}, false));
  CHECK(differences({1.001, 0.999, 1.002 + 1e-5, 1}, true).first == 0);
  // Never laxer than without: a change that is much larger than the weight that is left.
  const Tensor large = whole({100, 100, 100, 100});
  scales = {.largest = 1, .is_next_value = true, .largest_change = 99};
  CHECK(compare(whole({1.01, 1, 1, 1}).bytes.data(), before.bytes.data(), 4,
                criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales), large.bytes.data())
            .disagreeing == 1);
}

TEST_CASE("compare: small changes are not lost in the absolute tolerance", "[exec]") {
  const auto bytes = [](const std::vector<double>& values) {
    return encode(DType::kFloat32, values);
  };
  const auto disagreeing = [&](double found, double typical_change) {
    const Scales scales{.largest = 0.002,
                        .typical_of_all = typical_change,
                        .is_next_value = true,
                        .largest_change = 3e-6};
    return compare(bytes({found, 0.001997}).data(), bytes({0.001003, 0.001997}).data(), 2,
                   criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales),
                   bytes({0.001, 0.002}).data())
        .disagreeing;
  };
  CHECK(disagreeing(0.0010025, 0) == 1);
  CHECK(disagreeing(0.0010025, 1) == 0);  // all are rounded so
  CHECK(disagreeing(0.00100301, 0) == 0);
}

TEST_CASE("expect: absolute tolerances go by what the model computes", "[exec]") {
  const auto tensor = [](DType dtype, const std::vector<double>& values) {
    return Tensor{dtype, {static_cast<std::int64_t>(values.size())}, encode(dtype, values)};
  };
  const std::map<std::string, Tensor> outputs = {
      {"tiny", tensor(DType::kFloat32, {1e-9, 2e-9, 0})},
      {"new.w", tensor(DType::kFloat32, {30, 20, 10})},
      {"new.b", tensor(DType::kFloat32, {1e-6, 1e-6, 1e-6})}};
  const std::map<std::string, Tensor> inputs = {{"w", tensor(DType::kFloat32, {20, 20, 30})},
                                                {"b", tensor(DType::kFloat32, {0, 0, 0})}};
  RunRequest request;
  request.jumps["new.b"] = "Sign 'op'";
  const ExpectedTensors expected = expect(request, outputs, inputs);
  const Criterion& tiny = expected.at("tiny").criterion;
  CHECK(tiny.tolerance.atol == Approx(4e-11));
  CHECK(tiny.jump.empty());
  CHECK(tiny.reason() == "|difference| <= 4e-11 + 0.0002 |expected|");
  const double rounding = 12 * 20 * 0x1p-23;  // more than the absolute tolerance
  CHECK(expected.at("new.w").criterion.tolerance.atol == Approx(rounding));
  CHECK(expected.at("new.w").criterion.allowed(20, 20) ==
        Approx(rounding + 2e-4 * 20.0 / 16 + 16 * 20 * 0x1p-23));
  // The median change of w is 10: what is left of b may be no more than rounding.
  const Criterion& left = expected.at("new.b").criterion;
  CHECK(left.change_atol == Approx(12 * 10 * 0x1p-23));
  CHECK(left.jump == "Sign 'op'");
  CHECK(left.reason().find("behind Sign 'op' up to 25 % of the elements") != std::string::npos);
  // Half of it masked: by what is not.
  const Tensor masked = tensor(DType::kFloat16, {-60000, 2, -3, 2, -60000});
  CHECK(typical_magnitude(masked) == 3);
  const Scales scales{.largest = 60000, .typical = 3};
  CHECK(criterion_of(DType::kFloat16, {2e-4, 0}, scales).tolerance.atol == Approx(36 * 0x1p-10));
  // Results in float32, but not next values, lie behind all sums of a model.
  CHECK(criterion_of(DType::kFloat32, {2e-4, 0}, scales).tolerance.atol ==
        Approx(96 * 3 * 0x1p-23));
  CHECK(criterion_of(DType::kFloat64, {2e-4, 0}, scales).tolerance.atol == Approx(36 * 0x1p-52));
}

TEST_CASE("compare: what is excused behind a jump is little and small", "[exec]") {
  std::vector<double> expected(10000, 0.1);
  for (std::size_t i = 0; i < expected.size(); i += 2) expected[i] = -1;
  std::vector<double> found = expected;
  const auto excused = [&](double rtol, const std::string& jump = "Sign 'op'") {
    Criterion criterion = criterion_for(DType::kFloat32, expected, {rtol, 1e-5});
    criterion.jump = jump;
    return is_excused(compare(encode(DType::kFloat32, found).data(),
                              encode(DType::kFloat32, expected).data(), expected.size(), criterion),
                      criterion);
  };
  found[17] = 0.11;
  CHECK(differ(DType::kFloat32, found, expected).disagreeing == 1);
  CHECK(excused(2e-4));
  CHECK_FALSE(excused(2e-4, ""));  // no jump, no excuse
  CHECK_FALSE(excused(0));
  found[17] = 0.2;  // too large
  CHECK_FALSE(excused(2e-4));
  found = expected;
  for (double& element : found) element *= 1.002;  // too many
  CHECK_FALSE(excused(2e-4));
  found = expected;
  for (std::size_t i = 0; i < 1000; ++i) found[i] *= 1.045;  // too much as a whole
  CHECK_FALSE(excused(2e-4));
  found = expected;
  found[3] = std::nan("");
  CHECK_FALSE(excused(2e-4));
}

TEST_CASE("compare: more is excused behind a jump in 16 bits", "[exec]") {
  const std::vector<double> expected(100, 1);
  const auto excused = [&](double off, std::size_t count, DType calculated_in, double rtol = 2e-4) {
    std::vector<double> found = expected;
    for (std::size_t i = 0; i < count; ++i) found[i] += off;
    const Scales scales{.largest = 1, .typical = 1, .largest_result = 1};
    Criterion criterion = criterion_of(DType::kFloat32, {rtol, 1e-5}, scales, calculated_in);
    criterion.jump = "Greater 'op'";
    return is_excused(compare(encode(DType::kFloat32, found).data(),
                              encode(DType::kFloat32, expected).data(), expected.size(), criterion),
                      criterion);
  };
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    CHECK(excused(0.05, 100, half));
    CHECK(excused(0.19, 10, half));
    CHECK_FALSE(excused(0.21, 1, half));    // too large
    CHECK_FALSE(excused(0.07, 100, half));  // too much as a whole
    CHECK_FALSE(excused(0.05, 100, half, 0));
  }
  CHECK_FALSE(excused(0.05, 100, DType::kFloat32));
}

}  // namespace
}  // namespace autopar::compare_test
