#include "tests/gpu_emulator/emulated_gpu.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
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
  EmulatorSettings settings = SettingsOfCapability(
      static_cast<int>(NumberInEnvironment("BATON_GPU_EMULATOR_CAPABILITY", 90)));
  settings.seed = NumberInEnvironment("BATON_GPU_EMULATOR_SEED", 0);
  if (settings.seed != 0) {
    settings.rules.order = ExecutionOrder::kSeeded;
    settings.rules.landing = CopyLanding::kSeeded;
    settings.rules.seed = settings.seed;
  }
  settings.memory_bytes = NumberInEnvironment("BATON_GPU_EMULATOR_MIB", settings.memory_bytes >> 20)
                          << 20;
  settings.fail_after = static_cast<int64_t>(
      NumberInEnvironment("BATON_GPU_EMULATOR_FAIL_AFTER", static_cast<uint64_t>(-1)));
  settings.hang_after = static_cast<int64_t>(
      NumberInEnvironment("BATON_GPU_EMULATOR_HANG_AFTER", static_cast<uint64_t>(-1)));
  settings.shared_bytes = static_cast<uint32_t>(
      NumberInEnvironment("BATON_GPU_EMULATOR_SHARED_BYTES", settings.shared_bytes));
  settings.faulty_device =
      static_cast<int32_t>(NumberInEnvironment("BATON_GPU_EMULATOR_FAULTY_DEVICE", 0));
  return settings;
}

}  // namespace

EmulatedGpu& EmulatedGpu::Of(int device) {
  CHECK(device >= 0 && device < kMostDevices);
  // Never destroyed: threads may outlive main.
  static auto* const gpus = [] {
    auto* const made = new std::array<EmulatedGpu*, kMostDevices>;
    for (int i = 0; i < kMostDevices; ++i) (*made)[static_cast<size_t>(i)] = new EmulatedGpu(i);
    return made;
  }();
  return *(*gpus)[static_cast<size_t>(device)];
}

EmulatedGpu& EmulatedGpu::Current() {
  return current_context == nullptr ? Of(0) : *reinterpret_cast<EmulatedGpu*>(current_context);
}

CuResult EmulatedGpu::SetCurrent(CuContext context) {
  current_context = context;
  return kCuSuccess;
}

EmulatedGpu::EmulatedGpu(int device) : device_(device), settings_(SettingsOfEnvironment()) {
  call_faults_.devices = static_cast<int>(
      std::clamp<uint64_t>(NumberInEnvironment("BATON_GPU_EMULATOR_DEVICES", 1), 0, kMostDevices));
  call_faults_.peers = NumberInEnvironment("BATON_GPU_EMULATOR_PEERS", 1) != 0;
}

CuResult EmulatedGpu::Locate(CuDevicePointer address, size_t bytes, Residence* residence) {
  const CuResult here = memory_->Locate(address, bytes, residence);
  if (here != kCuSuccess || *residence != Residence::kPageable) return here;
  for (int device = 0; device < kMostDevices; ++device) {
    EmulatedGpu& other = Of(device);
    if (&other == this) continue;
    const std::lock_guard lock(other.mutex_);
    if (other.memory_ == nullptr) continue;
    const CuResult there = other.memory_->Locate(address, bytes, residence);
    if (there != kCuSuccess || *residence == Residence::kDevice) return kCuInvalidValue;
    if (*residence == Residence::kPinned) return kCuSuccess;
  }
  return kCuSuccess;
}

void EmulatedGpu::Want(CuStream stream, bool news) {
  for (int device = 0; device < kMostDevices; ++device) {
    EmulatedGpu& gpu = Of(device);
    const std::lock_guard lock(gpu.mutex_);
    const std::shared_ptr<EmulatedStream> found = gpu.Find(stream);
    if (found == nullptr) continue;
    found->wanted = std::max(found->wanted, found->enqueued);
    if (news) found->poll_at = {};
    gpu.wanted_.notify_one();
    return;
  }
}

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

void EmulatedGpu::HangAfter(int64_t launches) {
  const std::lock_guard lock(mutex_);
  hang_in_ = launches;
  ++hang_orders_;
  wanted_.notify_all();
}

EmulatorSettings EmulatedGpu::settings() {
  const std::lock_guard lock(mutex_);
  return settings_;
}

void EmulatedGpu::CountAllocation() {
  const std::lock_guard lock(mutex_);
  ++counters_.allocations;
}

void EmulatedGpu::CountAccessChange() {
  const std::lock_guard lock(mutex_);
  ++counters_.access_changes;
}

// ---- context ------------------------------------------------------------------------------------

CuContext EmulatedGpu::Retain() {
  const std::lock_guard context_lock(context_mutex_);
  const std::lock_guard lock(mutex_);
  if (retained_++ == 0) {
    memory_ = std::make_shared<EmulatedMemory>(settings_.memory_bytes);
    random_.seed(settings_.seed);
    fault_ = kCuSuccess;
    counters_ = {};
    times_ = {};
    streams_created_ = 0;
    const bool faulty = settings_.faulty_device == device_;
    launches_left_ = faulty ? settings_.fail_after : -1;
    hang_in_ = faulty ? settings_.hang_after : -1;
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
  peers_.clear();
  memory_.reset();
  return kCuSuccess;
}

CuResult EmulatedGpu::EnablePeer(CuContext peer) {
  auto* const gpu = reinterpret_cast<EmulatedGpu*>(peer);
  if (gpu == this) return kCuInvalidDevice;
  const std::lock_guard lock(mutex_);
  return peers_.insert(gpu).second ? kCuSuccess : kCuPeerAccessAlreadyEnabled;
}

std::vector<std::shared_ptr<EmulatedMemory>> EmulatedGpu::MemoryOfKernels() {
  std::vector<std::shared_ptr<EmulatedMemory>> all;
  std::set<EmulatedGpu*> peers;
  {
    const std::lock_guard lock(mutex_);
    all.push_back(memory_);
    peers = peers_;
  }
  for (EmulatedGpu* const peer : peers) {
    const std::lock_guard lock(peer->mutex_);
    if (peer->memory_ != nullptr) all.push_back(peer->memory_);
  }
  return all;
}

CuResult EmulatedGpu::Usable() {
  const std::lock_guard lock(mutex_);
  if (retained_ == 0 || current_context == nullptr) return kCuInvalidContext;
  if (times_.order == StreamOrder::kHostFirst) last_call_ = std::chrono::steady_clock::now();
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

// ---- captures ---------------------------------------------------------------------------------

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

// ---- the GPU's thread ---------------------------------------------------------------------------

void EmulatedGpu::RunWork() {
  Executor executor(settings_.rules);
  CatchEarlyAccesses();
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (const auto pause = PauseForTheHost()) {
      wanted_.wait_for(lock, *pause);
      continue;
    }
    if (const std::shared_ptr<EmulatedStream> next = NextStream()) {
      RunStream(*next, executor, lock);
      continue;
    }
    const bool polls = fault_ == kCuSuccess &&
                       std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
                         return entry.second->done < entry.second->wanted;
                       });
    if (polls) {
      wanted_.wait_for(lock, kExternalPoll);
    } else {
      wanted_.wait(lock);
    }
  }
}

std::shared_ptr<EmulatedStream> EmulatedGpu::NextStream(const EmulatedStream* besides) {
  if (fault_ != kCuSuccess) return nullptr;
  const auto now = std::chrono::steady_clock::now();
  const auto can_run = [&](const auto& entry) {
    const EmulatedStream& stream = *entry.second;
    return &stream != besides && stream.done < stream.wanted && now >= stream.poll_at;
  };
  const auto after_last = streams_.upper_bound(last_);
  auto next = std::find_if(after_last, streams_.end(), can_run);
  if (next == streams_.end()) next = std::find_if(streams_.begin(), after_last, can_run);
  if (next == streams_.end() || !can_run(*next)) return nullptr;
  if (besides == nullptr) last_ = next->first;
  return next->second;
}

// Runs kernels with access to all memory, because a kernel names none.
class EmulatedGpu::KernelRunner {
 public:
  KernelRunner(EmulatedGpu& gpu, Executor& executor) : gpu_(gpu), executor_(executor) {}

  absl::Status Run(const Work& work) {
    EarlyStart early;
    if (work.early && ClosesMemory(work)) {
      early.open_memory = [this] { OpenMemory(); };
      CloseMemory();
    } else {
      OpenMemory();
    }
    return executor_.Run(*work.kernel, work.shape, work.params.data(), work.params.size(),
                         work.early ? &early : nullptr);
  }
  void CloseMemory() { access_.clear(); }

 private:
  // Closing takes about as long as a small kernel. So only the first launches of a kernel and then
  // every eighth one find closed memory.
  bool ClosesMemory(const Work& work) {
    const uint64_t earlier = gpu_.early_runs_[work.kernel]++;
    return earlier < 4 || earlier % 8 == 0;
  }
  void OpenMemory() {
    if (!access_.empty()) return;
    memory_ = gpu_.MemoryOfKernels();
    for (const auto& each : memory_) access_.emplace_back(*each);
  }

  EmulatedGpu& gpu_;
  Executor& executor_;
  std::vector<std::shared_ptr<EmulatedMemory>> memory_;
  std::list<DeviceMemoryAccess> access_;
};

void EmulatedGpu::RunStream(EmulatedStream& stream, Executor& executor,
                            std::unique_lock<std::mutex>& lock) {
  KernelRunner runner(*this, executor);
  uint64_t done = stream.done;
  CuResult result = kCuSuccess;
  do {
    Work work = std::move(stream.work.front());
    stream.work.pop_front();
    bool ended = false;
    lock.unlock();
    result = RunNext(work, runner, ended);
    lock.lock();
    if (ended) {
      ++done;
    } else {
      stream.work.push_front(std::move(work));
    }
  } while (result == kCuSuccess && done < stream.wanted && NextStream(&stream) == nullptr);
  runner.CloseMemory();  // before a waiting call returns
  stream.done = done;
  if (result == kCuNotReady) {
    stream.poll_at = std::chrono::steady_clock::now() + kExternalPoll;
  } else if (result != kCuSuccess) {
    fault_ = result;
  }
  done_.notify_all();
}

CuResult EmulatedGpu::RunNext(Work& work, KernelRunner& runner, bool& ended) {
  if (work.kind != Work::Kind::kGraph) {
    const CuResult result = RunNode(work, work.begun, runner);
    ended = result == kCuSuccess;
    return result;
  }
  if (work.next_node == 0 && !work.begun) Count(&EmulatorCounters::graph_launches);
  CuResult result = kCuSuccess;
  if (work.next_node < work.graph->size()) {
    result = RunNode((*work.graph)[work.next_node], work.begun, runner);
    if (result != kCuSuccess) return result;
    ++work.next_node;
    work.begun = false;
  }
  ended = work.next_node == work.graph->size();
  return result;
}

CuResult EmulatedGpu::RunNode(const Work& node, bool& begun, KernelRunner& runner) {
  const DeviceRangeAccess to(*memory_, node.to, node.bytes);
  const DeviceRangeAccess from(*memory_, node.from, node.bytes);
  switch (node.kind) {
    case Work::Kind::kKernel:
      Count(&EmulatorCounters::launches);
      if (node.early) Count(&EmulatorCounters::early_launches);
      return RunKernel(node, runner);
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

CuResult EmulatedGpu::RunKernel(const Work& work, KernelRunner& runner) {
  {
    std::unique_lock lock(mutex_);
    if (launches_left_ >= 0 && launches_left_-- == 0) return kCuIllegalAddress;
    if (hang_in_ >= 0 && hang_in_-- == 0) {
      const uint64_t orders = hang_orders_;
      wanted_.wait(lock, [&] { return hang_orders_ != orders || ending_; });
    }
  }
  const absl::Status status = runner.Run(work);
  if (status.ok()) return kCuSuccess;
  LOG(ERROR) << status.message();
  return kCuLaunchFailed;
}

}  // namespace baton::gpu_emulator
