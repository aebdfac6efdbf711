#include "routing/throughput_model.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr double kMeanShare = 1.0 / 64;    // of one request in a running mean
constexpr int64_t kTellingCompletion = 8;  // with fewer tokens, a mean gap tells little

// Moves the mean by at most its own value, so that one giant request changes little.
void MoveMean(double& mean, int64_t value) {
  mean += kMeanShare * (std::min(static_cast<double>(value), 64 * mean) - mean);
}

}  // namespace

void ThroughputModel::Learn(const FinishedRequest& request) {
  const WorkerNumber prefiller = request.prefill.value_or(request.decode);
  ++lessons_;
  LearnPrefill(fleet_, request);
  LearnPrefill(At(prefiller), request);
  LearnHandOff(fleet_, request);
  LearnHandOff(At(request.decode), request);
  LearnDecode(fleet_, request);
  LearnDecode(At(request.decode), request);
  if (request.completion_tokens > 0) MoveMean(completion_tokens_, request.completion_tokens);
  if (request.prefill_us > 0 && request.computed_tokens > 0) {
    MoveMean(prefill_us_, request.prefill_us);
    MoveMean(computed_tokens_, request.computed_tokens);
  }
}

void ThroughputModel::Learn(const FinishedPull& pull) {
  ++lessons_;
  LearnPull(fleet_, pull);
  LearnPull(At(pull.receiver), pull);
}

void ThroughputModel::LearnPull(WorkerThroughput& speeds, const FinishedPull& pull) {
  speeds.ObserveTransfer(pull.kv_bytes, pull.kv_transfer_us);
  speeds.ObservePull(pull.us - static_cast<int64_t>(speeds.TransferUs(pull.kv_bytes)));
}

void ThroughputModel::LearnPrefill(WorkerThroughput& speeds, const FinishedRequest& request) const {
  speeds.ObservePrefill(request.cached_tokens, request.computed_tokens, request.prefill_us);
}

void ThroughputModel::LearnHandOff(WorkerThroughput& speeds, const FinishedRequest& request) const {
  if (!request.prefill) return;
  speeds.ObserveTransfer(request.kv_bytes, request.kv_transfer_us);
  if (request.first_token_us <= 0 || request.prefill_us <= 0) return;
  const int64_t shipping_us = static_cast<int64_t>(speeds.TransferUs(request.kv_bytes));
  speeds.ObserveHandOff(request.first_token_us - request.queue_us - request.prefill_us -
                        shipping_us);
}

void ThroughputModel::LearnDecode(WorkerThroughput& speeds, const FinishedRequest& request) const {
  if (request.completion_tokens < kTellingCompletion) return;
  speeds.ObserveStep(request.decode_batch, request.inter_token_us);
}

void ThroughputModel::Forget(WorkerNumber number) { of_worker_.erase(number); }

const WorkerThroughput& ThroughputModel::Of(WorkerNumber number) const {
  const auto found = of_worker_.find(number);
  return found == of_worker_.end() ? fleet_ : WithPrior(found->second);
}

WorkerThroughput& ThroughputModel::At(WorkerNumber number) {
  Worker& worker = of_worker_[number];
  WithPrior(worker);
  return worker.speeds;
}

const WorkerThroughput& ThroughputModel::WithPrior(Worker& worker) const {
  if (std::exchange(worker.lessons, lessons_) != lessons_) worker.speeds.SetPrior(fleet_);
  return worker.speeds;
}

}  // namespace baton
