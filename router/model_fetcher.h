// Fetches the tokenizer of the fleet's model from a worker, once for each model: never two fetches
// at a time.
//
// Thread safety: MaybeFetch from any thread. The destructor cancels a fetch and waits for it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "baton/v1/worker.grpc.pb.h"
#include "router/router_core.h"
#include "router/worker_channels.h"
#include "rpc/client_unary_call.h"
#include "rpc/task_pool.h"

namespace baton {

class ModelFetcher {
 public:
  // Both must outlive this.
  ModelFetcher(RouterCore* core, WorkerChannels* channels);
  ~ModelFetcher();

  // Asks a worker if the model is not known. Returns at once; a failure is logged and the next call
  // tries the next worker.
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
  std::shared_ptr<Call> call_;
  TaskPool builder_;  // builds tokenizers: too long for a callback
};

}  // namespace baton
