// Streams and events of the emulated GPU: what is enqueued, and when it is wanted.

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/gpu_emulator/emulated_gpu.h"

namespace baton::gpu_emulator {
namespace {

// Of StreamOrder::kHostFirst.
constexpr std::chrono::milliseconds kQuiet{2};
constexpr std::chrono::milliseconds kLongestPause{50};

}  // namespace

CuResult EmulatedGpu::CreateStream(CuStream* stream) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_shared<EmulatedStream>();
  made->number = streams_created_++;
  *stream = reinterpret_cast<CuStream>(made.get());
  streams_.emplace(*stream, std::move(made));
  return kCuSuccess;
}

std::shared_ptr<EmulatedStream> EmulatedGpu::Find(CuStream stream) {
  const auto at = streams_.find(stream);
  return at == streams_.end() ? nullptr : at->second;
}

CuResult EmulatedGpu::DestroyStream(CuStream stream) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  AppendHeld(*found);
  const CuResult result = WaitFor(found, found->enqueued, lock);
  streams_.erase(stream);
  return result;
}

CuResult EmulatedGpu::Enqueue(CuStream stream, Work work) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) {
    if (work.kind == Work::Kind::kGraph) return Invalidate(*found);
    if (work.kind == Work::Kind::kCopy) ++counters_.captured_copies;
    found->captured.push_back(std::move(work));
    return kCuSuccess;
  }
  if (found->enqueued - found->done >= settings_.queue_depth) {
    ++counters_.full_queues;
    const CuResult room = WaitFor(found, found->enqueued + 1 - settings_.queue_depth, lock);
    if (room != kCuSuccess) return room;
  }
  if (work.late) {
    found->held = std::move(work);
    return kCuSuccess;
  }
  found->work.push_back(std::move(work));
  ++found->enqueued;
  return IsEarly(*found) ? RunAtOnce(found, lock) : kCuSuccess;
}

void EmulatedGpu::AppendHeld(EmulatedStream& stream) {
  if (!stream.held) return;
  stream.work.push_back(*std::exchange(stream.held, std::nullopt));
  ++stream.enqueued;
}

bool EmulatedGpu::IsEarly(const EmulatedStream& stream) const {
  return times_.order == StreamOrder::kEarly && (times_.only == -1 || times_.only == stream.number);
}

// External work may need this thread, so nothing waits for it.
CuResult EmulatedGpu::RunAtOnce(const std::shared_ptr<EmulatedStream>& stream,
                                std::unique_lock<std::mutex>& lock) {
  const bool external = std::any_of(stream->work.begin(), stream->work.end(), [](const Work& work) {
    return work.kind == Work::Kind::kExternal;
  });
  if (!external) return WaitFor(stream, stream->enqueued, lock);
  Want(*stream, stream->enqueued);
  return kCuSuccess;
}

void EmulatedGpu::Want(EmulatedStream& stream, uint64_t position) {
  if (stream.wanted <= stream.done) wanted_since_ = std::chrono::steady_clock::now();
  stream.wanted = std::max(stream.wanted, position);
  wanted_.notify_one();
}

CuResult EmulatedGpu::Invalidate(EmulatedStream& stream) {
  stream.invalidated = true;
  return kCuStreamCaptureUnsupported;
}

CuResult EmulatedGpu::WaitFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position,
                              std::unique_lock<std::mutex>& lock) {
  Want(*stream, position);
  done_.wait(lock, [&] { return stream->done >= position || fault_ != kCuSuccess; });
  return fault_;
}

// A query wakes the GPU's thread once in four times.
CuResult EmulatedGpu::AskFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position) {
  if (fault_ != kCuSuccess) return fault_;
  if (stream->done >= position) return kCuSuccess;
  if (random_() % 4 == 0) Want(*stream, position);
  return kCuNotReady;
}

CuResult EmulatedGpu::Synchronize(CuStream stream) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) return Invalidate(*found);
  AppendHeld(*found);
  return WaitFor(found, found->enqueued, lock);
}

CuResult EmulatedGpu::Query(CuStream stream) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) return Invalidate(*found);
  return AskFor(found, found->enqueued);
}

CuResult EmulatedGpu::SynchronizeAll() {
  std::unique_lock lock(mutex_);
  std::vector<std::pair<std::shared_ptr<EmulatedStream>, uint64_t>> all;
  for (const auto& [handle, stream] : streams_) all.emplace_back(stream, stream->enqueued);
  for (const auto& [stream, position] : all) WaitFor(stream, position, lock);
  return fault_;
}

std::optional<std::chrono::steady_clock::duration> EmulatedGpu::PauseForTheHost() const {
  if (times_.order != StreamOrder::kHostFirst) return std::nullopt;
  const bool wanted = std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    return entry.second->done < entry.second->wanted;
  });
  if (!wanted) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  const auto begin = std::min(last_call_ + kQuiet, wanted_since_ + kLongestPause);
  if (now >= begin) return std::nullopt;
  return begin - now;
}

void EmulatedGpu::OrderStreams(const StreamTimes& times) {
  const std::lock_guard lock(mutex_);
  times_ = times;
}

// ---- events -------------------------------------------------------------------------------------

CuResult EmulatedGpu::CreateEvent(CuEvent* event) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<EmulatedEvent>();
  *event = reinterpret_cast<CuEvent>(made.get());
  events_.emplace(*event, std::move(made));
  return kCuSuccess;
}

CuResult EmulatedGpu::DestroyEvent(CuEvent event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) == 1 ? kCuSuccess : kCuInvalidHandle;
}

CuResult EmulatedGpu::Record(CuEvent event, CuStream stream) {
  const std::lock_guard lock(mutex_);
  const auto at = events_.find(event);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (at == events_.end() || found == nullptr) return kCuInvalidHandle;
  if (found->capturing) return Invalidate(*found);
  AppendHeld(*found);
  *at->second = {.stream = found, .position = found->enqueued};
  return kCuSuccess;
}

CuResult EmulatedGpu::Query(CuEvent event) {
  const std::lock_guard lock(mutex_);
  const auto at = events_.find(event);
  if (at == events_.end()) return kCuInvalidHandle;
  if (at->second->stream == nullptr) return kCuSuccess;
  return AskFor(at->second->stream, at->second->position);
}

CuResult EmulatedGpu::Synchronize(CuEvent event) {
  std::unique_lock lock(mutex_);
  const auto at = events_.find(event);
  if (at == events_.end()) return kCuInvalidHandle;
  const EmulatedEvent recorded = *at->second;  // the event may be destroyed during the wait
  if (recorded.stream == nullptr) return kCuSuccess;
  return WaitFor(recorded.stream, recorded.position, lock);
}

}  // namespace baton::gpu_emulator
