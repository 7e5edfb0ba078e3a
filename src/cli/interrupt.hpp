// What becomes of a command that is interrupted while it writes.
#pragma once

namespace autopar::cli {

// From here on a SIGINT or SIGTERM ends the program, and what is unfinished (UnfinishedFiles) goes
// first. For commands that write; not where the program forks.
void end_on_interrupt();

}  // namespace autopar::cli
