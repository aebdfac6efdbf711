// The communicators of a transport, polled: every call to NCCL is made here.
//
// All communicators are non-blocking (ncclConfig_t::blocking = 0). ncclInProgress is not an answer
// but a state, asked for again by every Poll (ncclCommGetAsyncError): while one is being made, and
// while an operation is being handed to the device, which need not have happened when ncclGroupEnd
// returns. Only then may an event be recorded behind it; when that event has passed, the operation
// has ended.
//
// An aborted communicator's staging memory serves another one, but not before its stream is idle.
//
// Thread safety: belongs to one thread, whose CUDA device has been set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/nccl/nccl_api.h"
#include "kvtransfer/nccl/nccl_driver.h"

namespace baton {

class NcclCommunicators {
 public:
  struct Limits {
    int32_t communicators = 1;
    int32_t slots = 1;       // of each
    int64_t slot_bytes = 1;  // device memory
  };

  NcclCommunicators(const NcclApi& nccl, const CudaApi& cuda, const Limits& limits)
      : nccl_(nccl), cuda_(cuda), limits_(limits) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  // Aborts what there is.
  ~NcclCommunicators();

  // As in NcclDriver.
  void Create(NcclCommId id, int rank, const std::string& unique_id);
  void Post(NcclCommId id, int32_t slot, int64_t bytes);
  void Abort(NcclCommId id);

  // Asks how all of them stand. Returns what has happened since the last call.
  std::vector<NcclReport> Poll();
  // Whether something is under way that only Poll moves on.
  bool busy() const;
  size_t size() const { return communicators_.size(); }

 private:
  // A stream, and on it staging memory with an event for each slot.
  struct Lane {
    CudaStream stream = nullptr;
    std::vector<std::byte*> slots;
    std::vector<CudaEvent> events;
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
    size_t issued = 0;     // of operations
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
  const CudaApi cuda_;
  const Limits limits_;
  std::map<NcclCommId, Communicator> communicators_;
  std::vector<Lane> idle_;
  std::vector<Lane> draining_;  // of aborted communicators
  std::vector<NcclReport> reports_;
};

}  // namespace baton
