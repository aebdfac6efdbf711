// What makes NCCL's calls, as the two channels of a connection see it (nccl_send_channel.h,
// nccl_receive_channel.h): posts that never block, and reports.
//
// A communicator has two ranks, 0 sends and 1 receives, and its operations end in the order in
// which they were posted. Each has a stream and staging memory of its own, so one that hangs holds
// up no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/protocol/receive_session.h"

namespace baton {

// A communicator of a connection; `attempt` tells it from the connection's earlier ones.
struct NcclCommId {
  PeerId peer;
  uint32_t attempt = 0;
  auto operator<=>(const NcclCommId&) const = default;
};

inline constexpr int kNcclSenderRank = 0;
inline constexpr int kNcclReceiverRank = 1;

struct NcclReport {
  enum class Kind : uint8_t {
    kUniqueId,  // of a sender's communicator, for its receiver
    kReady,     // it stands; `slots` are its staging memory
    kDone,      // its oldest operation has ended
    kFailed,    // it is of no use any more: to be aborted. Nothing follows.
  };
  Kind kind = Kind::kReady;
  NcclCommId comm;
  std::string unique_id;
  std::vector<std::byte*> slots;  // [window]; device memory: not to be touched by the CPU
  absl::Status status;
};

class NcclDriver {
 public:
  virtual ~NcclDriver() = default;

  // Rank 0 passes no unique id and is told it by a report.
  virtual void Create(NcclCommId comm, int rank, std::string unique_id) = 0;
  // The first `bytes` of a slot, to or from the other rank. REQUIRES: reported ready, and no
  // operation under way in that slot.
  virtual void Post(NcclCommId comm, int32_t slot, int64_t bytes) = 0;
  // Ends the communicator and what is under way in it. Reports of it may come that were made
  // before.
  virtual void Abort(NcclCommId comm) = 0;
};

}  // namespace baton
