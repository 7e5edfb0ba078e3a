// How many random cases a test tries.
#pragma once

namespace autopar {

// A quarter of all where a sanitizer watches, which makes each of them about seven times as long.
template <class Number>
constexpr Number cases(Number all) {
#if defined(__SANITIZE_ADDRESS__)
  return (all + 3) / 4;
#else
  return all;
#endif
}

}  // namespace autopar
