// Known field failures, re-created behind a switch of the simulation: each must be caught within a
// stated number of seeds by a stated oracle, or the simulation would not see the real thing.
//
// They are made at the seams that the simulation owns (transport, device, process, checker), so
// production has no switch, and no branch, for them.
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
};

struct MutantInfo {
  Mutant mutant;
  std::string_view name;
  std::string_view what;    // what is wrong with it
  int64_t seeds;            // number of seeds, from 1 on, within which it is caught
  std::string_view oracle;  // oracle that catches it (oracle.h); "check" is a CHECK
};

std::span<const MutantInfo> Mutants();
std::optional<Mutant> MutantNamed(std::string_view name);

}  // namespace baton
