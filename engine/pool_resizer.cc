#include "engine/pool_resizer.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::Status PoolResizer::Prepare(int32_t blocks) {
  if (!pool_->resizable() || blocks < 1 || blocks > pool_->max_blocks(0)) {
    return absl::OkStatus();  // Resize returns the error
  }
  {
    // Waits for a discard that began before, so that none overlaps the population.
    const std::lock_guard lock(mutex_);
    targets_.insert(blocks);
  }
  return pool_->Populate(pool_->BlocksFor(blocks));
}

absl::StatusOr<PoolSize> PoolResizer::Resize(WorkerCore& core, int32_t blocks) {
  const int32_t before = cache_->num_blocks();
  if (!pool_->resizable()) {
    return absl::FailedPreconditionError(
        StrCat("the KV pool has a fixed size of ", before,
               " blocks; start the worker with --kv-cache-max-mib to make it resizable"));
  }
  const absl::Status moved = MoveLimit(core, blocks);
  End(blocks);
  RETURN_IF_ERROR(moved);
  PoolSize size = Size();
  size.before = before;
  LOG(INFO) << "the KV pool has " << size.limit << " blocks now, before: " << before << "; "
            << size.retiring << " are retiring, " << size.reserved << " are reserved";
  return size;
}

absl::Status PoolResizer::MoveLimit(WorkerCore& core, int32_t blocks) {
  if (blocks >= 1 && blocks <= cache_->max_blocks()) {  // else core.Resize returns the error
    const BlockCounts counts = pool_->BlocksFor(blocks);
    // Nothing is discarded between here and the new limit, because this thread alone discards.
    RETURN_IF_ERROR(pool_->Populate(counts));
    for (int32_t group = 1; group < cache_->groups(); ++group) {
      RETURN_IF_ERROR(cache_->Resize(counts[group], group));
    }
  }
  return core.Resize(blocks);
}

void PoolResizer::Abandon(int32_t blocks) { End(blocks); }

void PoolResizer::End(int32_t blocks) {
  {
    const std::lock_guard lock(mutex_);
    const auto target = targets_.find(blocks);
    if (target != targets_.end()) targets_.erase(target);
  }
  retiring_ = cache_->OfEveryGroup(-1);  // makes GiveBackRetired look at every group
  GiveBackRetired();
}

void PoolResizer::GiveBackRetired() {
  for (int32_t group = 0; group < cache_->groups(); ++group) {
    const int32_t retiring = cache_->retiring_blocks(group);
    if (std::exchange(retiring_[group], retiring) != retiring) GiveBack(group);
  }
}

void PoolResizer::GiveBack(int32_t group) {
  const std::lock_guard lock(mutex_);
  const int32_t kept = targets_.empty() ? 0 : pool_->BlocksFor(*targets_.rbegin())[group];
  for (const BlockRange& retired : cache_->RetiredBlocks(group)) {
    const int32_t begin = std::max(retired.begin, kept);
    if (begin < retired.end) pool_->Discard(group, begin, retired.end);
  }
}

PoolSize PoolResizer::Size() const {
  return {.before = cache_->num_blocks(),
          .limit = cache_->num_blocks(),
          .reserved = cache_->max_blocks(),
          .retiring = cache_->retiring_blocks()};
}

}  // namespace baton
