#include "cost/held_ahead.hpp"

#include <algorithm>

namespace autopar {

void HeldAhead::begin_pass() {
  runs_.erase(runs_.begin(), runs_.end() - static_cast<std::ptrdiff_t>(of_this_pass_));
  of_this_pass_ = 0;
}

void HeldAhead::begin_op(OpId op, Seconds now, CriticalPath::Part part, Bytes waiting) {
  runs_.push_back({op, now, part, -too_much(op, waiting)});
  ++of_this_pass_;
  coming_[op.index()] = 0;
}

Bytes HeldAhead::too_much(OpId op, Bytes waiting) const {
  return coming_[op.index()] + waiting - room(op.index());
}

HeldAhead::Begin HeldAhead::earliest(Bytes bytes, const Begin& wanted) const {
  if (runs_.empty()) return wanted;
  for (std::size_t r = runs_.size() - 1; r > 0 && runs_[r].begin > wanted.at; --r) {
    if (runs_[r - 1].left < bytes) return {runs_[r].begin, runs_[r].part};
  }
  return wanted;
}

void HeldAhead::hold(Bytes bytes, Seconds begin) {
  if (runs_.empty()) return;
  for (std::size_t r = runs_.size() - 1; r > 0 && runs_[r].begin > begin; --r) {
    runs_[r - 1].left -= bytes;
  }
}

std::optional<HeldAhead::Begin> HeldAhead::earliest_for(OpId reader, Bytes bytes,
                                                        const Begin& wanted) const {
  if (runs_.empty() || runs_.back().op == reader) return earliest(bytes, wanted);
  const std::size_t now = runs_.back().op.index();
  if (runs_.back().left < bytes) return {};
  for (std::size_t o = now + 1; o < reader.index(); ++o) {
    if (coming_[o] + bytes > room(o)) return {};
  }
  return earliest(bytes, wanted);
}

void HeldAhead::hold_for(OpId reader, Bytes bytes, Seconds begin) {
  if (runs_.empty()) return;
  hold(bytes, begin);
  if (runs_.back().op == reader) return;
  runs_.back().left -= bytes;
  for (std::size_t o = runs_.back().op.index() + 1; o < reader.index(); ++o) coming_[o] += bytes;
}

}  // namespace autopar
