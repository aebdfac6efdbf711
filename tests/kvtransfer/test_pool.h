// Pools for transport tests: one in host memory, and one with memory that the host cannot read.
//
// The unreadable pool's memory is mapped twice. The address that transports may learn is not
// accessible, so a stray access crashes the test. Only the pool's copies and the test, which acts
// as the kernels, know the other address.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/file_descriptor.h"
#include "common/mapped_memory.h"
#include "common/shared_page_buffer.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/pool/staged_pool.h"

namespace baton {

// Host memory mapped at two addresses.
class TwiceMappedMemory {
 public:
  explicit TwiceMappedMemory(size_t bytes) {
    const FileDescriptor file(memfd_create("unreadable pool", MFD_CLOEXEC));
    CHECK_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    readable_ = Map(file, bytes, PROT_READ | PROT_WRITE);
    forbidden_ = Map(file, bytes, PROT_NONE);
  }
  std::byte* readable() const { return readable_.data(); }
  std::byte* forbidden() const { return forbidden_.data(); }

 private:
  static MappedMemory Map(const FileDescriptor& file, size_t bytes, int protection) {
    void* const at = mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
    CHECK(at != MAP_FAILED);
    return MappedMemory(static_cast<std::byte*>(at), bytes, bytes);
  }

  MappedMemory readable_;
  MappedMemory forbidden_;
};

// Copies that end after Ended was called `looks` times (0, 1, 2, 3, 0, … if not set), and not while
// `held`, and from copy number `held_from` (1, 2, …) on not at all. Until a copy ends, a staging
// target and checksums hold garbage, and other targets keep their old bytes.
//
// Thread safety: as PoolCopies. Any thread may use `held`, `held_from` and the counters.
class SlowCopies final : public PoolCopies {
 public:
  static constexpr std::byte kGarbage{0xDB};

  explicit SlowCopies(std::byte* pool) : pool_(pool) {}

  absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) override {
    ++begun;
    if (!begin_result.ok()) return begin_result;
    for (const Run& run : runs) {
      if (direction == Direction::kFromPool) Fill(run);
    }
    return Add(direction, runs, nullptr);
  }
  absl::StatusOr<uint64_t> BeginOnDevice(Direction direction, std::span<const Run> runs,
                                         uint32_t* checksums) override {
    ++begun;
    ++begun_on_device;
    if (!begin_result.ok()) return begin_result;
    std::fill_n(checksums, runs.size(), 0xDBDBDBDB);
    return Add(direction, runs, checksums);
  }
  absl::StatusOr<bool> Ended(uint64_t id) override {
    Copy& copy = copies_.at(id);
    if (held || id >= held_from || copy.looks-- > 0) return false;
    const Copy ended = std::move(copy);
    copies_.erase(id);
    if (!end_result.ok()) return end_result;
    for (size_t i = 0; i < ended.runs.size(); ++i) {
      const Run& run = ended.runs[i];
      if (ended.checksums == nullptr || !copy_on_device) {
        std::byte* const in_pool = pool_ + run.pool_offset;
        const bool out = ended.direction == Direction::kFromPool;
        std::memcpy(out ? run.staging : in_pool, out ? in_pool : run.staging,
                    static_cast<size_t>(run.bytes));
      } else if (absl::Status status = copy_on_device(ended.direction, run); !status.ok()) {
        return status;
      }
      if (ended.checksums != nullptr) {
        ended.checksums[i] =
            Crc32c(std::span(pool_ + run.pool_offset, static_cast<size_t>(run.bytes)));
      }
    }
    return true;
  }
  size_t under_way() const { return copies_.size(); }
  // Lets the running copies end at their next Ended call.
  void LetEnd() {
    looks = 0;
    for (auto& [id, copy] : copies_) copy.looks = 0;
  }

  int looks = -1;
  std::atomic<bool> held = false;
  std::atomic<uint64_t> held_from = std::numeric_limits<uint64_t>::max();
  std::atomic<int64_t> begun = 0;
  std::atomic<int64_t> begun_on_device = 0;  // of `begun`
  absl::Status begin_result;
  absl::Status end_result;
  // Copies between the pool and memory that this process cannot access. Unset: it can.
  std::function<absl::Status(Direction, const Run&)> copy_on_device;

 private:
  struct Copy {
    Direction direction;
    std::vector<Run> runs;
    uint32_t* checksums;  // null: a copy to or from staging memory
    int looks;
  };
  uint64_t Add(Direction direction, std::span<const Run> runs, uint32_t* checksums) {
    copies_[++last_] = {direction,
                        {runs.begin(), runs.end()},
                        checksums,
                        looks >= 0 ? looks : static_cast<int>(last_ % 4)};
    return last_;
  }
  static void Fill(const Run& run) {
    std::memset(run.staging, static_cast<int>(kGarbage), static_cast<size_t>(run.bytes));
  }

  std::byte* const pool_;
  uint64_t last_ = 0;
  std::map<uint64_t, Copy> copies_;
};

// Returns a piece of a block with two planes, by its index in canonical order.
inline Piece PieceAt(int32_t number) { return {.layer = number / 2, .plane = number % 2}; }

// A pool of either kind.
class TestPool {
 public:
  // `shared`: other processes can map the read buffers of a pool that the host cannot read.
  TestPool(const KvPoolLayout& layout, PoolMemory memory, const StagedPool::Limits& limits = {2, 2},
           bool shared = false)
      : size_(static_cast<size_t>(layout.pool_bytes())) {
    if (memory == PoolMemory::kHost) {
      pages_ = *SharedPageBuffer::Allocate(size_, "test pool");
      lender_ = std::make_unique<HostPool>(pages_.data(), layout, pages_.fd());
      return;
    }
    device_ = std::make_unique<TwiceMappedMemory>(size_);
    copies_ = std::make_unique<SlowCopies>(device_->readable());
    staging_.resize(static_cast<size_t>(StagedPool::StagingBytes(layout, limits, shared)));
    SharedStaging slots;
    if (shared) {
      const auto bytes = StagedPool::SharedLayout(layout, limits).pool_bytes();
      pages_ = *SharedPageBuffer::Allocate(static_cast<size_t>(bytes), "test slots");
      slots = {.memory = {pages_.data(), pages_.size()}, .file = pages_.fd()};
    }
    lender_ = std::make_unique<StagedPool>(device_->forbidden(), layout, *copies_, staging_, limits,
                                           slots);
  }

  // Address that kernels would use. The test reads and writes here.
  std::byte* data() const { return device_ ? device_->readable() : pages_.data(); }
  size_t size() const { return size_; }
  TransferPool& lender() { return *lender_; }
  SlowCopies& copies() { return *copies_; }  // only for an unreadable pool
  // Returns the first tokens of a block, as kernels would read them.
  PieceBytes Bytes(const GroupBlocks& blocks, int32_t tokens, LayerRange layers = {}) const {
    return PieceBytes(data(), lender_->layout(), LeadingTokens(blocks, tokens), layers);
  }

 private:
  const size_t size_;
  SharedPageBuffer pages_;  // the pool, or its shared read buffers
  std::unique_ptr<TwiceMappedMemory> device_;
  std::unique_ptr<SlowCopies> copies_;
  std::vector<std::byte> staging_;
  std::unique_ptr<TransferPool> lender_;
};

}  // namespace baton
