#include "engine/pool_resizer.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::Status PoolResizer::Prepare(int32_t limit, int32_t blocks) const {
  if (!pool_->resizable() || blocks <= limit || blocks > pool_->max_blocks(0)) {
    return absl::OkStatus();
  }
  return pool_->Populate(pool_->BlocksFor(limit), pool_->BlocksFor(blocks));
}

absl::StatusOr<PoolSize> PoolResizer::Resize(WorkerCore& core, int32_t blocks) {
  const int32_t before = cache_->num_blocks();
  if (!pool_->resizable()) {
    return absl::FailedPreconditionError(
        StrCat("the KV pool has a fixed size of ", before,
               " blocks; start the worker with --kv-cache-max-mib to make it resizable"));
  }
  if (blocks >= 1 && blocks <= cache_->max_blocks()) {  // else core.Resize returns the error
    const BlockCounts counts = pool_->BlocksFor(blocks);
    for (int32_t group = 1; group < cache_->groups(); ++group) {
      RETURN_IF_ERROR(cache_->Resize(counts[group], group));
    }
  }
  RETURN_IF_ERROR(core.Resize(blocks));
  retiring_ = cache_->OfEveryGroup(-1);  // makes GiveBackRetired look at every group
  GiveBackRetired();
  PoolSize size = Size();
  size.before = before;
  LOG(INFO) << "the KV pool has " << size.limit << " blocks now, before: " << before << "; "
            << size.retiring << " are retiring, " << size.reserved << " are reserved";
  return size;
}

void PoolResizer::GiveBackRetired() {
  for (int32_t group = 0; group < cache_->groups(); ++group) {
    const int32_t retiring = cache_->retiring_blocks(group);
    if (std::exchange(retiring_[group], retiring) == retiring) continue;
    for (const BlockRange& retired : cache_->RetiredBlocks(group)) {
      pool_->Discard(group, retired.begin, retired.end);
    }
  }
}

PoolSize PoolResizer::Size() const {
  return {.before = cache_->num_blocks(),
          .limit = cache_->num_blocks(),
          .reserved = cache_->max_blocks(),
          .retiring = cache_->retiring_blocks()};
}

}  // namespace baton
