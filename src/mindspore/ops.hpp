// What MindSpore's cost model has to know of an op type. An op that is named nowhere here is
// counted by what it reads, may be split as its rule allows, and keeps its own strategies.
#pragma once

#include "autopar/mindspore.hpp"

namespace autopar::mindspore {

// What the computation of an op is counted as; every op that is not named: its inputs.
enum class Counted {
  kInputs,
  kOutput,
  kNothing,  // describes, or hides a redistribution that its edges pay
  kDropout,  // reads its input and writes a mask of one bit per element and more
  kGather,
};

Counted counted(const Op& op);

// A Reshape takes the layouts of its neighbours as they are, used devices or not.
bool takes_any_layout(const Op& op);

// Those that follow others with "elementwise_op_strategy_follow".
bool is_elementwise(const Op& op);

// What may not be split although the rule would allow it: MindSpore has no exchange inside an op
// but that of halos, which it does not charge; its search splits no image that needs them (its test
// of conv2d), its propagation does. PReLU's channels stay whole.
bool stays_whole(const Op& op, const Rule& rule, int factor, DeviceUse use);

}  // namespace autopar::mindspore
