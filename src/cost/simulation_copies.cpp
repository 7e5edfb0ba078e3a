// Passes that are interleaved: how they take turns on the compute stream.
#include <algorithm>
#include <utility>

#include "cost/simulation.hpp"

namespace autopar {

void StepSimulation::run_copies() {
  waiting_.assign(static_cast<std::size_t>(graph_.copies), {});
  for (first_ = 0; first_ < graph_.passes; first_ += graph_.copies) {
    at_.assign(waiting_.size(), 0);
    for (HeldAhead& held : held_) held.begin_pass();
    if (turns_ == Turns::kSections) {
      for (const std::size_t end : section_ends()) {
        for (std::size_t c = 0; c < at_.size(); ++c) {
          while (at_[c] < end) run_next(c);
        }
      }
    } else {
      for (auto next = first_ready(); next; next = first_ready()) run_next(*next);
    }
  }
  for (Waiting& waiting : waiting_) go_on(waiting);
}

std::optional<std::size_t> StepSimulation::first_ready() const {
  std::optional<std::size_t> best;
  std::pair<Seconds, Seconds> least;
  for (std::size_t c = 0; c < at_.size(); ++c) {
    if (at_[c] == pass_.size() || (c > 0 && at_[c] == at_[c - 1])) continue;
    const std::pair key(std::max(compute_, waiting_[c].until), left_in_section_[at_[c]]);
    if (best && least <= key) continue;
    best = c;
    least = key;
  }
  return best;
}

void StepSimulation::run_next(std::size_t c) {
  Waiting& waiting = waiting_[c];
  now_ = first_ + static_cast<std::int64_t>(c);
  last_ = now_ + 1 == graph_.passes;
  if (!blocks(at_[c])) go_on(waiting);
  leaves_for_ = &waiting;
  do {
    run_part(pass_, at_[c], at_[c] + 1);
    ++at_[c];
  } while (at_[c] < pass_.size() && blocks(at_[c]));
  leaves_for_ = nullptr;
}

void StepSimulation::find_sections() {
  left_in_section_.resize(pass_.size());
  Seconds left = 0;
  for (std::size_t i = pass_.size(); i-- > 0;) {
    if (blocks(i)) {
      left = 0;
    } else if (kinds_[pass_[i]] == Kind::kCompute) {
      left += taken_[pass_[i]];
    }
    left_in_section_[i] = left;
  }
}

// As partition orders interleaved passes (Interleaving::section_ends()), of terms in place of ops.
std::vector<std::size_t> StepSimulation::section_ends() const {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < pass_.size(); ++i) {
    const bool is_last = i + 1 == pass_.size();
    if (is_last || (blocks(i) && !blocks(i + 1))) ends.push_back(i + 1);
  }
  return ends;
}

void StepSimulation::go_on(Waiting& waiting) {
  Seconds left = std::max(0.0, waiting.until - compute_);
  compute_ += left;
  Seconds beside = 0;
  for (auto part = waiting.parts.rbegin(); part != waiting.parts.rend(); ++part) {
    const Seconds exposed = std::min(left, part->span);
    const Seconds lost = std::min(part->waited, part->span - exposed) * profile_.slowdown;
    found_.exposed[part->term] += exposed + lost;
    left -= exposed;
    beside += lost;
  }
  compute_ += beside;
  waiting = {};
}

}  // namespace autopar
