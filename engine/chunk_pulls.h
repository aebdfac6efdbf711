// Chunk pulls: copies prompt chunks from one worker's chunk cache into another's, independently of
// any request.
//
//   receiver: Pull → OnTicket → (parts land, are verified) → stored in the chunk cache → OnDone
//   source:   Send → blocks of cached parts are held and announced → released when a part was sent
//
// A pull can only save computation. If it fails, the request computes the chunks that are missing.
//
// Rules:
//  1. A chunk travels as its parts (chunk_layout.h), each as a transfer of its own. The ticket
//     names the parts. A part is used only if it landed whole.
//  2. A pull does not ask for parts that this worker has already: parts that are cached or sleep,
//     that a request computes or receives, or that another pull brings. A pull waits for parts that
//     another pull brings. If that pull is cancelled, it continues without them, because the source
//     may never have received that pull's ticket.
//  3. A pull uses free blocks and cached prefixes without a user, never blocks of a request. It
//     leaves `spare_blocks` blocks to sequences. All pulls together use at most half of the pool.
//     A pull asks for as many parts as fit.
//  4. A stored part is an ordinary entry of the chunk cache. It may be evicted before the request
//     comes.
//  5. A part that the source lacks is announced as empty, so the receiver does not wait for it. A
//     part that sleeps at the source counts as lacking there: it would first need blocks and a
//     copy.
//  6. Every Pull gets one OnDone. A transfer's blocks are held until its terminal event.
//
// Thread safety: engine thread only; sinks are called on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/chunk_layout.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/joint_transfers.h"
#include "engine/prompt_parts.h"
#include "engine/request.h"
#include "kvtransfer/transport.h"

namespace baton {

struct ChunkPullOptions {
  int64_t longest_ms = 120'000;  // upper limit of a transfer's timeout
  int32_t max_transfers = 256;   // limit of incoming and of outgoing transfers
};

class ChunkPulls {
 public:
  // Numbers of outgoing transfers (SendSpec::sender_transfer) from here on belong to this object.
  static constexpr uint64_t kFirstTransfer = uint64_t{3} << 62;

  // All pointers must outlive this. `transport` may be null: then every pull is refused.
  // `new_transfer_id` as in PrefixPulls.
  ChunkPulls(const ChunkPullOptions& options, KvCacheManager* cache, KvTransport* transport,
             PromptParts* parts, const Clock* clock, std::function<uint64_t()> new_transfer_id);
  // REQUIRES: idle().
  ~ChunkPulls();

  // Starts a pull of the request's chunks. Refusals reach the sink: ResourceExhausted (no room, or
  // too many transfers), FailedPrecondition (no transport, or no chunk cache). REQUIRES: `handle`
  // is new; ModelLimits::CheckChunksToPull is OK.
  void Pull(RequestHandle handle, const PullRequest& request, std::shared_ptr<PullSink> sink,
            int32_t spare_blocks);
  // Sends the parts that the ticket names and the chunk cache has. Returns the number of their
  // tokens. NotFound: none of them is cached. InvalidArgument: the ticket does not fit the chunks.
  // FailedPrecondition: no transport. ResourceExhausted: too many transfers. REQUIRES: as in Pull,
  // except for the handle.
  absl::StatusOr<int32_t> Send(const SendPrefixRequest& request);
  // Ends a pull with Cancelled. Ignores other handles.
  void Cancel(RequestHandle handle);
  // Ends all pulls with `status` and cancels the transfers.
  void Shutdown(const absl::Status& status);

  // Handles an event. Returns false if it belongs to no transfer of this object.
  bool OnEvent(const TransferEvent& event);
  bool IsReceiving(uint64_t transfer_id) const { return imports_.contains(transfer_id); }
  int32_t active() const { return static_cast<int32_t>(imports_.size() + exports_.size()); }
  bool idle() const { return active() == 0 && pulls_.empty(); }
  // Appends the blocks that transfers hold in the cache. A block appears once per hold.
  void AppendHeld(std::vector<BlockId>& held) const;

 private:
  using Part = ChunkLayout::Part;
  struct ActivePull {
    std::shared_ptr<PullSink> sink;
    std::shared_ptr<const ChunkLayout> layout;  // of the chunks
    int32_t waits_for = 0;                      // transfers
    int32_t pulled_tokens = 0;
    JointTransfers moved;
    absl::Status failure;  // of the first transfer that brought nothing
  };
  struct Import {
    SequenceId sequence;  // owns the blocks; in the cache only
    std::shared_ptr<const ChunkLayout> layout;
    int32_t part = 0;
    std::vector<BlockId> blocks;       // held in the cache
    std::vector<RequestHandle> pulls;  // that wait for it; the first one has the ticket
  };

  absl::Status Begin(RequestHandle handle, const PullRequest& request,
                     const std::shared_ptr<PullSink>& sink, int32_t spare_blocks);
  // Returns the transfer that brings this part, or 0.
  uint64_t OnItsWay(const Part& part) const;
  absl::Status Expect(RequestHandle handle, const std::shared_ptr<const ChunkLayout>& layout,
                      int32_t part, int64_t timeout_ms, int32_t spare_blocks,
                      TransferTicket& ticket);
  void Arrived(Import import, const TransferEvent& event);
  void Store(const Import& import);
  bool IsCached(const Part& part) const;
  PullResult ResultOf(const ActivePull& pull) const;
  void EndPull(RequestHandle handle);
  SequenceId NewSequence() { return SequenceId(kFirstSequence + next_sequence_++); }

  // No request has such a sequence, and no part (PromptParts::IsPart).
  static constexpr uint64_t kFirstSequence = uint64_t{1} << 62;

  const ChunkPullOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  PromptParts* const parts_;
  const Clock* const clock_;
  const std::function<uint64_t()> new_transfer_id_;
  absl::flat_hash_map<RequestHandle, ActivePull> pulls_;
  absl::flat_hash_map<uint64_t, Import> imports_;  // by transfer id
  // Blocks by sender_transfer, held in the cache. Their entries may be evicted meanwhile.
  absl::flat_hash_map<uint64_t, std::vector<BlockId>> exports_;
  int32_t pulled_blocks_ = 0;  // of imports
  uint64_t next_sequence_ = 0;
  uint64_t next_transfer_ = kFirstTransfer;
};

}  // namespace baton
