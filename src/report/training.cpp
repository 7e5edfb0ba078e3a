// What a training step does in its time.
#include <cmath>
#include <nlohmann/json.hpp>

#include "autopar/report.hpp"

namespace autopar {

std::string training_line(const TrainingWork& work, Seconds seconds, std::int64_t devices) {
  const auto rate = [&](double count) { return format_count(count / seconds); };
  std::string text = "a step of " + format_count(work.samples) + " samples";
  if (work.tokens > 0) text += ", " + format_count(work.tokens) + " tokens";
  text += ": " + rate(work.samples) + " samples/s";
  if (work.tokens > 0) {
    text += ", " + rate(work.tokens) + " tokens/s, " +
            rate(work.tokens / static_cast<double>(devices)) + " tokens/s per device";
  }
  return text + "; model FLOPs utilisation " + format_percent(work.at_peak / seconds);
}

std::string training_json(const TrainingWork& work, Seconds seconds, std::int64_t devices) {
  using Json = nlohmann::ordered_json;
  // JSON has no infinity; null says "none".
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  const auto of_tokens = [&](double value) { return work.tokens > 0 ? number(value) : Json(); };
  const Json json = {{"samples", work.samples},
                     {"tokens", of_tokens(work.tokens)},
                     {"micro_batches", work.micro_batches},
                     {"copies", work.copies},
                     {"zero", work.zero},
                     {"model_flops", work.model_flops},
                     {"seconds_at_peak", work.at_peak},
                     {"samples_per_second", number(work.samples / seconds)},
                     {"tokens_per_second", of_tokens(work.tokens / seconds)},
                     {"tokens_per_second_per_device",
                      of_tokens(work.tokens / seconds / static_cast<double>(devices))},
                     {"model_flops_utilisation", number(work.at_peak / seconds)}};
  return json.dump();
}

TrainingWork training_of_json(const std::string& text) {
  const auto training = nlohmann::json::parse(text);
  TrainingWork work;
  work.samples = training.at("samples").get<double>();
  if (!training.at("tokens").is_null()) work.tokens = training.at("tokens").get<double>();
  work.model_flops = training.at("model_flops").get<double>();
  work.at_peak = training.at("seconds_at_peak").get<double>();
  work.micro_batches = training.value("micro_batches", std::int64_t{1});
  work.copies = training.value("copies", std::int64_t{1});
  work.zero = training.value("zero", "auto");
  return work;
}

}  // namespace autopar
