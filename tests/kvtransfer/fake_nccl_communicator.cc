#include "tests/kvtransfer/fake_nccl_communicator.h"

#include <utility>

#include "tests/gpu_emulator/emulated_driver.h"

namespace baton {

using Progress = FakeNcclLink::Progress;

FakeNcclCommunicator::FakeNcclCommunicator(int rank, const NcclUniqueId& id, FakeNcclSide& side)
    : rank_(rank), side_(side), link_(rank, id) {
  ++side_.created;
}

void FakeNcclCommunicator::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  link_.Close();
  ++side_.aborted;
}

NcclResult FakeNcclCommunicator::State() {
  const std::lock_guard lock(mutex_);
  if (!created_) state_ = Create();
  if (state_ == kNcclSuccess && side_.async_error != 0) {
    state_ = static_cast<NcclResult>(side_.async_error.load());
  }
  if (state_ == kNcclSuccess && !added_.empty()) return Issue();
  return state_;
}

NcclResult FakeNcclCommunicator::Create() {
  if (side_.create_hangs) return kNcclInProgress;
  NcclResult result = static_cast<NcclResult>(side_.create_async_result.load());
  if (result == kNcclSuccess) {
    switch (link_.Meet()) {
      case Progress::kDone:
        break;
      case Progress::kNotYet:
        return kNcclInProgress;
      case Progress::kBroken:
        result = kNcclSystemError;
    }
  }
  created_ = true;
  return result;
}

NcclResult FakeNcclCommunicator::Add(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (state_ != kNcclSuccess) return state_ == kNcclInProgress ? kNcclInvalidUsage : state_;
  added_.push_back(operation);
  issue_polls_left_ = side_.issue_polls;
  return kNcclInProgress;
}

NcclResult FakeNcclCommunicator::Issue() {
  if (issue_polls_left_-- > 0) return kNcclInProgress;
  for (const Operation& operation : added_) {
    const auto run = std::make_shared<Run>();
    // The stream may hold the operation for longer than NCCL's user holds the communicator.
    const CuResult enqueued = gpu_emulator::baton_emulator_enqueue(
        operation.stream, {.memory = reinterpret_cast<CuDevicePointer>(operation.memory),
                           .bytes = operation.bytes,
                           .poll = [self = shared_from_this(), operation, run](bool begins) {
                             return self->Poll(operation, *run, begins);
                           }});
    if (enqueued != kCuSuccess) state_ = kNcclUnhandledCudaError;
  }
  added_.clear();
  return state_;
}

CuResult FakeNcclCommunicator::Poll(const Operation& operation, Run& run, bool begins) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return kCuSuccess;
  if (state_ != kNcclSuccess) return kCuNotReady;
  if (begins) Begin(operation, run);
  const int64_t hangs_at = side_.hangs_at_operation;
  if (hangs_at >= 0 && run.number >= hangs_at) return kCuNotReady;
  if (run.number == side_.fails_at_operation) {
    state_ = kNcclRemoteError;
    return kCuNotReady;
  }
  if (run.late_polls-- > 0) return kCuNotReady;
  switch (Move(operation, run)) {
    case Progress::kDone:
      side_.bytes += static_cast<int64_t>(operation.bytes);
      return kCuSuccess;
    case Progress::kNotYet:
      return kCuNotReady;
    case Progress::kBroken:
      state_ = kNcclRemoteError;
  }
  return kCuNotReady;
}

void FakeNcclCommunicator::Begin(const Operation& operation, Run& run) {
  run = {.number = side_.operations++,
         .late_polls = side_.polls_per_operation,
         .count = operation.bytes,
         .bytes_left = {operation.memory, operation.bytes}};
  run.count_left = std::as_writable_bytes(std::span(&run.count, 1));
  if (rank_ == 0 && run.number == side_.spoils_at_operation) {
    run.spoiled.assign(run.bytes_left.begin(), run.bytes_left.end());
    run.spoiled[operation.bytes / 2] ^= std::byte{1};
    run.bytes_left = run.spoiled;
  }
}

Progress FakeNcclCommunicator::Move(const Operation& operation, Run& run) {
  if (!run.count_left.empty()) {
    if (const Progress moved = link_.Move(run.count_left); moved != Progress::kDone) return moved;
    if (run.count != operation.bytes) return Progress::kBroken;
  }
  if (run.number != side_.dies_at_operation) return link_.Move(run.bytes_left);
  const size_t kept = operation.bytes - operation.bytes / 2;  // for ever
  if (run.bytes_left.size() > kept) {
    std::span<std::byte> half = run.bytes_left.first(run.bytes_left.size() - kept);
    const size_t before = half.size();
    const Progress moved = link_.Move(half);
    run.bytes_left = run.bytes_left.subspan(before - half.size());
    if (moved != Progress::kDone) return moved;
  }
  link_.Close();
  return Progress::kBroken;
}

}  // namespace baton
