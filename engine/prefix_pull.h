// A prompt's prefix from the cache of one worker into the cache of another, apart from any request.
//
//   receiver: Pull → OnTicket → (blocks land, are verified) → inserted, leased → OnDone
//   source:   Send → the cached blocks are held and announced → let go when the transfer has ended
//
// A pull only ever makes the receiver's next match longer. Whatever goes wrong, what had landed and
// was verified by then stays cached, and the request that comes computes the rest.
//
// Rules:
//  1. Only whole blocks are taken over, out of whole blocks of the source, whose size may be
//     another; fingerprints are compared by the transport's handshake.
//  2. A pull takes blocks that are free or cached and used by nobody, never those of a request; it
//     leaves one to spare for each sequence that is here. All pulls and leases together have at
//     most half of each KV group's pool.
//  3. What was pulled is leased: locked for a moment, so that the request for which it came still
//     finds it. Leases end by time, and before that when a sequence finds no room. They count as
//     transfers do, so a sequence that could have their blocks waits and is not cut short. To
//     another pull they give way where its request's priority is not lower, the oldest first.
//  4. A pull of a prefix that is already being transferred waits for that transfer; with sliding
//     windows only if the two prefixes end together (rule 7). The transfer goes on while one of
//     its waiters is left. If the waiter that has the ticket leaves before a block has come,
//     another waiter for the whole prefix gets the ticket.
//  5. Every Pull gets one OnDone. Blocks of a transfer are held until its terminal event.
//  6. So many are sent at once at most. One more begins only in the place of one of lower priority,
//     the last begun of the lowest, which is cut short: its receiver computes what did not come. A
//     lower priority never blocks a higher one. At most `max_transfers` cancelled sends may still
//     be ending.
//  7. With sliding windows only a complete prefix is usable: the transfer carries window blocks for
//     its end alone.
//     A source that lacks the end sends nothing. What a transfer leaves without a whole window is
//     not taken over. Leases hold the windows at the prefix's end.
//
// Thread safety: belongs to the engine thread; sinks are called on it.
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
  // 0: none. Far longer than a router needs to send the request for which the prefix came.
  int64_t lease_ms = 1000;
  int64_t longest_ms = 120'000;  // of a transfer, whatever it asks for
  int32_t max_transfers = 256;   // coming in, and going out
};

class PrefixPulls {
 public:
  // All outlive this; `transport` may be null: then every pull is refused. `new_transfer_id` gives
  // ids that no other transfer to this worker has, and that cannot be guessed.
  PrefixPulls(const PrefixPullOptions& options, KvCacheManager* cache, KvTransport* transport,
              const Clock* clock, std::function<uint64_t()> new_transfer_id);
  // REQUIRES: idle().
  ~PrefixPulls();

  // Takes `request` in. `spare_blocks` are left to sequences. Refusals reach the sink:
  // ResourceExhausted (no room, too many), FailedPrecondition (no transport, no shared prefixes).
  // REQUIRES: handle is nobody's.
  void Pull(RequestHandle handle, PullRequest request, std::shared_ptr<PullSink> sink,
            int32_t spare_blocks);
  // Sends what is cached here of the prefix. Returns its tokens, with what the receiver has before.
  // NotFound: nothing that fills a block that the receiver lacks, or with windows not the whole
  // prefix. InvalidArgument: a ticket that does not fit the prefix. FailedPrecondition: no
  // transport, or blocks that are too large for windows. ResourceExhausted: too many are being
  // sent, none of which matters less. REQUIRES: handle is nobody's, and higher than those before.
  absl::StatusOr<int32_t> Send(RequestHandle handle, const SendPrefixRequest& request);
  // Ends a pull's wait with Cancelled. Ignored for other handles.
  void Cancel(RequestHandle handle);

  // False: the event is of no transfer of this.
  bool OnEvent(const TransferEvent& event);
  bool IsReceiving(uint64_t transfer_id) const { return imports_.contains(transfer_id); }

  // Ends the leases whose time has come. Returns when the next one ends.
  std::optional<int64_t> EndLeases();
  // Somebody needs the room now.
  void DropLeases();
  bool has_leases() const { return !leases_.empty(); }

  // Ends every wait with `status`, every lease, and cancels the transfers, which must still be
  // polled until idle().
  void Shutdown(const absl::Status& status);
  // Appends what this holds of a KV group in the cache, a block as often as it is held.
  void AppendHeld(int32_t group, std::vector<BlockId>& held) const;
  bool idle() const { return imports_.empty() && exports_.empty() && leases_.empty(); }
  int32_t active_transfers() const {
    return static_cast<int32_t>(imports_.size() + exports_.size());
  }

 private:
  struct Waiter {
    RequestHandle handle;
    std::shared_ptr<PullSink> sink;
    size_t units;  // of the import's, that it asked for
  };
  struct Import {
    int32_t priority;
    SequenceId sequence;  // owns its blocks; named after who asked first
    CacheNamespace cache_namespace;
    std::vector<CacheUnit> units;  // whole blocks
    std::vector<BlockId> rows;     // that the transfer writes
    TransferTicket ticket;
    std::vector<Waiter> waiters;  // the first has the ticket, if anybody; none left: cancelled
    bool landing = false;         // some blocks have come
  };
  struct HeldPrefix {
    int32_t asked_tokens;  // of the prefix, by the ticket
    int32_t tokens;        // of them, that the receiver will have
    std::vector<BlockId> rows;
  };
  struct Export {
    int32_t priority;
    std::vector<BlockId> rows;  // held
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
  // Blocks that a prefix of so many tokens, and the windows at its end, fill.
  BlockCounts BlocksOf(int32_t tokens) const;
  absl::Status MakeRoom(int32_t tokens, int32_t priority);
  void Finish(Import import, const TransferEvent& event);
  absl::StatusOr<HeldPrefix> HoldForTicket(const SendPrefixRequest& request);
  std::vector<BlockId> KeepRows(const HeldBlocks& held, const MovedTokens& moved,
                                SequenceBlocks wanted);
  // Who has to end so that one of `priority` can be sent; none when there is room.
  absl::StatusOr<std::optional<RequestHandle>> ToDisplace(int32_t priority) const;
  void CancelExport(RequestHandle handle);
  void LeaseOut(SequenceId id, int32_t tokens, int32_t priority);
  using Leases = std::deque<Lease>;
  Leases::iterator EndLease(Leases::iterator lease);  // returns the one behind it

  const PrefixPullOptions options_;
  KvCacheManager* const cache_;
  KvTransport* const transport_;
  const Clock* const clock_;
  const std::function<uint64_t()> new_transfer_id_;
  const int32_t block_size_;
  const std::vector<int32_t> windows_;                        // WindowSizes
  Imports imports_;                                           // by transfer id
  absl::flat_hash_map<RequestHandle, uint64_t> transfer_of_;  // of those who wait
  std::map<RequestHandle, Export> exports_;                   // by sender_transfer
  Leases leases_;                                             // the first ends first
  BlockCounts pulled_;                                        // of imports and leases
};

}  // namespace baton
