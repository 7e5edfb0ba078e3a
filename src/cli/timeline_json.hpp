// The timeline of a run as a Chrome Trace Event file, which Perfetto and chrome://tracing open.
#pragma once

#include <string>

#include "autopar/exec.hpp"

namespace autopar::cli {

// Each rank is a process of the trace with one row: runs, in them ops, in collectives the waiting
// and the moving. Times in microseconds from the moment at which all ranks were let go.
// `ranks_are`: "thread", "process". Source: "Trace Event Format" by the Chromium project, its
// complete (X) and metadata (M) events and, for messages, flows (s, f).
std::string timeline_json(const RunReport& report, const std::string& ranks_are);

}  // namespace autopar::cli
