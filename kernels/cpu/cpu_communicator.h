// Collectives between CPU streams of one process. The last rank to reach a collective copies the
// values for all ranks, while the others wait. So there is one meeting for each collective, and no
// copy is running when a rank goes on.
//
// Thread safety: as Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/communicator.h"

namespace baton {

// Creates the communicators of a group of `degree` ranks, in the order of the ranks. Their streams
// must be CpuStreams with threads of their own, because a collective blocks the thread that runs
// it. REQUIRES: degree >= 1.
std::vector<std::unique_ptr<Communicator>> CreateCpuCommunicators(int32_t degree);

}  // namespace baton
