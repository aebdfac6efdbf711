#include "engine/chunk_tier.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewestWeight = 0.25;        // of the newest measurement in an average
constexpr double kFirstWakeUsPerByte = 1e-3;  // before the first wake: 1 GB/s

}  // namespace

ChunkTier::ChunkTier(const ChunkTierOptions& options, KvCacheManager* cache, ChunkMover* mover,
                     const Clock* clock)
    : options_(options),
      cache_(cache),
      mover_(mover),
      clock_(clock),
      sleepers_(mover == nullptr ? 0 : options.host_bytes, cache),
      wake_us_per_byte_(kFirstWakeUsPerByte) {}

ChunkTier::~ChunkTier() { CHECK(idle()) << "destroyed while chunks are copied"; }

// ---- falling asleep -----------------------------------------------------------------------------

bool ChunkTier::FallAsleep(const ChunkCache::Leaving& leaving) {
  if (!on() || ends_) return false;
  const auto blocks = static_cast<int32_t>(leaving.blocks.size());
  if (falling_blocks_ > 0 && falling_blocks_ + blocks > options_.max_falling_blocks) return false;
  const int64_t bytes = MostHostBytes(blocks, options_.bytes_per_block);
  if (!sleepers_.Reserve(bytes, leaving.last_use_us)) return false;
  const uint64_t job = ++last_job_;
  Falling falling;
  falling.sleeper = {.key = leaving.key,
                     .tokens = {leaving.tokens.begin(), leaving.tokens.end()},
                     .position = leaving.position,
                     .uses = leaving.uses,
                     .stored_us = leaving.stored_us,
                     .last_use_us = leaving.last_use_us,
                     .kv = nullptr};
  falling.blocks.assign(leaving.blocks.begin(), leaving.blocks.end());
  falling.reserved = bytes;
  cache_->HoldForTransfer(falling.blocks);
  falling_blocks_ += blocks;
  mover_->Pack(job, falling.blocks, static_cast<int32_t>(leaving.tokens.size()));
  falling_keys_[leaving.key] = job;
  falling_.emplace(job, std::move(falling));
  return true;
}

bool ChunkTier::TakeBack(const ChunkKey& key, std::span<const TokenId> tokens,
                         const StoreAgain& store) {
  const auto found = falling_keys_.find(key);
  if (found == falling_keys_.end()) return false;
  const uint64_t job = found->second;
  Falling& falling = falling_.at(job);
  const std::vector<TokenId>& own = falling.sleeper.tokens;
  if (!std::equal(tokens.begin(), tokens.end(), own.begin(), own.end())) return false;
  if (!store(falling.sleeper.position, falling.blocks)) return false;
  // Storing may have let other chunks fall asleep.
  Drop(job, falling_.at(job));
  return true;
}

// Nothing wants the chunk's copy any more. It ends later.
void ChunkTier::Drop(uint64_t job, Falling& falling) {
  falling.unwanted = true;
  falling_keys_.erase(falling.sleeper.key);
  mover_->Cancel(job);
}

void ChunkTier::EndFall(Falling falling, const ChunkMover::Done& done) {
  cache_->ReleaseTransferHold(falling.blocks);
  falling_blocks_ -= static_cast<int32_t>(falling.blocks.size());
  const ChunkKey key = falling.sleeper.key;
  if (falling.unwanted) return sleepers_.Unreserve(falling.reserved);
  falling_keys_.erase(key);
  if (!done.status.ok()) return sleepers_.Unreserve(falling.reserved);
  falling.sleeper.kv = done.kv;
  sleepers_.Add(std::move(falling.sleeper), falling.reserved);
}

// ---- waking -------------------------------------------------------------------------------------

bool ChunkTier::Has(const ChunkKey& key, std::span<const TokenId> tokens) const {
  if (sleepers_.Find(key, tokens) != nullptr) return true;
  const auto found = falling_keys_.find(key);
  if (found == falling_keys_.end()) return false;
  const std::vector<TokenId>& own = falling_.at(found->second).sleeper.tokens;
  return std::equal(tokens.begin(), tokens.end(), own.begin(), own.end());
}

bool ChunkTier::IsWorthWaking(const PackedKv& kv, size_t tokens) const {
  if (!compute_us_per_token_.has_value()) return true;
  const auto bytes = static_cast<double>(waking_bytes_ + kv.host_bytes());
  return bytes * wake_us_per_byte_ <= static_cast<double>(tokens) * *compute_us_per_token_;
}

std::shared_ptr<const PackedKv> ChunkTier::ToWake(const ChunkKey& key,
                                                  std::span<const TokenId> tokens) {
  const SleepingChunks::Sleeper* const sleeper = sleepers_.Find(key, tokens);
  if (sleeper == nullptr || !IsWorthWaking(*sleeper->kv, tokens.size())) return nullptr;
  return sleepers_.Pin(key, clock_->NowUs());
}

void ChunkTier::Wake(const ChunkKey& key, std::shared_ptr<const PackedKv> kv, int32_t tokens,
                     SequenceId part, std::span<const BlockId> blocks) {
  Waking waking{.key = key,
                .part = part,
                .tokens = tokens,
                .blocks = {blocks.begin(), blocks.end()},
                .kv = std::move(kv)};
  CHECK_EQ(waking.blocks.size(), waking.kv->blocks.size()) << "a part has other blocks";
  waking.bytes = waking.kv->host_bytes();
  waking.since_us = clock_->NowUs();
  waking_bytes_ += waking.bytes;
  cache_->HoldForTransfer(waking.blocks);
  pending_.push_back(std::move(waking));
}

void ChunkTier::StartWakes() {
  std::vector<Waking> later;
  for (Waking& waking : pending_) {
    if (cache_->AnyInStep(waking.blocks)) {
      later.push_back(std::move(waking));
      continue;
    }
    const uint64_t job = ++last_job_;
    mover_->Unpack(job, waking.kv, waking.blocks, waking.tokens);
    waking_.emplace(job, std::move(waking));
  }
  pending_ = std::move(later);
}

void ChunkTier::OnComputed(int64_t tokens, int64_t us) {
  if (tokens <= 0 || us <= 0) return;
  const double newest = static_cast<double>(us) / static_cast<double>(tokens);
  const double before = compute_us_per_token_.value_or(newest);
  compute_us_per_token_ = before + kNewestWeight * (newest - before);
}

ChunkTier::Woken ChunkTier::EndWake(Waking waking, const ChunkMover::Done& done) {
  cache_->ReleaseTransferHold(waking.blocks);
  waking_bytes_ -= waking.bytes;
  const bool whole = done.status.ok();
  if (whole) {
    const double newest = static_cast<double>(done.busy_us) / static_cast<double>(waking.bytes);
    wake_us_per_byte_ += kNewestWeight * (newest - wake_us_per_byte_);
  } else if (absl::IsDataLoss(done.status)) {
    LOG(WARNING) << "a sleeping prompt chunk is lost: " << done.status.message();
    sleepers_.Damaged(waking.key, waking.kv);
  }
  sleepers_.Unpin(waking.kv, whole);
  return {.part = waking.part,
          .whole = whole,
          .tokens = waking.tokens,
          .blocks = std::move(waking.blocks),
          .us = clock_->NowUs() - waking.since_us};
}

// ---- both ---------------------------------------------------------------------------------------

std::vector<ChunkTier::Woken> ChunkTier::Poll() {
  std::vector<Woken> woken;
  if (mover_ == nullptr) return woken;
  for (const ChunkMover::Done& done : mover_->Poll()) {
    if (auto falling = falling_.extract(done.job); !falling.empty()) {
      EndFall(std::move(falling.mapped()), done);
    } else if (auto waking = waking_.extract(done.job); !waking.empty()) {
      woken.push_back(EndWake(std::move(waking.mapped()), done));
    }
  }
  return woken;
}

void ChunkTier::Forget(const ChunkKey& key) {
  sleepers_.Forget(key);
  const auto found = falling_keys_.find(key);
  if (found != falling_keys_.end()) Drop(found->second, falling_.at(found->second));
}

void ChunkTier::Clear(std::optional<CacheNamespace> only) {
  sleepers_.Clear(only);
  for (auto& [job, falling] : falling_) {
    const bool named = !only.has_value() || falling.sleeper.key.cache_namespace == *only;
    if (named && !falling.unwanted) Drop(job, falling);
  }
}

void ChunkTier::Shutdown() {
  ends_ = true;
  for (auto& [job, falling] : falling_) {
    if (!falling.unwanted) Drop(job, falling);
  }
}

void ChunkTier::AppendHeld(std::vector<BlockId>& held) const {
  for (const auto& [job, falling] : falling_) {
    held.insert(held.end(), falling.blocks.begin(), falling.blocks.end());
  }
  for (const auto& [job, waking] : waking_) {
    held.insert(held.end(), waking.blocks.begin(), waking.blocks.end());
  }
  for (const Waking& waking : pending_) {
    held.insert(held.end(), waking.blocks.begin(), waking.blocks.end());
  }
}

}  // namespace baton
