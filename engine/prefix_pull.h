// Prefix pulls: copies a prompt's cached prefix from one worker's cache into another's,
// independently of any request.
//
//   receiver: Pull → OnTicket → (blocks land, are verified) → inserted, leased → OnDone
//   source:   Send → cached blocks are held and announced → released when the transfer has ended
//
// A pull can only make the receiver's next match longer. If it fails, the blocks that landed and
// were verified stay cached, and the request computes the rest.
//
// Rules:
//  1. Only whole blocks are copied. The source's block size may differ. The transport's handshake
//     compares fingerprints.
//  2. A pull uses free blocks and cached blocks without a user, never blocks of a request. It
//     leaves one spare block for each sequence in the scheduler. All pulls and leases together use
//     at most half of each KV group's pool.
//  3. Pulled blocks are leased: they stay locked for a short time so that the request can find
//     them. A lease ends after `lease_ms`, or earlier if a sequence finds no room. It holds blocks
//     as a transfer does, so a sequence that needs them waits and is not ended. A new pull drops
//     leases of equal or lower priority if it needs their room, oldest first.
//  4. A pull of a prefix that is already being transferred joins that transfer. With sliding
//     windows it can join only if both prefixes have the same end (rule 7). The transfer continues
//     while it has a waiter. If the waiter with the ticket leaves before any block has landed,
//     another waiter for the whole prefix gets the ticket.
//  5. Every Pull gets one OnDone. A transfer's blocks are held until its terminal event.
//  6. At most `max_transfers` prefixes are sent at once. Another send starts only by cancelling one
//     of lower priority: the most recent one of the lowest priority. The receiver of the cancelled
//     send computes the missing part. So a lower priority never blocks a higher one. At most
//     `max_transfers` cancelled sends may still be ending.
//  7. With sliding windows only a complete prefix is usable, because the transfer carries window
//     blocks for its end only. A source that lacks the end sends nothing. Landed blocks without
//     whole windows are dropped. Leases hold the windows at the prefix's end.
//
// Thread safety: engine thread only; sinks are called on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/block_counts.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/request.h"
#include "engine/transfer_rows.h"
#include "kvtransfer/transport.h"

namespace baton {

struct PrefixPullOptions {
  // 0: no leases. The default is far longer than a router needs to send the request that uses the
  // prefix.
  int64_t lease_ms = 1000;
  int64_t longest_ms = 120'000;  // upper limit of a transfer's timeout
  int32_t max_transfers = 256;   // limit of incoming and of outgoing transfers
};

class PrefixPulls {
 public:
  // All pointers must outlive this. `transport` may be null: then every pull is refused.
  // `new_transfer_id` returns ids that no other transfer to this worker uses and that a peer cannot
  // guess.
  PrefixPulls(const PrefixPullOptions& options, KvCacheManager* cache, KvTransport* transport,
              const Clock* clock, std::function<uint64_t()> new_transfer_id);
  // REQUIRES: idle().
  ~PrefixPulls();

  // Starts a pull that leaves `spare_blocks` blocks to sequences. Refusals reach the sink:
  // ResourceExhausted (no room, or too many pulls), FailedPrecondition (no transport, or the cache
  // does not share prefixes). REQUIRES: `handle` is new.
  void Pull(RequestHandle handle, PullRequest request, const std::shared_ptr<PullSink>& sink,
            int32_t spare_blocks);
  // Sends the cached part of the prefix. Returns the number of tokens that the receiver will have,
  // including those that it has already. NotFound: no cached block fills a block that the receiver
  // lacks; with sliding windows, the whole prefix is not cached. InvalidArgument: the ticket does
  // not fit the prefix. FailedPrecondition: no transport, or the receiver's blocks are too large
  // for windows. ResourceExhausted: too many sends, none of lower priority. REQUIRES: `handle` is
  // new and higher than all before.
  absl::StatusOr<int32_t> Send(RequestHandle handle, const SendPrefixRequest& request);
  // Ends a pull with Cancelled. Ignores other handles.
  void Cancel(RequestHandle handle);

  // Handles an event. Returns false if it belongs to no transfer of this object.
  bool OnEvent(const TransferEvent& event);
  bool IsReceiving(uint64_t transfer_id) const { return imports_.contains(transfer_id); }

  // Ends leases that have expired. Returns the time at which the next one expires.
  std::optional<int64_t> EndLeases();
  // Ends all leases, because a sequence needs their blocks.
  void DropLeases();
  bool has_leases() const { return !leases_.empty(); }

  // Ends every pull with `status`, ends all leases, and cancels the transfers. The caller must
  // still poll them until idle().
  void Shutdown(const absl::Status& status);
  // Appends the blocks of one KV group that pulls, sends and leases hold in the cache. A block
  // appears once per hold.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;
  bool idle() const { return imports_.empty() && exports_.empty() && leases_.empty(); }
  int32_t active_transfers() const {
    return static_cast<int32_t>(imports_.size() + exports_.size());
  }

 private:
  struct Waiter {
    RequestHandle handle;
    std::shared_ptr<PullSink> sink;
    size_t units;  // number of units of the import that it asked for
  };
  struct Import {
    int32_t priority;
    SequenceId sequence;  // owns its blocks; has the first waiter's number
    CacheNamespace cache_namespace;
    std::vector<CacheUnit> units;  // whole blocks
    std::vector<BlockId> rows;     // blocks that the transfer writes
    TransferTicket ticket;
    std::vector<Waiter> waiters;  // the first one may have the ticket; empty: cancelled
    bool landing = false;         // some blocks have landed
  };
  struct HeldPrefix {
    int32_t asked_tokens;  // end of the prefix by the ticket
    int32_t tokens;        // of these, tokens that the receiver will have
    std::vector<BlockId> rows;
  };
  struct Export {
    int32_t priority;
    std::vector<BlockId> rows;  // held in the cache
    bool cancelled = false;
  };
  struct Lease {
    int64_t until_us;
    int32_t priority;
    std::vector<BlockId> rows;
  };
  using Imports = std::map<uint64_t, Import>;

  absl::Status Begin(RequestHandle handle, const PullRequest& request,
                     const std::shared_ptr<PullSink>& sink, int32_t spare_blocks);
  absl::Status Expect(Import import, int64_t timeout_ms);
  std::optional<uint64_t> OnItsWay(CacheNamespace cache_namespace,
                                   std::span<const CacheUnit> units) const;
  // Number of blocks that a prefix of `tokens` tokens, with the windows at its end, fills.
  BlockCounts BlocksOf(int32_t tokens) const;
  absl::Status MakeRoom(int32_t tokens, int32_t priority);
  void Finish(Import import, const TransferEvent& event);
  absl::StatusOr<HeldPrefix> HoldForTicket(const SendPrefixRequest& request);
  std::vector<BlockId> KeepRows(const HeldBlocks& held, const MovedTokens& moved,
                                SequenceBlocks wanted);
  // Returns the send to cancel so that one of `priority` can start; none if there is room.
  absl::StatusOr<std::optional<RequestHandle>> ToDisplace(int32_t priority) const;
  void CancelExport(RequestHandle handle);
  void LeaseOut(SequenceId id, int32_t tokens, int32_t priority);
  using Leases = std::deque<Lease>;
  Leases::iterator EndLease(const Leases::iterator& lease);  // returns the next lease

  const PrefixPullOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const Clock* const clock_;
  const std::function<uint64_t()> new_transfer_id_;
  const int32_t block_size_;
  const std::vector<int32_t> windows_;                        // WindowSizes
  Imports imports_;                                           // by transfer id
  absl::flat_hash_map<RequestHandle, uint64_t> transfer_of_;  // of waiters
  std::map<RequestHandle, Export> exports_;                   // by sender_transfer
  Leases leases_;                                             // in order of expiry
  BlockCounts pulled_;                                        // blocks of imports and leases
};

}  // namespace baton
