// The referee of the stand-in for NCCL: it brings the ranks' calls together, does the work, and
// says what is wrong where the real library would hang or give garbage.
//
// It is a thread of the process that made the unique id (rank 0's). Every rank joins by one
// connection per communicator and sends its calls in batches, one at a time; a batch is answered
// when all its calls are complete. Collectives of a communicator go in order; Send and Recv find
// each other by pair, in order.
//
// A communicator fails, and all its waiting ranks learn why, when
// - ranks come to it with different calls: another op, type, count, reduction or root;
// - a Recv takes another size or type than its Send has;
// - a rank has left it, was killed or gave it up, and others still wait for that rank;
// - all ranks of the world wait for each other for half a second. Who only sends does not wait.
#pragma once

#include <string>

namespace stand_in {

// Starts a referee; the result is where it is found. Empty: it could not be started.
std::string start_referee();

}  // namespace stand_in
