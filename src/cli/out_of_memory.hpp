// What becomes of a command for which there is no memory.
#pragma once

namespace autopar::cli {

// From here on the program ends where memory does: what is unfinished (UnfinishedFiles) goes, the
// message and the exit code are those of an std::bad_alloc. None is thrown, because the classes of
// protobuf and ONNX do not stand one: their destructors then free what was never there.
void end_where_memory_ends();

}  // namespace autopar::cli
