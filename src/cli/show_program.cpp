#include "cli/show_program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "autopar/files.hpp"
#include "autopar/report.hpp"
#include "json/parse.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace {

// The first groups of a list.
std::string groups_text(const ProgramCollective& c) {
  constexpr std::size_t kMostGroups = 4, kMostRanks = 8;
  const std::vector<std::int64_t>& ranks = c.groups;
  const auto size = static_cast<std::size_t>(c.group_size);
  std::string text;
  for (std::size_t g = 0; g * size < ranks.size() && g < kMostGroups; ++g) {
    std::string group;
    for (std::size_t i = 0; i < std::min(size, kMostRanks); ++i) {
      group += (i ? "," : "") + std::to_string(ranks[g * size + i]);
    }
    text += "[" + group + (size > kMostRanks ? ",...]" : "]");
  }
  return text + (ranks.size() > kMostGroups * size ? "..." : "");
}

// "4 to 7", or where they do not follow each other "3, 2".
std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  constexpr std::size_t kMost = 8;
  bool run = true;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    run = run && ranks[i] == ranks[0] + static_cast<std::int64_t>(i);
  }
  if (run && ranks.size() > 1) {
    return std::to_string(ranks.front()) + " to " + std::to_string(ranks.back());
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kMost ? ", ..." : "");
}

std::string head(const PlanFile& file) {
  const Plan& plan = file.plan;
  std::string text = file.by_hand ? "program" : "plan";
  text += " for " + std::to_string(plan.mesh.size()) + " ranks";
  if (!file.metadata.ranks.empty()) {
    const std::int64_t stage = file.metadata.stage;
    text += " of " + std::to_string(file.world_size) + " (" +
            (stage >= 0 ? "stage " + std::to_string(stage) + ": " : "") + "ranks " +
            ranks_text(file.ranks) + ")";
  }
  if (!file.dialect.empty()) {
    text += ", in the dialect " + file.dialect;
  } else {
    text += file.by_hand ? ", written by hand" : ", mesh " + to_text(plan.mesh);
  }
  return text + ", " + std::to_string(plan.program.ops.size()) + " ops\n";
}

std::string boundary_table(const Plan& plan) {
  TextTable boundary{{{"boundary", "kind", "type", "shape", "spec", "shape on a rank"}}, {}};
  const auto add = [&](const std::vector<BoundaryValue>& values, const char* kind) {
    for (const BoundaryValue& v : values) {
      boundary.rows.push_back({v.name, kind, name_of(v.dtype), to_text(v.shape),
                               to_text(v.spec, plan.mesh),
                               to_text(local_shape(v.spec, v.shape, plan.mesh))});
    }
  };
  add(plan.inputs, "input");
  add(plan.outputs, "output");
  return to_text(boundary);
}

struct Total {
  int count = 0;
  double sent = 0;
};

}  // namespace

std::string collective_text(const Plan& plan, const ProgramCollective& c) {
  if (!c.collective.axes.empty()) return to_text(c.collective, plan.mesh);
  std::string text = std::string(name_of(c.collective.kind)) + " " + groups_text(c);
  if (c.collective.axis >= 0) text += " " + std::to_string(c.collective.axis);
  if (c.collective.concat_axis >= 0) text += " " + std::to_string(c.collective.concat_axis);
  const std::string reduce_op = plan.program.op(c.op).string_attribute("reduce_op", "sum");
  return reduce_op == "sum" ? text : text + " " + reduce_op;
}

void tell_of_programs(const std::vector<PlanFile>& files) {
  for (const PlanFile& file : files) {
    logging::debug("{}: {} for {} ranks of {}, {} ops{}, written by autopar {}", file.path,
                   file.by_hand ? "a program" : "a plan", file.ranks.size(), file.world_size,
                   file.plan.program.ops.size(),
                   file.metadata.weights.empty() ? "" : ", weights " + file.metadata.weights,
                   file.metadata.version.empty() ? "(not said)" : file.metadata.version);
  }
}

Result<std::string> show_program(const PlanFile& file, bool all_ops) {
  const Plan& plan = file.plan;
  AUTOPAR_TRY(collectives, collectives_of(plan));
  TextTable steps{{{"collective", "what", "on a rank", "sent/rank"}}, {false, false, true, true}};
  std::map<std::string, Total> totals;
  for (const ProgramCollective& c : collectives) {
    if (!communicates(c.collective.kind) && !all_ops) continue;
    const double bytes = static_cast<double>(c.input_bytes);
    const double sent = sent_bytes(c.collective.kind, bytes, c.group_size);
    steps.rows.push_back({plan.program.op(c.op).name, collective_text(plan, c), format_bytes(bytes),
                          format_bytes(sent)});
    if (!communicates(c.collective.kind)) continue;
    for (const char* key : {name_of(c.collective.kind), ""}) {
      ++totals[key].count;
      totals[key].sent += sent;
    }
  }
  std::string text = head(file) + "\n" + boundary_table(plan) + "\n";
  if (totals.empty()) {
    text += (all_ops ? to_text(steps) : "") + "  no communication between the ranks\n";
  } else {
    TextTable sums{{{"in all", "calls/rank", "sent/rank"}}, {false, true, true}};
    const Total all = totals[""];
    totals.erase("");
    for (const auto& [kind, total] : totals) {
      sums.rows.push_back({kind, std::to_string(total.count), format_bytes(total.sent)});
    }
    if (totals.size() > 1) {
      sums.rows.push_back({"", std::to_string(all.count), format_bytes(all.sent)});
    }
    text += to_text(steps) + "\n" + to_text(sums);
  }
  return all_ops ? text + "\n" + to_text(plan.program) : text;
}

std::vector<std::string> warn_of_unknown_ops(const Graph& program) {
  const auto is_known = [](const std::string& domain) {
    // Of ONNX Runtime's, those that communicate are known.
    for (const char* known : {"ai.autopar", "ai.onnx.ml", "ai.onnx.preview.training"}) {
      if (domain == known) return true;
    }
    return domain.empty() || domain.rfind("com.microsoft", 0) == 0;
  };
  std::map<std::string, std::vector<std::string>> ops;  // by type
  for (const Op& op : program.ops) {
    if (!is_known(op.domain)) ops[op.domain + "::" + op.type].push_back(op.name);
  }
  std::vector<std::string> warnings;
  for (const auto& [type, names] : ops) {
    const std::size_t more = names.size() - 1;
    warnings.push_back("op '" + names[0] + "'" +
                       (more > 0 ? " and " + std::to_string(more) + " more are " : " is ") + type +
                       ", of a domain that is not known: taken for local, exchanging nothing "
                       "between ranks");
  }
  return warnings;
}

namespace {

bool lists_files_of_ranks(const std::string& path) {
  std::ifstream file(path);
  char first = 0;
  if (!(file >> first) || first != '{') return false;
  const auto text = read_file(path);
  const auto document = text ? parse_json(*text, path) : text.error();
  if (!document || !document->is_object()) return false;
  const auto format = document->find("format");
  return format != document->end() && *format == "autopar-dialect";
}

// Which of the texts come up; piece by piece, since files can be large.
std::vector<bool> held_by(const std::string& path, const std::vector<std::string>& texts) {
  std::ifstream file(path, std::ios::binary);
  constexpr std::size_t kOverlap = 32;  // longer than any of the texts
  std::vector<bool> held(texts.size());
  std::string piece;
  std::vector<char> block(std::size_t{1} << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    piece.append(block.data(), static_cast<std::size_t>(file.gcount()));
    for (std::size_t t = 0; t < texts.size(); ++t) {
      if (!held[t]) held[t] = piece.find(texts[t]) != std::string::npos;
    }
    piece.erase(0, piece.size() - std::min(piece.size(), kOverlap));
  }
  return held;
}

}  // namespace

FileKind kind_of_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return FileKind::kPlan;
  const std::vector<bool> held = held_by(path, {"autopar.version", "autopar.dialect", "ai.autopar",
                                                "DistCollective", "com.microsoft"});
  if (held[0] && !held[1]) return FileKind::kPlan;
  if (held[2] || lists_files_of_ranks(path)) return FileKind::kByHand;
  const bool perhaps = held[1] || held[3] || held[4];
  return perhaps && speaks_dialect(path) ? FileKind::kByHand : FileKind::kOther;
}

}  // namespace autopar::cli
