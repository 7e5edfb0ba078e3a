// Words of the text form of rules, shared by reading and writing.
#pragma once

#include <array>

#include "autopar/ops.hpp"

namespace autopar {

struct FactorMark {
  char sign;
  FactorKind kind;
};
inline constexpr std::array<FactorMark, 5> kFactorMarks = {{{'+', FactorKind::kSum},
                                                            {'>', FactorKind::kMax},
                                                            {'<', FactorKind::kMin},
                                                            {'~', FactorKind::kExchange},
                                                            {'^', FactorKind::kWhole}}};

}  // namespace autopar
