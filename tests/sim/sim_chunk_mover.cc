#include "tests/sim/sim_chunk_mover.h"

#include <algorithm>
#include <utility>

#include "common/crc32c.h"

namespace baton {
namespace {

constexpr int64_t kBlockUs = 40;  // to copy one block

}  // namespace

void SimChunkMover::Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) {
  packs_.push_back({.number = job,
                    .blocks = std::move(blocks),
                    .tokens = tokens,
                    .from = nullptr,
                    .to = std::make_shared<PackedKv>()});
  Start();
}

void SimChunkMover::Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv,
                           std::vector<BlockId> blocks, int32_t tokens) {
  unpacks_.push_back({.number = job,
                      .blocks = std::move(blocks),
                      .tokens = tokens,
                      .from = std::move(kv),
                      .to = nullptr});
  Start();
}

void SimChunkMover::Cancel(uint64_t job) {
  for (Job& waiting : packs_) waiting.cancelled |= waiting.number == job;
}

void SimChunkMover::Start() {
  if (runs_ || (packs_.empty() && unpacks_.empty())) return;
  runs_ = true;
  node_.Post(kBlockUs, [this] {
    runs_ = false;
    DoBlock();
    Start();
  });
}

void SimChunkMover::DoBlock() {
  std::deque<Job>& jobs = unpacks_.empty() ? packs_ : unpacks_;
  if (jobs.empty()) return;
  Job& job = jobs.front();
  const absl::Status status =
      job.cancelled ? absl::CancelledError("the chunk is needed again") : Move(job);
  if (status.ok() && job.next < job.blocks.size()) return;
  Job ended = std::move(job);
  jobs.pop_front();
  End(std::move(ended), status);
  wake_();
}

absl::Status SimChunkMover::Move(Job& job) {
  const int32_t block_size = pool_.layout().block_size();
  const int32_t tokens =
      std::min(block_size, job.tokens - static_cast<int32_t>(job.next) * block_size);
  const BlockId block = job.blocks[job.next];
  if (job.from != nullptr) {
    const absl::Status unpacked = UnpackBlock(job, block, tokens);
    if (unpacked.ok()) ++job.next;
    return unpacked;
  }
  absl::StatusOr<PackedBlock> packed = packer_.Pack(block, tokens);
  if (!packed.ok()) return packed.status();
  if (random_.OneIn(12)) {
    packed->bytes[random_.Below(packed->bytes.size())] ^= std::byte{1};
  }
  job.to->blocks.push_back(*std::move(packed));
  ++job.next;
  return absl::OkStatus();
}

absl::Status SimChunkMover::UnpackBlock(const Job& job, BlockId block, int32_t tokens) {
  PackedBlock packed = job.from->blocks[job.next];
  if (mutant_ == Mutant::kDamagedChunkWoken && !packed.compressed) {
    packed.crc = Crc32c(packed.bytes);
  }
  return packer_.Unpack(packed, block, tokens);
}

void SimChunkMover::End(Job job, const absl::Status& status) {
  Done done{.job = job.number, .status = status, .kv = nullptr, .busy_us = kBlockUs};
  if (status.ok() && job.from == nullptr) done.kv = std::move(job.to);
  done_.push_back(std::move(done));
}

void SimChunkMover::Abandon() {
  for (std::deque<Job>* jobs : {&unpacks_, &packs_}) {
    for (Job& job : *jobs) End(std::move(job), absl::CancelledError("killed"));
    jobs->clear();
  }
}

}  // namespace baton
