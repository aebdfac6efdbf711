// The engine's side of a transport with an I/O thread: checks posts, carries them over as commands,
// and brings events back.
//
// Posts are checked here, at once, against the pool and the set of live transfers; a transfer is
// live from its post until its terminal event has been polled. Everything else happens on the I/O
// thread of the derived transport.
//
// Thread safety: the KvTransport functions are called from the engine thread, TakeCommands and
// Publish from the I/O thread.
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

// Whether a transport can be built from these: InvalidArgument names the field.
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
  // For what is told of a transfer's times; 0: the I/O thread's time, when it sees a post.
  virtual int64_t NowUs() const { return 0; }
  // InvalidArgument when StartSend could never reach it.
  virtual absl::Status CheckAddress(const std::string& address) const = 0;
  // Called after a command was queued; must not block.
  virtual void WakeIoThread() = 0;
  // The same of one to which something else will follow soon: a new transfer's announcements.
  virtual void WakeForStart() { WakeIoThread(); }

  std::vector<TransferCommand> TakeCommands();
  // Into what is empty and has memory already.
  void TakeCommands(std::vector<TransferCommand>& commands);
  // Hands events to the engine and wakes it. REQUIRES: the I/O thread no longer touches the blocks
  // of transfers that end in them.
  void Publish(std::vector<TransferEvent> events) {
    Queue(std::move(events));
    WakeEngine();
  }
  // The same in two steps: an engine that looks finds them at once, one that sleeps is woken later.
  void Queue(std::vector<TransferEvent> events);
  void WakeEngine();

 private:
  // kLater: it waits for whatever wakes the I/O thread next.
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

  bool engine_sleeps_on_ =
      false;  // the I/O thread's: events were queued, and nobody woken for them

  std::mutex mutex_;
  std::vector<TransferCommand> commands_;  // guarded by mutex_
  std::vector<TransferEvent> events_;      // guarded by mutex_
  std::atomic<bool> has_events_ = false;   // an engine that looks all the time holds up nobody
};

}  // namespace baton
