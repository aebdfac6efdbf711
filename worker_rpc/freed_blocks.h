// Decides when routers should hear of a worker's status before its next heartbeat: when a request
// has ended early, for example because its client left, or when the last block in use was given
// back. Otherwise `baton status` and routing would see blocks that are free already as used, for up
// to a second.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>

#include "engine/engine_status.h"

namespace baton {

class FreedBlocks {
 public:
  // Returns true if one of these has happened since the last call. Call it several times a second.
  bool Changed(const EngineStatus& status);

 private:
  int64_t failures_ = 0;
  bool in_use_ = false;
};

}  // namespace baton
