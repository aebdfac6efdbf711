#include "kvtransfer/nccl/nccl_communicators.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

bool Accepted(NcclResult result) { return result == kNcclSuccess || result == kNcclInProgress; }

}  // namespace

NcclCommunicators::~NcclCommunicators() {
  while (!communicators_.empty()) Abort(communicators_.begin()->first);
  Recycle();
  for (Lane& lane : idle_) FreeLane(lane);
  // draining_ is not freed: freeing memory waits for the device. The process's end releases it.
}

void NcclCommunicators::Create(NcclCommId id, int rank, const std::string& unique_id) {
  CHECK(!communicators_.contains(id));
  Communicator& made = communicators_[id];
  made.rank = rank;
  if (absl::Status status = Begin(id, rank, unique_id, made); !status.ok()) {
    Fail(id, made, std::move(status));
  }
}

absl::Status NcclCommunicators::Begin(NcclCommId id, int rank, std::string unique_id,
                                      Communicator& made) {
  if (communicators_.size() > static_cast<size_t>(limits_.communicators)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d communicators exist, which is the limit", limits_.communicators));
  }
  ASSIGN_OR_RETURN(made.lane, TakeLane());
  NcclUniqueId nccl_id;
  if (rank == kNcclSenderRank) {
    const NcclResult result = nccl_.GetUniqueId(&nccl_id);
    if (result != kNcclSuccess) return NcclError(nccl_, "ncclGetUniqueId", result);
    unique_id.assign(nccl_id.internal, sizeof(nccl_id.internal));
    reports_.push_back({.kind = NcclReport::Kind::kUniqueId,
                        .comm = id,
                        .unique_id = unique_id,
                        .slots = {},
                        .status = {}});
  }
  CHECK_EQ(unique_id.size(), sizeof(nccl_id.internal));
  std::memcpy(nccl_id.internal, unique_id.data(), sizeof(nccl_id.internal));
  NcclConfig config;
  config.blocking = 0;
  const NcclResult result = nccl_.CommInitRankConfig(&made.comm, 2, nccl_id, rank, &config);
  if (!Accepted(result)) return NcclError(nccl_, "ncclCommInitRankConfig", result);
  return absl::OkStatus();
}

void NcclCommunicators::Post(NcclCommId id, int32_t slot, int64_t bytes) {
  const auto it = communicators_.find(id);
  if (it != communicators_.end()) it->second.operations.push_back({slot, bytes});
}

void NcclCommunicators::Abort(NcclCommId id) {
  const auto it = communicators_.find(id);
  if (it == communicators_.end()) return;
  Communicator& c = it->second;
  // Even if this fails, the handle is no longer ours.
  if (c.comm != nullptr) nccl_.CommAbort(c.comm);
  if (c.lane.stream != nullptr) draining_.push_back(std::move(c.lane));
  communicators_.erase(it);
}

std::vector<NcclReport> NcclCommunicators::Poll() {
  Recycle();
  for (auto& [id, c] : communicators_) {
    if (c.failed) continue;
    if (absl::Status status = Step(id, c); !status.ok()) Fail(id, c, std::move(status));
  }
  return std::exchange(reports_, {});
}

bool NcclCommunicators::busy() const {
  return !reports_.empty() ||
         std::any_of(communicators_.begin(), communicators_.end(), [](const auto& entry) {
           const Communicator& c = entry.second;
           return !c.failed && (!c.ready || !c.operations.empty());
         });
}

absl::Status NcclCommunicators::Step(NcclCommId id, Communicator& c) {
  RETURN_IF_ERROR(ReportEnded(id, c));
  NcclResult state = kNcclSuccess;
  const NcclResult asked = nccl_.CommGetAsyncError(c.comm, &state);
  if (!Accepted(asked)) return NcclError(nccl_, "ncclCommGetAsyncError", asked);
  if (state == kNcclInProgress) return absl::OkStatus();
  if (state != kNcclSuccess) {
    return NcclError(nccl_, c.ready ? "communicator" : "communicator creation", state);
  }
  if (!c.ready) {
    c.ready = true;
    reports_.push_back({.kind = NcclReport::Kind::kReady,
                        .comm = id,
                        .unique_id = "",
                        .slots = c.lane.slots,
                        .status = {},
                        .keep = c.lane.keep});
  }
  if (c.issuing) {
    const CudaDriver& cuda = context_->Enter();
    const CuResult result =
        cuda.EventRecord(c.lane.events[c.operations[c.issued - 1].slot], c.lane.stream);
    if (result != kCuSuccess) return NcclCudaError(cuda, "cuEventRecord", result);
    c.issuing = false;
  }
  if (c.issued < c.operations.size()) return Issue(c);
  return absl::OkStatus();
}

absl::Status NcclCommunicators::ReportEnded(NcclCommId id, Communicator& c) {
  while (c.issued > (c.issuing ? 1 : 0)) {
    const CudaDriver& cuda = context_->Enter();
    const CuResult result = cuda.EventQuery(c.lane.events[c.operations.front().slot]);
    if (result == kCuNotReady) break;
    if (result != kCuSuccess) return NcclCudaError(cuda, "cuEventQuery", result);
    c.operations.pop_front();
    --c.issued;
    reports_.push_back(
        {.kind = NcclReport::Kind::kDone, .comm = id, .unique_id = "", .slots = {}, .status = {}});
  }
  return absl::OkStatus();
}

// Issues one operation. The next one is issued when a Poll has seen this one on the stream.
absl::Status NcclCommunicators::Issue(Communicator& c) {
  const Operation& operation = c.operations[c.issued];
  std::byte* const memory = c.lane.slots[operation.slot];
  const auto bytes = static_cast<size_t>(operation.bytes);
  NcclResult result = nccl_.GroupStart();
  if (!Accepted(result)) return NcclError(nccl_, "ncclGroupStart", result);
  const bool sends = c.rank == kNcclSenderRank;
  if (sends) {
    result = nccl_.Send(memory, bytes, kNcclUint8, kNcclReceiverRank, c.comm, c.lane.stream);
  } else {
    result = nccl_.Recv(memory, bytes, kNcclUint8, kNcclSenderRank, c.comm, c.lane.stream);
  }
  // Also after an error, because a group belongs to the thread.
  const NcclResult ended = nccl_.GroupEnd();
  if (!Accepted(result)) return NcclError(nccl_, sends ? "ncclSend" : "ncclRecv", result);
  if (!Accepted(ended)) return NcclError(nccl_, "ncclGroupEnd", ended);
  ++c.issued;
  c.issuing = true;
  return absl::OkStatus();
}

void NcclCommunicators::Fail(NcclCommId id, Communicator& c, absl::Status why) {
  c.failed = true;
  reports_.push_back({.kind = NcclReport::Kind::kFailed,
                      .comm = id,
                      .unique_id = "",
                      .slots = {},
                      .status = std::move(why)});
}

absl::StatusOr<NcclCommunicators::Lane> NcclCommunicators::TakeLane() {
  Recycle();
  Lane lane;
  if (!idle_.empty()) {
    lane = std::move(idle_.back());
    idle_.pop_back();
    return lane;
  }
  if (draining_.size() >= static_cast<size_t>(limits_.communicators)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the device still uses the memory of %d aborted communicators", draining_.size()));
  }
  if (absl::Status status = MakeLane(lane); !status.ok()) {
    FreeLane(lane);
    return status;
  }
  return lane;
}

absl::Status NcclCommunicators::MakeLane(Lane& lane) {
  const CudaDriver& cuda = context_->Enter();
  CuResult result = cuda.StreamCreate(&lane.stream, kCuStreamNonBlocking);
  if (result != kCuSuccess) return NcclCudaError(cuda, "cuStreamCreate", result);
  for (int32_t i = 0; i < limits_.slots; ++i) {
    CuDevicePointer memory = 0;
    result = cuda.MemAlloc(&memory, static_cast<size_t>(limits_.slot_bytes));
    if (result != kCuSuccess) return NcclCudaError(cuda, "cuMemAlloc of staging memory", result);
    lane.slots.push_back(reinterpret_cast<std::byte*>(memory));
    CuEvent event = nullptr;
    result = cuda.EventCreate(&event, kCuEventDisableTiming);
    if (result != kCuSuccess) return NcclCudaError(cuda, "cuEventCreate", result);
    lane.events.push_back(event);
  }
  lane.keep = std::make_shared<char>();
  return absl::OkStatus();
}

void NcclCommunicators::FreeLane(Lane& lane) {
  const CudaDriver& cuda = context_->Enter();
  for (const CuEvent event : lane.events) cuda.EventDestroy(event);
  for (std::byte* const memory : lane.slots) {
    cuda.MemFree(reinterpret_cast<CuDevicePointer>(memory));
  }
  if (lane.stream != nullptr) cuda.StreamDestroy(lane.stream);
  lane = {};
}

// A stream that reports an error is not idle, so it stays in draining_.
void NcclCommunicators::Recycle() {
  for (auto it = draining_.begin(); it != draining_.end();) {
    // The count cannot grow again, because nothing else has the pointer.
    const bool kept = it->keep.use_count() > 1;
    if (!kept && context_->Enter().StreamQuery(it->stream) == kCuSuccess) {
      idle_.push_back(std::move(*it));
      it = draining_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace baton
