// The connection between the two ranks of a communicator of NCCL's stand-in: a Unix socket whose
// abstract name is the unique id. The ranks may be in different processes.
//
// Nothing blocks: the caller calls again until a step is done.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "common/file_descriptor.h"
#include "kernels/cuda/nccl_api.h"

namespace baton {

class FakeNcclLink {
 public:
  enum class Progress : uint8_t { kDone, kNotYet, kBroken };

  // Rank 0 listens from now on.
  FakeNcclLink(int rank, const NcclUniqueId& id);

  // Waits for the other rank. kBroken: the name is in use.
  Progress Meet();
  // Moves bytes from rank 0 to rank 1 and removes them from the front of `bytes`. kDone: all have
  // moved. kBroken: the other rank is gone. REQUIRES: Meet returned kDone.
  Progress Move(std::span<std::byte>& bytes);
  // The other rank sees the end.
  void Close() { socket_ = FileDescriptor(); }

 private:
  const int rank_;
  const NcclUniqueId id_;
  FileDescriptor listener_;  // of rank 0
  FileDescriptor socket_;
};

}  // namespace baton
