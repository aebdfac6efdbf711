#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/byte_ranges.h"
#include "common/huge_page_buffer.h"
#include "common/shared_page_buffer.h"
#include "common/status_macros.h"
#include "kernels/cpu/available_memory.h"
#include "kernels/cpu/built_kernels.h"
#include "kernels/cpu/cpu_event.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/usable_processors.h"
#include "kernels/tensor_core/tensor_core_kernels.h"

namespace baton {
namespace {

int SharedFd(const HugePageBuffer&) { return -1; }
int SharedFd(const SharedPageBuffer& buffer) { return buffer.fd(); }

// The kernel populates anonymous memory at the first write, with huge pages too.
void PopulatePages(HugePageBuffer&, size_t, size_t) {}
void PopulatePages(SharedPageBuffer& buffer, size_t offset, size_t bytes) {
  buffer.Populate(offset, bytes);
}

// Adds its size to the device's total while it exists. It may outlive the device.
template <typename Pages>
class CpuDeviceBuffer final : public DeviceBuffer {
 public:
  CpuDeviceBuffer(Pages pages, bool reserved, std::shared_ptr<std::atomic<size_t>> total)
      : pages_(std::move(pages)), reserved_(reserved), total_(std::move(total)) {
    total_->fetch_add(pages_.size());
  }
  ~CpuDeviceBuffer() override { total_->fetch_sub(pages_.size()); }
  std::byte* data() const override { return pages_.data(); }
  size_t size() const override { return pages_.size(); }
  int shared_fd() const override { return SharedFd(pages_); }
  absl::Status Populate(size_t offset, size_t bytes) override {
    if (!reserved_) return absl::OkStatus();
    std::vector<std::pair<size_t, size_t>> missing;
    {
      const std::lock_guard lock(mutex_);
      populated_.ForEachMissing(offset, offset + bytes, [&](size_t begin, size_t end) {
        missing.emplace_back(begin, end);
      });
    }
    for (const auto& [begin, end] : missing) {
      PopulatePages(pages_, begin, end - begin);  // may take seconds
      const std::lock_guard lock(mutex_);
      populated_.Add(begin, end);
    }
    return absl::OkStatus();
  }
  void Discard(size_t offset, size_t bytes) override {
    if (!reserved_) return;
    pages_.Discard(offset, bytes);
    const std::lock_guard lock(mutex_);
    populated_.Remove(offset, offset + bytes);
  }
  size_t MissingMemory(size_t offset, size_t bytes) const override {
    if (!reserved_) return 0;
    const std::lock_guard lock(mutex_);
    return populated_.CountMissing(offset, offset + bytes);
  }

 private:
  Pages pages_;
  const bool reserved_;
  std::shared_ptr<std::atomic<size_t>> total_;
  mutable std::mutex mutex_;
  ByteRanges populated_;  // guarded by mutex_
};

// Tells how to build kernels that this build lacks.
constexpr char kBuildAllSets[] = "scripts/build.sh release builds all";

// Warns if this processor could run faster kernels than this build has.
std::string LackOfKernels() {
  const std::optional<InstructionSet> faster = FasterUnbuiltSet();
  if (!faster) return "";
  return absl::StrFormat(" (this build lacks the faster %s kernels; %s)",
                         InstructionSetName(*faster), kBuildAllSets);
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, InstructionSet set, Numerics numerics, bool asynchronous)
      : set_(set),
        numerics_(numerics),
        asynchronous_(asynchronous),
        pool_(threads),
        ops_(IsT1(numerics) ? TensorCoreKernels(set, numerics) : KernelsFor(set), pool_) {}

  std::string Description() const override {
    return absl::StrFormat(
        "CPU%s, %s kernels%s, numerics %s, %d thread%s, transparent huge pages: %s",
        asynchronous_ ? " (asynchronous)" : "", InstructionSetName(set_), LackOfKernels(),
        NumericsName(numerics_), pool_.threads(), pool_.threads() == 1 ? "" : "s",
        TransparentHugePageMode());
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return Own(HugePageBuffer::Allocate(bytes, purpose), /*reserved=*/false);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t bytes,
                                                               std::string_view purpose) override {
    return Own(SharedPageBuffer::Allocate(bytes, purpose), /*reserved=*/false);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t bytes, std::string_view purpose,
                                                        bool shared) override {
    if (shared) return Own(SharedPageBuffer::Reserve(bytes, purpose), /*reserved=*/true);
    return Own(HugePageBuffer::Reserve(bytes, purpose), /*reserved=*/true);
  }

  Numerics numerics() const override { return numerics_; }
  size_t allocated_bytes() const override { return allocated_bytes_->load(); }
  DeviceMemory Memory() const override {
    return {.total = TotalMemoryBytes(), .available = AvailableMemoryBytes()};
  }
  bool asynchronous() const override { return asynchronous_; }
  std::unique_ptr<Stream> CreateStream() override {
    return std::make_unique<CpuStream>(
        pool_, asynchronous_ ? CpuStream::Runs::kOnItsThread : CpuStream::Runs::kInline);
  }
  std::unique_ptr<Event> CreateEvent() override {
    if (!asynchronous_) return std::make_unique<Event>();
    return std::make_unique<CpuEvent>();
  }
  const Ops& ops() const override { return ops_; }

 private:
  template <typename Pages>
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Own(absl::StatusOr<Pages> pages, bool reserved) {
    RETURN_IF_ERROR(pages.status());
    return std::make_unique<CpuDeviceBuffer<Pages>>(*std::move(pages), reserved, allocated_bytes_);
  }

  const InstructionSet set_;
  const Numerics numerics_;
  const bool asynchronous_;
  ThreadPool pool_;
  const CpuOps ops_;
  std::shared_ptr<std::atomic<size_t>> allocated_bytes_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxCpuThreads) {
    return absl::InvalidArgumentError(absl::StrFormat("threads is %d, it must be in 0 (all) to %d",
                                                      options.threads, kMaxCpuThreads));
  }
  if (!IsSupported(options.instruction_set)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "this processor cannot run the %s kernels; the best that it can run is %s",
        InstructionSetName(options.instruction_set), InstructionSetName(BestInstructionSet())));
  }
  if (!IsBuilt(options.instruction_set)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "this build has no %s kernels; it has those of %s; %s",
        InstructionSetName(options.instruction_set), BuiltSetNames(), kBuildAllSets));
  }
  const int threads =
      options.threads == 0 ? std::min(UsableProcessors(), kMaxCpuThreads) : options.threads;
  return std::make_unique<CpuDevice>(threads, options.instruction_set, options.numerics,
                                     options.asynchronous);
}

}  // namespace baton
