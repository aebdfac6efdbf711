#include "tests/gpu_emulator/emulated_gpu.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "common/check.h"

namespace baton::gpu_emulator {
namespace {

constexpr std::chrono::microseconds kExternalPoll{100};  // between polls of external work

thread_local CuContext current_context = nullptr;
thread_local int captures_of_this_thread = 0;

uint64_t NumberInEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

EmulatorSettings SettingsOfEnvironment() {
  EmulatorSettings settings;
  settings.seed = NumberInEnvironment("BATON_GPU_EMULATOR_SEED", 0);
  if (settings.seed != 0) {
    settings.rules = {
        .order = ExecutionOrder::kSeeded, .landing = CopyLanding::kSeeded, .seed = settings.seed};
  }
  settings.memory_bytes = NumberInEnvironment("BATON_GPU_EMULATOR_MIB", settings.memory_bytes >> 20)
                          << 20;
  settings.fail_after = static_cast<int64_t>(
      NumberInEnvironment("BATON_GPU_EMULATOR_FAIL_AFTER", static_cast<uint64_t>(-1)));
  return settings;
}

}  // namespace

EmulatedGpu& EmulatedGpu::Get() {
  static EmulatedGpu* const gpu = new EmulatedGpu;  // never destroyed: threads may outlive main
  return *gpu;
}

EmulatedGpu::EmulatedGpu() : settings_(SettingsOfEnvironment()) {}

int EmulatedGpu::compute_capability() {
  const std::lock_guard lock(mutex_);
  return settings_.compute_capability;
}

void EmulatedGpu::Configure(const EmulatorSettings& settings) {
  const std::lock_guard lock(mutex_);
  CHECK_EQ(retained_, 0) << "the emulated GPU is in use";
  settings_ = settings;
}

EmulatorCounters EmulatedGpu::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void EmulatedGpu::FailAfter(int64_t launches) {
  const std::lock_guard lock(mutex_);
  launches_left_ = launches;
}

// ---- context ------------------------------------------------------------------------------------

CuContext EmulatedGpu::Retain() {
  const std::lock_guard context_lock(context_mutex_);
  const std::lock_guard lock(mutex_);
  if (retained_++ == 0) {
    memory_ = std::make_unique<EmulatedMemory>(settings_.memory_bytes);
    random_.seed(settings_.seed);
    fault_ = kCuSuccess;
    counters_ = {};
    launches_left_ = settings_.fail_after;
    ending_ = false;
    thread_ = std::thread([this] { RunWork(); });
  }
  return reinterpret_cast<CuContext>(this);
}

CuResult EmulatedGpu::Release() {
  const std::lock_guard context_lock(context_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (retained_ == 0) return kCuInvalidContext;
    if (--retained_ > 0) return kCuSuccess;
    ending_ = true;
    wanted_.notify_one();
  }
  thread_.join();
  const std::lock_guard lock(mutex_);
  streams_.clear();
  events_.clear();
  graphs_.clear();
  execs_.clear();
  memory_.reset();
  return kCuSuccess;
}

CuResult EmulatedGpu::SetCurrent(CuContext context) {
  current_context = context;
  return kCuSuccess;
}

CuResult EmulatedGpu::Usable() {
  const std::lock_guard lock(mutex_);
  if (retained_ == 0 || current_context == nullptr) return kCuInvalidContext;
  return fault_;
}

CuResult EmulatedGpu::UsableOutsideCapture() {
  if (captures_of_this_thread == 0) return Usable();
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, stream] : streams_) {
    if (stream->capturing) stream->invalidated = true;
  }
  return kCuStreamCaptureUnsupported;
}

// ---- streams ------------------------------------------------------------------------------------

CuResult EmulatedGpu::CreateStream(CuStream* stream) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_shared<EmulatedStream>();
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
  const CuResult result = WaitFor(found, found->enqueued, lock);
  streams_.erase(stream);
  return result;
}

CuResult EmulatedGpu::Enqueue(CuStream stream, Work work) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) {
    if (work.kind == Work::Kind::kGraph) return Invalidate(*found);
    if (work.kind == Work::Kind::kCopy) ++counters_.captured_copies;
    found->captured.push_back(std::move(work));
  } else {
    found->work.push_back(std::move(work));
    ++found->enqueued;
  }
  return kCuSuccess;
}

CuResult EmulatedGpu::Invalidate(EmulatedStream& stream) {
  stream.invalidated = true;
  return kCuStreamCaptureUnsupported;
}

CuResult EmulatedGpu::WaitFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position,
                              std::unique_lock<std::mutex>& lock) {
  stream->wanted = std::max(stream->wanted, position);
  wanted_.notify_one();
  done_.wait(lock, [&] { return stream->done >= position || fault_ != kCuSuccess; });
  return fault_;
}

// A query wakes the GPU's thread once in four times.
CuResult EmulatedGpu::AskFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position) {
  if (fault_ != kCuSuccess) return fault_;
  if (stream->done >= position) return kCuSuccess;
  if (random_() % 4 == 0) {
    stream->wanted = std::max(stream->wanted, position);
    wanted_.notify_one();
  }
  return kCuNotReady;
}

CuResult EmulatedGpu::Synchronize(CuStream stream) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) return Invalidate(*found);
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

CuResult EmulatedGpu::BeginCapture(CuStream stream) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (found->capturing) return Invalidate(*found);
  found->capturing = true;
  ++captures_of_this_thread;
  return kCuSuccess;
}

CuResult EmulatedGpu::EndCapture(CuStream stream, CuGraph* graph) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<EmulatedStream> found = Find(stream);
  if (found == nullptr) return kCuInvalidHandle;
  if (!found->capturing) return kCuStreamCaptureUnmatched;
  found->capturing = false;
  --captures_of_this_thread;
  std::vector<Work> captured = std::exchange(found->captured, {});
  if (std::exchange(found->invalidated, false)) return kCuStreamCaptureInvalidated;
  auto nodes = std::make_unique<Nodes>(std::make_shared<std::vector<Work>>(std::move(captured)));
  *graph = reinterpret_cast<CuGraph>(nodes.get());
  graphs_.emplace(*graph, std::move(nodes));
  ++counters_.captures;
  return kCuSuccess;
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

// ---- graphs and functions -----------------------------------------------------------------------

CuResult EmulatedGpu::Instantiate(CuGraphExec* exec, CuGraph graph) {
  const std::lock_guard lock(mutex_);
  const auto at = graphs_.find(graph);
  if (at == graphs_.end()) return kCuInvalidHandle;
  auto nodes = std::make_unique<Nodes>(*at->second);
  *exec = reinterpret_cast<CuGraphExec>(nodes.get());
  execs_.emplace(*exec, std::move(nodes));
  return kCuSuccess;
}

CuResult EmulatedGpu::LaunchGraph(CuGraphExec exec, CuStream stream) {
  Work work{.kind = Work::Kind::kGraph};
  {
    const std::lock_guard lock(mutex_);
    const auto at = execs_.find(exec);
    if (at == execs_.end()) return kCuInvalidHandle;
    work.graph = *at->second;
  }
  return Enqueue(stream, std::move(work));
}

CuResult EmulatedGpu::DestroyGraph(CuGraph graph) {
  const std::lock_guard lock(mutex_);
  return graphs_.erase(graph) == 1 ? kCuSuccess : kCuInvalidHandle;
}

CuResult EmulatedGpu::DestroyExec(CuGraphExec exec) {
  const std::lock_guard lock(mutex_);
  return execs_.erase(exec) == 1 ? kCuSuccess : kCuInvalidHandle;
}

CuResult EmulatedGpu::FindFunction(CuFunction* function, const std::string& name) {
  const Kernel* const kernel = FindKernel(name);
  if (kernel == nullptr) return kCuNotFound;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<EmulatedFunction>& found = functions_[name];
  if (found == nullptr) found = std::make_unique<EmulatedFunction>();
  found->kernel = kernel;
  *function = reinterpret_cast<CuFunction>(found.get());
  return kCuSuccess;
}

EmulatedFunction* EmulatedGpu::FunctionOf(CuFunction function) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, known] : functions_) {
    if (reinterpret_cast<CuFunction>(known.get()) == function) return known.get();
  }
  return nullptr;
}

// ---- the GPU's thread ---------------------------------------------------------------------------

void EmulatedGpu::RunWork() {
  Executor executor(settings_.rules);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (const std::shared_ptr<EmulatedStream> next = NextStream()) {
      RunStream(*next, executor, lock);
      continue;
    }
    bool polls = false;
    for (const auto& [handle, stream] : streams_) polls = polls || stream->waiting;
    if (!polls) {
      wanted_.wait(lock);
      continue;
    }
    wanted_.wait_for(lock, kExternalPoll);
    for (const auto& [handle, stream] : streams_) stream->waiting = false;
  }
}

// Returns a stream with wanted work that can run now, or null.
std::shared_ptr<EmulatedStream> EmulatedGpu::NextStream() {
  if (fault_ != kCuSuccess) return nullptr;
  std::shared_ptr<EmulatedStream> next;
  for (const auto& [handle, stream] : streams_) {
    if (stream->done < stream->wanted && !stream->waiting) next = stream;
  }
  return next;
}

void EmulatedGpu::RunStream(EmulatedStream& stream, Executor& executor,
                            std::unique_lock<std::mutex>& lock) {
  std::vector<Work> batch;
  for (uint64_t at = stream.done; at < stream.wanted; ++at) {
    batch.push_back(std::move(stream.work.front()));
    stream.work.pop_front();
  }
  CuResult result = kCuSuccess;
  size_t ended = 0;
  const bool has_kernels = std::any_of(batch.begin(), batch.end(), [](const Work& work) {
    return work.kind == Work::Kind::kKernel || work.kind == Work::Kind::kGraph;
  });
  lock.unlock();
  {
    std::optional<DeviceMemoryAccess> access;  // to all memory, because a kernel says nothing
    if (has_kernels) access.emplace(*memory_);
    while (ended < batch.size()) {
      result = Run(batch[ended], executor);
      if (result != kCuSuccess) break;
      ++ended;
    }
  }
  lock.lock();
  if (result == kCuNotReady) {
    stream.work.insert(stream.work.begin(),
                       std::make_move_iterator(batch.begin() + static_cast<ptrdiff_t>(ended)),
                       std::make_move_iterator(batch.end()));
    stream.done += ended;
    stream.waiting = true;
  } else {
    if (result != kCuSuccess) fault_ = result;
    stream.done += batch.size();
  }
  done_.notify_all();
}

CuResult EmulatedGpu::Run(Work& work, Executor& executor) {
  if (work.kind != Work::Kind::kGraph) return RunNode(work, work.begun, executor);
  if (work.next_node == 0 && !work.begun) Count(&EmulatorCounters::graph_launches);
  while (work.next_node < work.graph->size()) {
    const CuResult result = RunNode((*work.graph)[work.next_node], work.begun, executor);
    if (result != kCuSuccess) return result;
    ++work.next_node;
    work.begun = false;
  }
  return kCuSuccess;
}

CuResult EmulatedGpu::RunNode(const Work& node, bool& begun, Executor& executor) {
  const DeviceRangeAccess to(*memory_, node.to, node.bytes);
  const DeviceRangeAccess from(*memory_, node.from, node.bytes);
  switch (node.kind) {
    case Work::Kind::kKernel:
      Count(&EmulatorCounters::launches);
      return RunKernel(node, executor);
    case Work::Kind::kCopy:
      Count(&EmulatorCounters::copies);
      std::memmove(reinterpret_cast<void*>(node.to),
                   node.source.empty() ? reinterpret_cast<const void*>(node.from)
                                       : static_cast<const void*>(node.source.data()),
                   node.bytes);
      return kCuSuccess;
    case Work::Kind::kSet:
      std::memset(reinterpret_cast<void*>(node.to), node.value, node.bytes);
      return kCuSuccess;
    case Work::Kind::kExternal:
      return node.external(!std::exchange(begun, true));
    case Work::Kind::kGraph:
      break;  // a capture refuses graphs
  }
  return kCuUnknown;
}

void EmulatedGpu::Count(int64_t EmulatorCounters::*counter) {
  const std::lock_guard lock(mutex_);
  ++(counters_.*counter);
}

CuResult EmulatedGpu::RunKernel(const Work& work, Executor& executor) {
  {
    const std::lock_guard lock(mutex_);
    if (launches_left_ >= 0 && launches_left_-- == 0) return kCuIllegalAddress;
  }
  const absl::Status status =
      executor.Run(*work.kernel, work.shape, work.params.data(), work.params.size());
  if (status.ok()) return kCuSuccess;
  LOG(ERROR) << status.message();
  return kCuLaunchFailed;
}

}  // namespace baton::gpu_emulator
