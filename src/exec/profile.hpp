// Times of local ops, from the traces that ONNX Runtime writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// One local op in a trace.
struct KernelEvent {
  std::string name;  // of the node
  std::string type;
  int model_run = 0;  // how many times the session had run before
  Seconds begin = 0;  // after the trace's beginning
  Seconds seconds = 0;
  bool inner = false;  // within an op that has a body, whose time contains this one's
};

// The kernel events of a trace in its order. The trace is a list of events, one per line, written
// by ONNX Runtime itself, so a few fields of each line are searched for by their text; lines that
// have another form are not counted.
struct Trace {
  std::vector<KernelEvent> kernels;
  int model_runs = 0;  // that it has the end of: it stops at a million events
};
Trace parse_trace(const std::string& trace);

struct KernelTimes {
  int count = 0;
  Seconds seconds = 0;
};
// By op type, of the runs of the session from `first_run` to before `end_run`.
std::map<std::string, KernelTimes> kernel_times(const Trace& trace, int first_run, int end_run);

// A folder for the traces, below that for temporary files; removed with its contents.
class TraceFolder {
 public:
  explicit TraceFolder(bool wanted);
  ~TraceFolder();
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: not wanted, or not possible
  // Opens the only file that is there and removes it with the folder, so that nothing is left
  // however the process ends. Its contents can be read as long as this object lives.
  void take_file();
  bool has_file() const { return descriptor_ >= 0; }
  std::string text_of_file() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace autopar
