// What an engine's state machines count besides the figures of EngineStatus: times of steps, queues
// and transfers, and how requests end. Without a set, nothing is counted.
//
// Thread safety: as MetricSet.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"
#include "kvtransfer/transport.h"
#include "metrics/metric_set.h"

namespace baton {

class EngineMetrics {
 public:
  // `set` must outlive all copies of this; null: nothing is counted.
  explicit EngineMetrics(MetricSet* set = nullptr) : set_(set) {}

  // A request has ended.
  void Ended(WorkKind kind, const absl::Status& status) const {
    if (set_ != nullptr) set_->Add(Metric::kWorkerRequests, 1, kind, LabelOf(status));
  }
  // A request got its first step after `us`.
  void Queued(WorkKind kind, int64_t us) const {
    if (set_ != nullptr) set_->Observe(Metric::kWorkerQueueSeconds, us, kind);
  }
  // A request was cancelled `us` ago, and its blocks have just become free.
  void Cancelled(int64_t us) const {
    if (set_ != nullptr) set_->Observe(Metric::kWorkerCancelSeconds, us);
  }
  // A step has ended that computed these tokens.
  void StepEnded(int64_t us, int64_t prompt_tokens, int64_t decode_tokens) const;
  void Generated(int64_t tokens) const {
    if (set_ != nullptr) set_->Add(Metric::kWorkerOutputTokens, tokens);
  }
  // Tokens of a prompt have arrived from a prefill worker.
  void Transferred(int64_t tokens) const {
    if (set_ != nullptr) {
      set_->Add(Metric::kWorkerPromptTokens, tokens, PromptSource::kTransferred);
    }
  }
  // A sleeping prompt chunk is back in the pool, `us` after a request asked for it.
  void Woke(int64_t us) const {
    if (set_ != nullptr) set_->Observe(Metric::kChunkWakeSeconds, us);
  }
  void PullEnded(const absl::StatusOr<PullResult>& result) const;
  // Ignores events that do not end a transfer.
  void OnTransferEvent(const TransferEvent& event) const;

 private:
  MetricSet* set_;
};

// Passes a pull's answers on, and counts how the pull ends.
class CountedPull final : public PullSink {
 public:
  CountedPull(const EngineMetrics& metrics, std::shared_ptr<PullSink> sink)
      : metrics_(metrics), sink_(std::move(sink)) {}

  void OnTicket(const TransferTicket& ticket) override { sink_->OnTicket(ticket); }
  void OnDone(absl::StatusOr<PullResult> result) override {
    metrics_.PullEnded(result);
    sink_->OnDone(std::move(result));
  }

 private:
  const EngineMetrics metrics_;
  const std::shared_ptr<PullSink> sink_;
};

}  // namespace baton
