// Failures as values and strong ids: nothing of the domain.
//
//   Result<Graph> graph = import_onnx(path, options);
//   if (!graph) return graph.error();
//   use(*graph);
#pragma once

#include <compare>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <variant>

namespace autopar {

// What went wrong, and at the same time the exit code of the program.
enum class ErrorCode {
  kComparison = 1,  // two results that should agree do not
  kUsage = 2,       // wrong command line
  kInfeasible = 3,  // no plan fits; the message names the tightest constraint
  kInput = 4,       // bad or unsupported input
  kRuntime = 5,     // a rank or its communication failed
  kResource = 6,    // memory or disk of this machine do not suffice
  kBug = 70,        // of this program (EX_SOFTWARE of sysexits.h)
};

// A message says where (file, op, dimension), what was expected, what was found and what to try.
struct Error {
  ErrorCode code = ErrorCode::kInput;
  std::string message;
};

inline Error input_error(std::string message) { return {ErrorCode::kInput, std::move(message)}; }
inline Error usage_error(std::string message) { return {ErrorCode::kUsage, std::move(message)}; }
inline Error infeasible_error(std::string message) {
  return {ErrorCode::kInfeasible, std::move(message)};
}
inline Error runtime_error(std::string message) {
  return {ErrorCode::kRuntime, std::move(message)};
}

// Prints `what` and aborts: for broken invariants only, never for bad input.
[[noreturn]] void fail_bug(const char* file, int line, const std::string& what);
#define AUTOPAR_CHECK(condition, what)                               \
  do {                                                               \
    if (!(condition)) ::autopar::fail_bug(__FILE__, __LINE__, what); \
  } while (false)

// A value or an Error. Reading the value of an error aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& value() const& {
    AUTOPAR_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T& value() & {
    AUTOPAR_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T&& value() && {
    AUTOPAR_CHECK(ok(), error().message);
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

// Declares `name` from a Result expression, or returns its error from the enclosing function.
#define AUTOPAR_TRY(name, expression)               \
  auto name##_result = (expression);                \
  if (!name##_result) return name##_result.error(); \
  auto& name = *name##_result
// Returns the error of a Status expression from the enclosing function.
#define AUTOPAR_RETURN_IF_ERROR(expression)                         \
  do {                                                              \
    if (auto status = (expression); !status) return status.error(); \
  } while (false)

// An index that cannot be mixed up with another kind of index; -1 means "none".
template <class Tag>
struct Id {
  std::int32_t value = -1;
  Id() = default;
  explicit Id(std::int64_t v) : value(static_cast<std::int32_t>(v)) {}
  bool valid() const { return value >= 0; }
  std::size_t index() const { return static_cast<std::size_t>(value); }
  auto operator<=>(const Id&) const = default;
};
using OpId = Id<struct OpTag>;
using ValueId = Id<struct ValueTag>;

using Seconds = double;
using Bytes = std::int64_t;
using Flops = double;

}  // namespace autopar

template <class Tag>
struct std::hash<autopar::Id<Tag>> {
  std::size_t operator()(autopar::Id<Tag> id) const { return std::hash<std::int32_t>()(id.value); }
};
