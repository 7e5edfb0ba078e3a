// How the processes of a run come to rank 0, of whom each knows the run's secret, and how strangers
// who reach its port are kept out. The secret itself is never sent:
//
//   rank r                                          rank 0
//   kHello: version, size, r, process, number a ->
//                              <- kChallenge: number b, proof by the secret over a and b
//   kProof: by the secret, over b, a and r      ->
//                              <- kWelcome
//
// Whatever else comes is answered by the end of that connection, with a kRefusal that says why
// where a process of autopar can read it, and changes nothing for the others.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"
#include "exec/process/link.hpp"

namespace autopar {

// Where rank 0 listens, to be carried to the others.
struct Rank0Address {
  std::vector<std::string> hosts;  // numeric addresses or names
  int port = 0;
  std::string secret;  // what the processes of the run know and others do not
};

// A connection over which both ends have shown that they know the secret.
struct JoinedRank {
  Socket socket;
  FrameReader reader{kMostFrameBytes};
  std::string process;  // "process 17 on host"; rank 0's is not told
};

// Rank 0 waits for all others, any number of which come at once. By rank, the first unused. Errors
// (kRuntime): not all have come within `timeout`, the missing are named; a rank that has come has
// ended, or has come twice; too few descriptors.
Result<std::vector<JoinedRank>> accept_ranks(const Listener& listener, int size,
                                             const std::string& secret, Seconds timeout);

// All addresses are tried at once and again until rank 0 answers at one. Errors (kRuntime): it has
// not within `timeout`, with the reason per address.
Result<JoinedRank> reach_rank_0(const Rank0Address& address, int rank, int size, Seconds timeout);

// The parts of the handshake, for those above and for tests.
constexpr std::uint32_t kMostHandshakeBytes = 1024;  // of a frame: a stranger must not cost memory
struct Hello {
  std::int32_t size = 0;
  std::int32_t rank = 0;
  std::string process;
  std::string number;  // that nobody can guess
};
std::string to_bytes(const Hello& hello);
// Errors: no hello; one of another version of this protocol.
Result<Hello> hello_of(std::string_view bytes);
std::string random_bytes(std::size_t count);
std::string proof_of_rank_0(const std::string& secret, const Hello& hello,
                            const std::string& number_of_rank_0);
std::string proof_of_rank(const std::string& secret, const Hello& hello,
                          const std::string& number_of_rank_0);

}  // namespace autopar
