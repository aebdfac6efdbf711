// Base class of transports with an I/O thread. It checks the engine's posts, queues them as
// commands for the I/O thread, and returns its events.
//
// Each post is checked at once against the pool and the set of live transfers. A transfer is live
// from its post until its terminal event has been polled. The derived transport does everything
// else on its I/O thread.
//
// Thread safety: the engine thread calls the KvTransport functions. The I/O thread calls
// TakeCommands and Publish.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/transport.h"

namespace baton {

// Checks whether a transport can be built from these options. InvalidArgument names the field.
absl::Status CheckTransportOptions(const TransportOptions& options);

class PostedTransport : public KvTransport {
 public:
  explicit PostedTransport(const TransportOptions& options);

  Epoch epoch() const override { return epoch_; }
  absl::Status Expect(ReceiveSpec spec) override;
  void CancelReceive(uint64_t transfer_id) override;
  absl::Status StartSend(SendSpec spec) override;
  void Announce(uint64_t sender_transfer, std::span<const BlockId> blocks, bool final,
                std::string manifest) override;
  void AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                      int32_t layers) override;
  void CancelSend(uint64_t sender_transfer) override;
  void Written(std::span<const BlockId> full, std::span<const BlockId> part,
               int32_t group) override;
  std::vector<TransferEvent> Poll() override;

 protected:
  // Clock for the times that a transfer reports. 0 means: use the I/O thread's clock when it sees
  // the post.
  virtual int64_t NowUs() const { return 0; }
  // InvalidArgument if StartSend could never reach this address.
  virtual absl::Status CheckAddress(const std::string& address) const = 0;
  // Called after a command was queued. Must not block.
  virtual void WakeIoThread() = 0;
  // Called instead of WakeIoThread for a new transfer: its announcements will follow soon.
  virtual void WakeForStart() { WakeIoThread(); }

  std::vector<TransferCommand> TakeCommands();
  // Same, but reuses the capacity of `commands`, which must be empty.
  void TakeCommands(std::vector<TransferCommand>& commands);
  // Hands events to the engine and wakes it. REQUIRES: the I/O thread no longer touches the blocks
  // of transfers that these events end.
  void Publish(std::vector<TransferEvent> events) {
    Queue(std::move(events));
    WakeEngine();
  }
  // Publish in two steps. After Queue, an engine that polls sees the events. WakeEngine wakes one
  // that sleeps.
  void Queue(std::vector<TransferEvent> events);
  void WakeEngine();

 private:
  // kLater: the command waits until something else wakes the I/O thread.
  enum class Wake : uint8_t { kNow, kForStart, kLater };
  void Post(TransferCommand command, Wake wake = Wake::kNow);
  absl::Status CheckRoom(const absl::flat_hash_set<uint64_t>& live, const char* what) const;

  const KvPoolLayout layout_;
  const Epoch epoch_;
  const int32_t max_transfers_;
  const std::function<void()> waker_;
  // Engine thread only.
  absl::flat_hash_set<uint64_t> receiving_;
  absl::flat_hash_set<uint64_t> sending_;

  // I/O thread only. True if events were queued and the engine has not been woken for them yet.
  bool engine_sleeps_on_ = false;

  std::mutex mutex_;
  std::vector<TransferCommand> commands_;  // guarded by mutex_
  std::vector<TransferEvent> events_;      // guarded by mutex_
  std::atomic<bool> has_events_ = false;   // lets an engine that polls all the time skip the lock
};

}  // namespace baton
