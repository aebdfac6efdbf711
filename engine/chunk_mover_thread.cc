#include "engine/chunk_mover_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace baton {
namespace {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ChunkMoverThread::ChunkMoverThread(std::unique_ptr<TransferPool> pool, bool compress,
                                   std::function<void()> wake)
    : pool_(std::move(pool)),
      packer_(pool_.get(), compress),
      wake_(std::move(wake)),
      thread_([this] { Run(); }) {}

ChunkMoverThread::~ChunkMoverThread() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void ChunkMoverThread::Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) {
  Post(packs_, {.number = job, .blocks = std::move(blocks), .tokens = tokens, .from = nullptr});
}

void ChunkMoverThread::Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv,
                              std::vector<BlockId> blocks, int32_t tokens) {
  Post(unpacks_,
       {.number = job, .blocks = std::move(blocks), .tokens = tokens, .from = std::move(kv)});
}

void ChunkMoverThread::Post(std::deque<Job>& jobs, Job job) {
  {
    std::lock_guard lock(mutex_);
    jobs.push_back(std::move(job));
  }
  news_.notify_one();
}

void ChunkMoverThread::Cancel(uint64_t job) {
  std::lock_guard lock(mutex_);
  if (current_ == job) current_cancelled_ = true;
  for (Job& waiting : packs_) waiting.cancelled |= waiting.number == job;
}

std::vector<ChunkMover::Done> ChunkMoverThread::Poll() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void ChunkMoverThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return ends_ || !packs_.empty() || !unpacks_.empty(); });
    if (ends_) return;
    std::deque<Job>& jobs = unpacks_.empty() ? packs_ : unpacks_;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    const bool packs = job.from == nullptr;
    current_ = packs ? job.number : 0;
    lock.unlock();
    const int64_t begin_us = NowUs();
    const absl::Status status =
        job.cancelled ? absl::CancelledError("the chunk is needed again") : DoBlock(job);
    job.busy_us += NowUs() - begin_us;
    lock.lock();
    current_ = 0;
    job.cancelled |= std::exchange(current_cancelled_, false);
    if (!status.ok() || job.next == job.blocks.size()) {
      End(std::move(job), status);
      lock.unlock();
      wake_();
      lock.lock();
    } else {
      (packs ? packs_ : unpacks_).push_front(std::move(job));
    }
  }
}

absl::Status ChunkMoverThread::DoBlock(Job& job) {
  const int32_t block_size = pool_->layout().block_size();
  const auto before = static_cast<int32_t>(job.next) * block_size;
  const int32_t tokens = std::min(block_size, job.tokens - before);
  const BlockId block = job.blocks[job.next];
  if (job.from != nullptr) {
    const absl::Status unpacked = packer_.Unpack(job.from->blocks[job.next], block, tokens);
    if (unpacked.ok()) ++job.next;
    return unpacked;
  }
  absl::StatusOr<PackedBlock> packed = packer_.Pack(block, tokens);
  if (!packed.ok()) return packed.status();
  job.to.blocks.reserve(job.blocks.size());
  job.to.blocks.push_back(*std::move(packed));
  ++job.next;
  return absl::OkStatus();
}

// REQUIRES: mutex_ is held.
void ChunkMoverThread::End(Job job, const absl::Status& status) {
  Done done{.job = job.number, .status = status, .kv = nullptr, .busy_us = job.busy_us};
  if (status.ok() && job.from == nullptr) {
    done.kv = std::make_shared<const PackedKv>(std::move(job.to));
  }
  done_.push_back(std::move(done));
}

}  // namespace baton
