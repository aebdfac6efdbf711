// Interface for NCCL calls, used by the two channels of a connection (nccl_send_channel.h,
// nccl_receive_channel.h). Posts never block; reports return the results.
//
// A communicator has two ranks: rank 0 sends and rank 1 receives. Its operations end in the order
// in which they were posted. Each communicator has its own stream and staging memory, so a hanging
// communicator does not block the others.
//
// Copies between staging memory and a pool run on other streams. A copy that outlives its
// communicator must hold the memory (NcclReport::keep) until the copy has ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/protocol/receive_session.h"

namespace baton {

// A communicator of a connection. `attempt` distinguishes it from the connection's earlier ones.
struct NcclCommId {
  PeerId peer;
  uint32_t attempt = 0;
  auto operator<=>(const NcclCommId&) const = default;
};

inline constexpr int kNcclSenderRank = 0;
inline constexpr int kNcclReceiverRank = 1;

struct NcclReport {
  enum class Kind : uint8_t {
    kUniqueId,  // id of a sender's communicator, to pass to its receiver
    kReady,     // created; `slots` is its staging memory
    kDone,      // its oldest operation has ended
    kFailed,    // unusable, must be aborted; nothing follows
  };
  Kind kind = Kind::kReady;
  NcclCommId comm;
  std::string unique_id;
  std::vector<std::byte*> slots;  // [window]; device memory, which the CPU must not touch
  absl::Status status;
  // With kReady. While it is held, no other communicator uses the memory of the slots.
  std::shared_ptr<const void> keep = nullptr;
};

// Returns the bytes that the operation of a batch moves. Both sides compute them from its payloads.
// An operation is never empty.
inline int64_t BatchMessageBytes(int64_t payload_bytes) {
  return std::max<int64_t>(payload_bytes, 1);
}

class NcclDriver {
 public:
  virtual ~NcclDriver() = default;

  // Creates a communicator. Rank 0 passes no unique id; a report returns it.
  virtual void Create(NcclCommId comm, int rank, std::string unique_id) = 0;
  // Moves the first `bytes` of a slot to or from the other rank. REQUIRES: reported ready, and no
  // operation in flight in that slot.
  virtual void Post(NcclCommId comm, int32_t slot, int64_t bytes) = 0;
  // Ends the communicator and its operations in flight. Reports made before may still arrive.
  virtual void Abort(NcclCommId comm) = 0;
};

}  // namespace baton
