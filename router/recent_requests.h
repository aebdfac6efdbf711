// The requests that ended last, for the status page: what each part of them took, and the hashes of
// their prompts. No text.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/cache_key.h"
#include "metrics/metric_labels.h"

namespace baton {

struct RecentRequest {
  static constexpr size_t kMostHashes = 256;  // of a prompt: its first 4,096 tokens

  std::string id;
  Endpoint endpoint = Endpoint::kGenerate;
  absl::StatusCode code = absl::StatusCode::kOk;
  int64_t ended_us = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  std::string prefill_worker;  // empty: the decode worker computed the prompt
  std::string decode_worker;
  // Parts of the time, one after the other, as the ledger has them. The rest of first_token_us is
  // the network's.
  int64_t tokenize_us = 0;
  int64_t route_us = 0;
  int64_t pull_us = 0;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t transfer_us = 0;  // exposed: after the prompt was computed
  int64_t admit_us = 0;
  int64_t first_token_us = 0;  // since the arrival; 0: there was no token
  int64_t total_us = 0;
  std::vector<Hash128> prompt_hashes = {};
};

class RecentRequests {
 public:
  static constexpr size_t kMost = 64;

  void Add(RecentRequest request);
  // The newest first.
  std::vector<RecentRequest> All() const;

  // Returns the hashes to keep of a prompt.
  static std::vector<Hash128> Kept(std::span<const Hash128> hashes);

 private:
  mutable std::mutex mutex_;
  std::deque<RecentRequest> requests_;  // the newest first; guarded by mutex_
};

}  // namespace baton
