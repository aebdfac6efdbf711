// A tensor-parallel group of NCCL's stand-in: any number of ranks in one process, with collectives.
//
// A rank's operations run on its stream in order. An all-gather or broadcast ends on a rank when
// all ranks have begun it, a receive when the other rank has begun the send, and a send when the
// data was received. Ranks that disagree about a collective fail with ncclInvalidUsage, where NCCL
// would hang or mix up data. No rank touches the memory of another one's device: data waits in
// between in memory of the host.
//
// NCCL connects the ranks inside their first call. So the first call of each rank stays
// ncclInProgress until all ranks have made theirs. One thread that enqueues for several ranks
// hangs.
//
// Thread safety: safe from any thread. The threads of the GPUs poll operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/nccl_api.h"
#include "tests/kvtransfer/fake_nccl.h"

namespace baton {

class FakeNcclGroup {
 public:
  enum class Kind : uint8_t { kAllGather, kBroadcast, kSend, kReceive };
  struct Operation {
    Kind kind = Kind::kAllGather;
    std::byte* memory = nullptr;  // an all-gather: of all ranks
    size_t bytes = 0;             // of each rank
    int peer = 0;                 // the root of a broadcast, the other rank of a send or receive
    CuStream stream = nullptr;
  };

  explicit FakeNcclGroup(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  void Join(int rank);
  // As ncclCommGetAsyncError of this rank. Also makes progress.
  NcclResult State(int rank, FakeNcclSide& side);
  NcclResult Add(int rank, const Operation& operation);
  // The rank's operations end when they are polled next, without moving data.
  void Abort(int rank);

 private:
  struct Meeting {  // of one collective
    Operation shape;
    std::vector<std::vector<std::byte>> given;  // by rank
    std::vector<bool> arrived;
    int left = 0;  // ranks that have taken the data
  };
  struct Message {
    std::vector<std::byte> bytes;
    bool taken = false;
  };
  // One run of an operation. Captured operations have many.
  struct Run {
    int64_t collective = 0;
    std::shared_ptr<Message> message;
    bool hangs = false;
  };
  struct Rank {
    bool joined = false;
    bool aborted = false;
    bool called = false;  // has made its first call
    NcclResult failed = kNcclSuccess;
    std::vector<Operation> added;                               // not on the stream yet
    CuStream stream = nullptr;                                  // of the last operation
    int64_t collectives = 0;                                    // that have begun
    std::map<int, std::deque<std::shared_ptr<Message>>> inbox;  // by sender
  };

  template <typename Condition>
  bool AllRanks(const Condition& condition) const;
  NcclResult Issue(int rank, FakeNcclSide& side, std::unique_lock<std::mutex>& lock);
  CuResult Poll(int rank, FakeNcclSide& side, const Operation& operation, Run& run, bool begins);
  CuResult Meet(int rank, const Operation& operation, Run& run, bool begins);
  CuResult Pass(int rank, const Operation& operation, Run& run, bool begins);

  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Rank> ranks_;
  std::map<int64_t, Meeting> meetings_;  // by number
};

}  // namespace baton
