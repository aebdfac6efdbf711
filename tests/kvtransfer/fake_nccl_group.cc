#include "tests/kvtransfer/fake_nccl_group.h"

#include <algorithm>
#include <utility>

#include "tests/gpu_emulator/emulated_driver.h"

namespace baton {

template <typename Condition>
bool FakeNcclGroup::AllRanks(const Condition& condition) const {
  return std::all_of(ranks_.begin(), ranks_.end(), condition);
}

void FakeNcclGroup::Join(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<size_t>(rank)].joined = true;
}

NcclResult FakeNcclGroup::State(int rank, FakeNcclSide& side) {
  std::unique_lock lock(mutex_);
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (side.async_error != 0) self.failed = static_cast<NcclResult>(side.async_error.load());
  if (self.failed != kNcclSuccess) return self.failed;
  if (!AllRanks([](const Rank& other) { return other.joined; })) return kNcclInProgress;
  if (self.added.empty()) return kNcclSuccess;
  if (!AllRanks([](const Rank& other) { return other.called; })) return kNcclInProgress;
  return Issue(rank, side, lock);
}

NcclResult FakeNcclGroup::Add(int rank, const Operation& operation) {
  const std::lock_guard lock(mutex_);
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (self.failed != kNcclSuccess) return self.failed;
  self.called = true;
  self.stream = operation.stream;
  self.added.push_back(operation);
  return kNcclInProgress;
}

void FakeNcclGroup::Abort(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<size_t>(rank)].aborted = true;
}

NcclResult FakeNcclGroup::Issue(int rank, FakeNcclSide& side, std::unique_lock<std::mutex>& lock) {
  Rank& self = ranks_[static_cast<size_t>(rank)];
  const std::vector<Operation> added = std::exchange(self.added, {});
  lock.unlock();  // a full stream makes the emulator wait, and the GPU's thread polls
  CuResult enqueued = kCuSuccess;
  for (const Operation& operation : added) {
    const bool gathers = operation.kind == Kind::kAllGather;
    enqueued = gpu_emulator::baton_emulator_enqueue(
        operation.stream,
        {.memory = reinterpret_cast<CuDevicePointer>(operation.memory),
         .bytes = operation.bytes * (gathers ? ranks_.size() : 1),
         .poll = [this, rank, &side, operation, run = std::make_shared<Run>()](bool begins) {
           return Poll(rank, side, operation, *run, begins);
         }});
    if (enqueued != kCuSuccess) break;
  }
  lock.lock();
  if (enqueued != kCuSuccess) self.failed = kNcclUnhandledCudaError;
  return self.failed;
}

CuResult FakeNcclGroup::Poll(int rank, FakeNcclSide& side, const Operation& operation, Run& run,
                             bool begins) {
  std::vector<CuStream> others;
  CuResult result = kCuNotReady;
  {
    const std::lock_guard lock(mutex_);
    Rank& self = ranks_[static_cast<size_t>(rank)];
    if (self.aborted) return kCuSuccess;
    if (self.failed != kNcclSuccess) return kCuNotReady;
    if (begins) {
      const int64_t number = side.collectives++;
      const int64_t hangs_at = side.hangs_at_operation;
      run.hangs = hangs_at >= 0 && number >= hangs_at;
      if (number == side.fails_at_operation) self.failed = kNcclRemoteError;
    }
    if (run.hangs || self.failed != kNcclSuccess) return kCuNotReady;
    const bool collective =
        operation.kind == Kind::kAllGather || operation.kind == Kind::kBroadcast;
    result = collective ? Meet(rank, operation, run, begins) : Pass(rank, operation, run, begins);
    for (const Rank& other : ranks_) {
      if (&other != &self && !other.aborted && other.stream != nullptr) {
        others.push_back(other.stream);
      }
    }
  }
  // A GPU runs its streams without being asked.
  for (const CuStream stream : others) {
    gpu_emulator::baton_emulator_want(stream, /*news=*/result == kCuSuccess);
  }
  return result;
}

CuResult FakeNcclGroup::Meet(int rank, const Operation& operation, Run& run, bool begins) {
  const auto self = static_cast<size_t>(rank);
  const size_t root = static_cast<size_t>(operation.peer);
  const bool gathers = operation.kind == Kind::kAllGather;
  if (begins) {
    run.collective = ranks_[self].collectives++;
    Meeting& meeting = meetings_[run.collective];
    if (meeting.given.empty()) {
      meeting.shape = operation;
      meeting.given.resize(ranks_.size());
      meeting.arrived.resize(ranks_.size());
    }
    if (meeting.shape.kind != operation.kind || meeting.shape.bytes != operation.bytes ||
        meeting.shape.peer != operation.peer) {
      for (Rank& other : ranks_) other.failed = kNcclInvalidUsage;
      return kCuNotReady;
    }
    if (gathers || self == root) {
      const std::byte* const own = operation.memory + (gathers ? self * operation.bytes : 0);
      meeting.given[self].assign(own, own + operation.bytes);
    }
    meeting.arrived[self] = true;
  }
  Meeting& meeting = meetings_.at(run.collective);
  if (!std::ranges::all_of(meeting.arrived, [](bool arrived) { return arrived; })) {
    return kCuNotReady;
  }
  for (size_t from = 0; from < ranks_.size(); ++from) {
    if (from == self || meeting.given[from].empty()) continue;
    std::ranges::copy(meeting.given[from],
                      operation.memory + (gathers ? from * operation.bytes : 0));
  }
  if (++meeting.left == size()) meetings_.erase(run.collective);
  return kCuSuccess;
}

CuResult FakeNcclGroup::Pass(int rank, const Operation& operation, Run& run, bool begins) {
  if (operation.kind == Kind::kSend) {
    if (begins) {
      run.message = std::make_shared<Message>();
      run.message->bytes.assign(operation.memory, operation.memory + operation.bytes);
      ranks_[static_cast<size_t>(operation.peer)].inbox[rank].push_back(run.message);
    }
    return run.message->taken ? kCuSuccess : kCuNotReady;
  }
  auto& inbox = ranks_[static_cast<size_t>(rank)].inbox[operation.peer];
  if (inbox.empty()) return kCuNotReady;
  if (inbox.front()->bytes.size() != operation.bytes) {
    for (Rank& other : ranks_) other.failed = kNcclInvalidUsage;
    return kCuNotReady;
  }
  std::ranges::copy(inbox.front()->bytes, operation.memory);
  inbox.front()->taken = true;
  inbox.pop_front();
  return kCuSuccess;
}

}  // namespace baton
