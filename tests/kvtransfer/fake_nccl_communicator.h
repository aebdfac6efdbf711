// A communicator of NCCL's stand-in. It is non-blocking, as Baton's are.
//
// An operation goes through these stages:
// 1. Add: it is handed over. For `issue_polls` calls of State it is not on its stream yet.
// 2. It waits on its stream until something waits for the stream.
// 3. The GPU's thread polls it. It moves its bytes as far as the other rank takes them.
// 4. It ends. Operations of a broken communicator end only when the communicator is aborted.
//
// Thread safety: safe from any thread. The GPU's thread polls operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cuda/nccl_api.h"
#include "tests/kvtransfer/fake_nccl.h"
#include "tests/kvtransfer/fake_nccl_link.h"

namespace baton {

class FakeNcclCommunicator : public std::enable_shared_from_this<FakeNcclCommunicator> {
 public:
  struct Operation {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    CuStream stream = nullptr;
  };

  // `side` outlives this.
  FakeNcclCommunicator(int rank, const NcclUniqueId& id, FakeNcclSide& side);

  int rank() const { return rank_; }
  FakeNcclSide& side() { return side_; }
  // True on the thread that created this.
  bool OnItsThread() const { return std::this_thread::get_id() == owner_; }

  // As ncclCommGetAsyncError. Also makes progress.
  NcclResult State();
  NcclResult Add(const Operation& operation);
  // Operations on streams end when they are polled next. Their memory is not written any more.
  void Abort();

 private:
  // An operation on its stream.
  struct Run {
    int64_t number = 0;  // among the operations of this side
    int64_t late_polls = 0;
    uint64_t count = 0;  // bytes, as told to the other rank
    std::span<std::byte> count_left = {};
    std::span<std::byte> bytes_left = {};
    std::vector<std::byte> spoiled = {};  // what is sent instead
  };

  NcclResult Create();
  NcclResult Issue();
  CuResult Poll(const Operation& operation, Run& run, bool begins);
  void Begin(const Operation& operation, Run& run);
  FakeNcclLink::Progress Move(const Operation& operation, Run& run);

  const int rank_;
  FakeNcclSide& side_;
  const std::thread::id owner_ = std::this_thread::get_id();

  std::mutex mutex_;
  // Guarded by mutex_.
  FakeNcclLink link_;
  bool created_ = false;
  bool aborted_ = false;
  NcclResult state_ = kNcclInProgress;
  int issue_polls_left_ = 0;
  std::vector<Operation> added_;  // not on a stream yet
};

}  // namespace baton
