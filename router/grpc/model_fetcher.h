// Fetches the tokenizer of the fleet's model from a worker. It fetches each model once, and never
// two at a time.
//
// Thread safety: MaybeFetch from any thread. The destructor cancels a fetch and waits for its end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "baton/v1/worker.grpc.pb.h"
#include "router/grpc/worker_channels.h"
#include "router/router_core.h"
#include "rpc/client_unary_call.h"
#include "rpc/task_pool.h"

namespace baton {

class ModelFetcher {
 public:
  // Both must outlive this.
  ModelFetcher(RouterCore* core, WorkerChannels* channels);
  ~ModelFetcher();

  // Starts a fetch if the model is not known; returns at once. After a failure, a later call tries
  // the next worker, after a pause that grows to one second. A new reason for a failure is logged
  // at once, a repeated one every 30 s.
  void MaybeFetch();

 private:
  using Call = ClientUnaryCall<v1::Worker::Stub, v1::GetTokenizerRequest, v1::TokenizerDescription>;

  void OnDescription(const absl::Status& status, v1::TokenizerDescription description);
  void Done(const absl::Status& status);

  RouterCore* const core_;
  WorkerChannels* const channels_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool fetching_ = false;
  bool stopping_ = false;
  uint64_t failures_ = 0;
  int64_t delay_ms_ = 0;  // pause between the latest failure and the next attempt
  std::chrono::steady_clock::time_point not_before_;
  std::string logged_;  // reason that was logged last
  std::chrono::steady_clock::time_point logged_at_;
  std::shared_ptr<Call> call_;
  TaskPool builder_;  // builds tokenizers, which takes too long for a callback
};

}  // namespace baton
