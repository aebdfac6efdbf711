// Fetches the tokenizer of the fleet's model from a worker, once for each model: never two fetches
// at a time.
//
// Thread safety: MaybeFetch from any thread. The destructor cancels a fetch and waits for it.
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

  // Asks a worker if the model is not known. Returns at once. After a failure a call tries the next
  // worker, but not before a while that grows to a second; the log hears of new reasons, and now
  // and then of an old one.
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
  int64_t delay_ms_ = 0;  // between the latest failure and the next attempt
  std::chrono::steady_clock::time_point not_before_;
  std::string logged_;  // reason
  std::chrono::steady_clock::time_point logged_at_;
  std::shared_ptr<Call> call_;
  TaskPool builder_;  // builds tokenizers: too long for a callback
};

}  // namespace baton
