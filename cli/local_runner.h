// Runs jobs in this process: on one engine, or on a prefill and a decode engine with a KV transport
// between them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "cli/job_runner.h"
#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "text/prompt_encoder.h"

namespace baton {

enum class LocalPath : uint8_t { kOneEngine, kLoopback, kTcp, kShm, kNccl };

class LocalRunner final : public JobRunner {
 public:
  // `prefill_pool` and `prefill_ranks`: as for InProcessPair.
  static absl::StatusOr<std::unique_ptr<LocalRunner>> Create(
      const EngineOptions& options, LocalPath path,
      std::optional<KvGeometry> prefill_pool = std::nullopt, int32_t prefill_ranks = 0);

  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override;
  absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) override;
  absl::StatusOr<SamplingDefaults> RecommendedSampling() override {
    return engine().model_info().sampling;
  }
  void Interrupt() override;

  // Returns the engine that decodes.
  Engine& engine() { return pair_ != nullptr ? pair_->decode() : *engine_; }

  // Returns the prompt's token ids. Applies the chat template to a job with messages.
  absl::StatusOr<EncodedPrompt> Encode(const Job& job);

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<InProcessPair> pair_;
  std::optional<PromptEncoder> encoder_;
  std::mutex mutex_;
  bool interrupted_ = false;                    // guarded by mutex_
  absl::flat_hash_set<RequestHandle> running_;  // guarded by mutex_
};

}  // namespace baton
