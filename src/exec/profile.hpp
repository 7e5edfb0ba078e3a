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
