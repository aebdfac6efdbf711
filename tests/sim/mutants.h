// Mutants: known field failures, re-created behind a switch of the simulation. A named oracle must
// catch each mutant within a stated number of seeds. Otherwise the simulation would miss the real
// failure.
//
// The simulation injects them into parts that it owns (transport, device, process, checker).
// Production code therefore has no switch and no branch for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace baton {

enum class Mutant : uint8_t {
  kNone,
  kLateWrite,
  kMetadataSlotReused,
  kAbortStorm,
  kCleanupNeedsWork,
  kEvictedBeforeSend,
  kExitWhilePeerReads,
  kStaleBlockReference,
  kPaddingWritesLiveSlot,
  kRopeOffByOne,
  kNarrowGraphTable,
  kCheckerCountsTwice,
  kRebornWorkerServed,
  kOneSidedHit,
  kCancelStrandsReservation,
  kUnverifiedPull,
  kForkWithoutCopy,
  kSyntheticEventId,
  kReshapeBySendersBlocks,
  kSliceAtFirstLayer,
  kFreedAtStop,
  kCommittedAtSubmit,
  kFreedAtSubmit,
  kMatchAtTornBoundary,
  kLostPeerFoundLate,
  kSlowProbes,
  kSilentForTooLong,
  kCancelArrivesLate,
  kStaleShift,
  kWrongTenantsChunk,
  kVisibleNeighbour,
  kGarbageSlots,
  kRepairedChunkCached,
  kDamagedChunkWoken,
  kNoPromptTakenOver,
};

struct MutantInfo {
  Mutant mutant;
  std::string_view name;
  std::string_view what;    // the failure, in words
  int64_t seeds;            // it must be caught within seeds 1 to this
  std::string_view oracle;  // oracle that catches it (oracle.h); "check" is a CHECK
};

std::span<const MutantInfo> Mutants();
std::optional<Mutant> MutantNamed(std::string_view name);

}  // namespace baton
