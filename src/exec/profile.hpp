// Times of local ops, from the traces that ONNX Runtime writes.
#pragma once

#include <map>
#include <string>

#include "autopar/exec.hpp"

namespace autopar {

struct KernelTimes {
  int count = 0;
  Seconds seconds = 0;
};

// Adds up the kernel events of a trace by op type. The trace is a list of events, one per line,
// written by ONNX Runtime itself, so three fields of each line are searched for by their text;
// lines that have another form are not counted.
std::map<std::string, KernelTimes> kernel_times(const std::string& trace);

// A folder for the traces, below that for temporary files; removed with its contents.
class TraceFolder {
 public:
  explicit TraceFolder(bool wanted);
  ~TraceFolder();
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: not wanted, or not possible

 private:
  std::string path_;
};

}  // namespace autopar
