#include "engine/idle_integrity_check.h"

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

void IdleIntegrityCheck::OnIdle() {
  const int64_t now_us = clock_->NowUs();
  if (!worked_ || now_us < next_us_ || failed_.load(std::memory_order_relaxed)) return;
  worked_ = false;
  next_us_ = now_us + kIntervalUs;
  const absl::Status found = check_();
  if (found.ok()) return;
  error_ = absl::UnavailableError(StrCat(
      "this worker's block accounting is broken, so it refuses all work: ", found.message()));
  failed_.store(true, std::memory_order_release);
  LOG(ERROR) << error_.message();
}

}  // namespace baton
