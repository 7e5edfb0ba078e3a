// Who waits for whom, found out without a look at any clock or connection: what a rank asks, when
// it asks, and what rank 0 makes of the answers. The control channel carries them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/support.hpp"
#include "exec/process/call_log.hpp"
#include "exec/whereabouts.hpp"

namespace autopar {

// What a rank that waits in vain asks rank 0.
struct Question {
  std::string why;     // "nothing has happened for 60 s"
  std::string advice;  // what to try; may be empty
  Whereabouts asked;   // where the asker is
};
std::string to_bytes(const Question& question);
Result<Question> question_of(std::string_view bytes);

// The call that this rank is in: whether it takes too long, or waits for a rank that has left.
class CallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Finding {
    std::string why;
    std::string advice;
    bool rank_0_is_silent = false;  // it was asked in vain; else it is to be asked
  };
  // `left`: when other ranks were learnt to have left.
  std::optional<Finding> look(int rank, const std::optional<CallLog::Stay>& stay,
                              const std::map<std::int64_t, Time>& left, Seconds limit, Time now);

 private:
  struct Asked {
    std::uint64_t call = 0;  // its number
    Time first;
    Time last;
  };
  std::optional<Asked> asked_;
};

// Rank 0 has asked all ranks what they are doing. One inquiry at a time: what it finds is the
// failure of all, and who asks in vain asks again.
class Inquiry {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Inquiry(int size) : size_(static_cast<std::size_t>(size)) {}

  bool is_under_way() const { return open_.has_value(); }
  // Its number, which the answers carry. Precondition: none is under way; the asker is a rank.
  std::uint64_t begin(int asker, Question question, Time now);
  // Answers to another inquiry are not counted.
  void answer(int rank, std::uint64_t number, Whereabouts where);
  void drop() { open_.reset(); }
  // Nothing: not all have answered, and there is time. Else the inquiry ends, with the text that
  // says who waits for whom; an empty one where the asker has come on meanwhile. `processes`: by
  // rank.
  std::optional<std::string> conclude(const std::vector<std::string>& processes, Time now);

 private:
  struct Open {
    int asker = 0;
    Question question;
    Time deadline;
    std::vector<Whereabouts> answers;  // by rank
    std::vector<bool> has_answered;
  };
  std::size_t size_;
  std::uint64_t number_ = 0;
  std::optional<Open> open_;
};

}  // namespace autopar
