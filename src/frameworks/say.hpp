// One function per program that can be told a plan. Each begins with `runs` as the form is, names
// what it has no word for, and puts into `runs` what that program does instead. What the plan does
// otherwise than its template is told by form_of().
#pragma once

#include "autopar/frameworks.hpp"

namespace autopar {

void say_megatron(const SaidPlan& plan, const ParallelForm& form, Saying& saying);
void say_deepspeed(const SaidPlan& plan, const ParallelForm& form, Saying& saying);
void say_torchtitan(const SaidPlan& plan, const ParallelForm& form, Saying& saying);
void say_nanotron(const SaidPlan& plan, const ParallelForm& form, Saying& saying);
void say_mindspore(const SaidPlan& plan, const ParallelForm& form, Saying& saying);

class Settings {
 public:
  explicit Settings(Saying& saying) : saying_(saying) {}
  void add(const std::string& name) { saying_.settings.emplace_back(name, ""); }
  void add(const std::string& name, const std::string& value) {
    saying_.settings.emplace_back(name, value);
  }
  void add(const std::string& name, const char* value) { add(name, std::string(value)); }
  void add(const std::string& name, std::int64_t value) { add(name, std::to_string(value)); }
  void add(const std::string& name, bool value) { add(name, value ? "true" : "false"); }
  void unsaid(const std::string& sentence) { saying_.unsaid.push_back(sentence); }
  void advise(const std::string& sentence) { saying_.advice.push_back(sentence); }
  ParallelForm& runs() { return saying_.runs; }

 private:
  Saying& saying_;
};

inline std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }
// Whether all chunks hold the same number of layers, as far as layers are known.
bool is_even(const ParallelForm& form);
// "4, 4, 3, 3": layers of the chunks.
std::string layers_text(const ParallelForm& form);
// Devices over which all of data parallelism could split what is stored.
std::int64_t all_replicas(const ParallelForm& form);
bool is_sixteen_bits(const SaidPlan& plan);  // passes calculate in 16 bits

}  // namespace autopar
