// Polled state machines of a transport's NCCL communicators. This class makes all calls to NCCL
// that take a communicator.
//
// All communicators are non-blocking (ncclConfig_t::blocking = 0). ncclInProgress is not a result
// but a state. Every Poll queries it again with ncclCommGetAsyncError. It occurs in two phases:
//  - A communicator is being created.
//  - An operation is being handed to the device. This may continue after ncclGroupEnd has returned.
//    Only after this phase may an event be recorded behind the operation. When that event has
//    completed, the operation has ended.
//
// Another communicator may reuse the staging memory of an aborted one. Before that, the stream must
// be idle, and nothing may hold NcclReport::keep.
//
// Thread safety: belongs to one thread, which has set its CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/nccl_api.h"
#include "kvtransfer/nccl/nccl_driver.h"

namespace baton {

class NcclCommunicators {
 public:
  struct Limits {
    int32_t communicators = 1;
    int32_t slots = 1;       // per communicator
    int64_t slot_bytes = 1;  // device memory per slot
  };

  NcclCommunicators(const NcclApi& nccl, std::shared_ptr<CudaContext> context, const Limits& limits)
      : nccl_(nccl), context_(std::move(context)), limits_(limits) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  // Aborts all communicators.
  ~NcclCommunicators();

  // As in NcclDriver.
  void Create(NcclCommId id, int rank, const std::string& unique_id);
  void Post(NcclCommId id, int32_t slot, int64_t bytes);
  void Abort(NcclCommId id);

  // Advances all communicators. Returns the reports since the last call.
  std::vector<NcclReport> Poll();
  // True if only further calls of Poll can make progress.
  bool busy() const;
  size_t size() const { return communicators_.size(); }

 private:
  // A CUDA stream with its staging memory: a buffer and an event for each slot.
  struct Lane {
    CuStream stream = nullptr;
    std::vector<std::byte*> slots;
    std::vector<CuEvent> events;
    std::shared_ptr<const void> keep;  // also held by the users of the slots
  };
  struct Operation {
    int32_t slot = 0;
    int64_t bytes = 0;
  };
  struct Communicator {
    NcclComm* comm = nullptr;
    int rank = 0;
    Lane lane;
    bool ready = false;
    bool failed = false;
    bool issuing = false;  // the last issued operation may not be on the stream yet
    size_t issued = 0;     // number of leading operations that are issued
    std::deque<Operation> operations;
  };

  absl::Status Begin(NcclCommId id, int rank, std::string unique_id, Communicator& made);
  absl::StatusOr<Lane> TakeLane();
  absl::Status MakeLane(Lane& lane);
  void FreeLane(Lane& lane);
  void Recycle();
  absl::Status Step(NcclCommId id, Communicator& c);
  absl::Status ReportEnded(NcclCommId id, Communicator& c);
  absl::Status Issue(Communicator& c);
  void Fail(NcclCommId id, Communicator& c, absl::Status why);

  const NcclApi nccl_;
  const std::shared_ptr<CudaContext> context_;
  const Limits limits_;
  std::map<NcclCommId, Communicator> communicators_;
  std::vector<Lane> idle_;
  std::vector<Lane> draining_;  // lanes of aborted communicators
  std::vector<NcclReport> reports_;
};

}  // namespace baton
