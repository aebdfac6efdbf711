#include "tests/sim/mutants.h"

#include <array>

namespace baton {
namespace {

constexpr std::array kMutants = {
    MutantInfo{Mutant::kLateWrite, "late-write",
               "a cancelled receive is reported as ended while bytes still land", 10000, "answer"},
    MutantInfo{Mutant::kMetadataSlotReused, "metadata-slot-reused",
               "the manifest of the next hand-off overwrites one that has not left yet", 1000,
               "answer"},
    MutantInfo{Mutant::kAbortStorm, "abort-storm",
               "cancelling a request does not reach its transfer, which waits for its timeout",
               1000, "outcome"},
    MutantInfo{Mutant::kCleanupNeedsWork, "cleanup-needs-work",
               "the end of a transfer is seen only when a new request comes", 1000, "outcome"},
    MutantInfo{Mutant::kEvictedBeforeSend, "evicted-before-send",
               "a send counts as done when it is posted, so its blocks may be evicted", 1000,
               "outcome"},
    MutantInfo{Mutant::kExitWhilePeerReads, "exit-while-peer-reads",
               "SIGTERM frees the pool without waiting for transfers to end", 1000, "process"},
    MutantInfo{Mutant::kStaleBlockReference, "stale-block-reference",
               "a sender announces the blocks that held the prompt's prefix the last time", 1000,
               "answer"},
    MutantInfo{Mutant::kPaddingWritesLiveSlot, "padding-writes-live-slot",
               "padded rows of a graph write to slot 0 of block 0", 1000, "answer"},
    MutantInfo{Mutant::kRopeOffByOne, "rope-off-by-one",
               "a prefill that begins behind a cached prefix is one position ahead", 1000,
               "answer"},
    MutantInfo{Mutant::kNarrowGraphTable, "narrow-graph-table",
               "a graph keeps the block table's width of the step that it was captured at", 1000,
               "answer"},
    MutantInfo{Mutant::kCheckerCountsTwice, "checker-counts-twice",
               "the checker counts a block that is cached and in flight twice", 1000,
               "conservation"},
    MutantInfo{Mutant::kRebornWorkerServed, "reborn-worker-served",
               "a restarted worker has its previous epoch and counts transfers from 1", 5000,
               "answer"},
    MutantInfo{Mutant::kOneSidedHit, "one-sided-hit",
               "a sender forgets that the receiver has the prefix already", 1000, "answer"},
    MutantInfo{
        Mutant::kCancelStrandsReservation, "cancel-strands-reservation",
        "a cancellation between reservation and prefill leaves the reservation to its timeout",
        1000, "outcome"},
    MutantInfo{Mutant::kUnverifiedPull, "unverified-pull",
               "a pull that fails caches all of its blocks, whether they came or not", 1000,
               "answer"},
    MutantInfo{
        Mutant::kForkWithoutCopy, "fork-without-copy",
        "a choice that writes into a shared block gets a block of its own, without the contents",
        500, "answer"},
    MutantInfo{
        Mutant::kSyntheticEventId, "synthetic-event-id",
        "a snapshot of a cache is numbered by its parts, so the next batch of KV events looks "
        "like a gap again",
        1000, "liveness"},
    MutantInfo{Mutant::kReshapeBySendersBlocks, "reshape-by-senders-blocks",
               "a receiver counts slots in the sender's blocks where they are smaller than its own",
               1000, "answer"},
    MutantInfo{Mutant::kSliceAtFirstLayer, "slice-at-first-layer",
               "a receiver writes every slice of a block's layers to the first layers", 1000,
               "answer"},
    MutantInfo{Mutant::kFreedAtStop, "freed-at-stop",
               "blocks of an ended sequence are given back while a submitted step writes them",
               10000, "answer"},
    MutantInfo{Mutant::kCommittedAtSubmit, "committed-at-submit",
               "a step is committed when it is submitted, before its KV is written", 1000,
               "answer"},
    MutantInfo{Mutant::kFreedAtSubmit, "freed-at-submit",
               "window blocks that slide out with a step are given back when it is submitted", 500,
               "answer"},
    MutantInfo{Mutant::kMatchAtTornBoundary, "match-at-torn-boundary",
               "a match ends where the window's first block is not cached any more", 500, "answer"},
    MutantInfo{Mutant::kLostPeerFoundLate, "lost-peer-found-late",
               "a transfer with a lost peer ends after 2.4 s instead of 1 s", 1000, "detection"},
    MutantInfo{Mutant::kSlowProbes, "slow-probes",
               "the router probes its workers at a third of the pace", 1000, "detection"},
    MutantInfo{Mutant::kSilentForTooLong, "silent-for-too-long",
               "a worker that answers again stays silent for as many rounds as it had missed", 1000,
               "detection"},
    MutantInfo{Mutant::kCancelArrivesLate, "cancel-arrives-late",
               "a cancellation reaches its transfer after 1.5 s", 1000, "liveness"},
    MutantInfo{Mutant::kStaleShift, "stale-shift",
               "a query sees a prompt chunk with the position shift of the chunk's first use", 1000,
               "answer"},
    MutantInfo{Mutant::kWrongTenantsChunk, "wrong-tenants-chunk",
               "the key of a prompt chunk lacks the tenant's namespace", 1000, "isolation"},
    MutantInfo{Mutant::kVisibleNeighbour, "visible-neighbour",
               "a prompt chunk sees the chunk before it in the same step", 1000, "answer"},
    MutantInfo{Mutant::kGarbageSlots, "garbage-slots",
               "a query sees a prompt chunk's last block to its end, behind the chunk's tokens",
               1000, "answer"},
    MutantInfo{Mutant::kRepairedChunkCached, "repaired-chunk-cached",
               "a repair also writes the stored chunk, which other requests see", 2000, "answer"},
    MutantInfo{Mutant::kDamagedChunkWoken, "damaged-chunk-woken",
               "the checksum of a sleeping chunk is not compared when the chunk is woken", 2000,
               "answer"},
    MutantInfo{Mutant::kNoPromptTakenOver, "no-prompt-taken-over",
               "a transfer counts as begun when it is posted, so two full workers wait for each "
               "other's prefills",
               1000, "outcome"},
};

}  // namespace

std::span<const MutantInfo> Mutants() { return kMutants; }

std::optional<Mutant> MutantNamed(std::string_view name) {
  for (const MutantInfo& info : kMutants) {
    if (info.name == name) return info.mutant;
  }
  return std::nullopt;
}

}  // namespace baton
