#include "comm/settle_queue.hpp"

#include <algorithm>

namespace autopar {

void SettleQueue::insert(const Entry& entry) {
  due_.push_back(entry);
  std::size_t place = due_.size() - 1;
  for (; place > 0 && due_[place - 1].seconds < entry.seconds; --place) {
    due_[place] = due_[place - 1];
  }
  due_[place] = entry;
}

void SettleQueue::open_next() {
  for (std::size_t word = 0; word < filled_.size(); ++word) {
    if (filled_[word] == 0) continue;
    const int bit = std::countr_zero(filled_[word]);
    now_ = static_cast<int>(word) * 64 + bit;
    filled_[word] &= filled_[word] - 1;
    for (std::int32_t e = first_[at(now_)]; e >= 0; e = entries_[at(e)].next) {
      due_.push_back(entries_[at(e)]);
    }
    first_[at(now_)] = -1;
    std::sort(due_.begin(), due_.end(),
              [](const Entry& a, const Entry& b) { return a.seconds > b.seconds; });
    return;
  }
}

void SettleQueue::clear() {
  due_.clear();
  entries_.clear();
  for (std::size_t word = 0; word < filled_.size(); ++word) {
    for (; filled_[word] != 0; filled_[word] &= filled_[word] - 1) {
      first_[word * 64 + static_cast<std::size_t>(std::countr_zero(filled_[word]))] = -1;
    }
  }
  now_ = -1;
}

}  // namespace autopar
