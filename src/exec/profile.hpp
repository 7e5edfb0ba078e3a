// Times of local ops, from the traces that ONNX Runtime writes.
#pragma once

#include <cstdio>
#include <functional>
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
// One line at a time: a trace may have a million of them.
Trace parse_trace(std::FILE* file);

struct KernelTimes {
  int count = 0;
  Seconds seconds = 0;
};
// By op type, of the runs of the session from `first_run` to before `end_run`.
std::map<std::string, KernelTimes> kernel_times(const Trace& trace, int first_run, int end_run);

// The file that ONNX Runtime writes a trace to. It loses its name as soon as it is made, so that
// nothing is left however the process ends.
class TraceFile {
 public:
  TraceFile() = default;
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Calls `make` with the beginning of a path, in the folder for temporary files, which it makes
  // one file of; empty: nothing can be made there. Passes on what `make` throws.
  void take(const std::function<void(const std::string& prefix)>& make);
  bool is_open() const { return descriptor_ >= 0; }
  Trace read() const;

 private:
  int descriptor_ = -1;
};

}  // namespace autopar
