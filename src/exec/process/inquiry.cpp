#include "exec/process/inquiry.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr auto kForAnswers = std::chrono::seconds(3);  // a busy machine may need them
constexpr auto kAskAgain = std::chrono::seconds(1);    // rank 0 may have been asked by another
constexpr auto kForRank0 = std::chrono::seconds(8);    // to say anything
// What a rank has sent before it left may still be on its way.
constexpr auto kOnItsWay = std::chrono::seconds(2);

std::string nothing_for(Seconds limit) {
  std::ostringstream text;
  text << "nothing has happened for " << limit << " s";
  return text.str();
}

}  // namespace

std::string to_bytes(const Question& question) {
  WireWriter writer;
  writer.put_text(question.why);
  writer.put_text(question.advice);
  writer.put_text(to_bytes(question.asked));
  return writer.take();
}

Result<Question> question_of(std::string_view bytes) {
  WireReader reader(bytes);
  Question question;
  question.why = reader.text();
  question.advice = reader.text();
  const std::string_view asked = reader.view();
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  AUTOPAR_TRY(where, whereabouts_of(asked));
  question.asked = std::move(where);
  return question;
}

std::optional<CallWatch::Finding> CallWatch::look(int rank,
                                                  const std::optional<CallLog::Stay>& stay,
                                                  const std::map<std::int64_t, Time>& left,
                                                  Seconds limit, Time now) {
  if (!stay) {
    asked_.reset();
    return std::nullopt;
  }
  Finding finding;
  for (std::int64_t other : stay->group) {
    const auto gone = left.find(other);
    if (other == rank || gone == left.end()) continue;
    if (now - std::max(gone->second, stay->since) < kOnItsWay) continue;
    finding.why = "rank " + std::to_string(other) + " has left the run";
    break;
  }
  if (finding.why.empty()) {
    if (std::chrono::duration<double>(now - stay->since).count() <= limit) return std::nullopt;
    finding.why = nothing_for(limit);
    finding.advice = "if the local ops need longer, raise the time limit";
  }
  if (!asked_ || asked_->call != stay->number) {
    asked_ = Asked{stay->number, now, now};
    return finding;
  }
  finding.rank_0_is_silent = rank != 0 && now - asked_->first > kForRank0;
  if (!finding.rank_0_is_silent && now - asked_->last < kAskAgain) return std::nullopt;
  asked_->last = now;
  return finding;
}

std::uint64_t Inquiry::begin(int asker, Question question, Time now) {
  Open open;
  open.asker = asker;
  open.deadline = now + kForAnswers;
  open.answers.resize(size_);
  open.has_answered.assign(size_, false);
  open.answers[static_cast<std::size_t>(asker)] = question.asked;
  open.question = std::move(question);
  open_ = std::move(open);
  return ++number_;
}

void Inquiry::answer(int rank, std::uint64_t number, Whereabouts where) {
  if (!open_ || number != number_) return;
  open_->answers[static_cast<std::size_t>(rank)] = std::move(where);
  open_->has_answered[static_cast<std::size_t>(rank)] = true;
}

std::optional<std::string> Inquiry::conclude(const std::vector<std::string>& processes, Time now) {
  if (!open_) return std::nullopt;
  const auto& has_answered = open_->has_answered;
  const bool all = std::find(has_answered.begin(), has_answered.end(), false) == has_answered.end();
  if (!all && now < open_->deadline) return std::nullopt;
  const Open open = *std::exchange(open_, std::nullopt);
  std::vector<Whereabouts> answers = open.answers;
  for (std::size_t r = 0; r < size_; ++r) {
    // The asker has told where it is.
    if (open.has_answered[r] || static_cast<int>(r) == open.asker) continue;
    answers[r].answers = false;
    answers[r].name = processes[r];
  }
  const Whereabouts& asker = answers[static_cast<std::size_t>(open.asker)];
  const Whereabouts& asked = open.question.asked;
  if (asker.waits_in != asked.waits_in || asker.meetings != asked.meetings) return std::string();
  std::string text = open.question.why + ": " + who_waits(answers, open.asker);
  if (!open.question.advice.empty()) text += "; " + open.question.advice;
  return text;
}

}  // namespace autopar
