// A Baton router as the target of a load test, over gRPC. Calls are asynchronous: gRPC's own few
// threads serve all streams.
//
// Thread safety: as LoadTarget.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/inference.grpc.pb.h"
#include "cli/connection_client.h"
#include "loadtest/load_target.h"

namespace baton {

struct GrpcTargetOptions {
  std::string address;      // HOST:PORT
  int64_t timeout_ms = 0;   // of each request; 0: none
  int32_t connections = 1;  // requests take turns on them
  bool as_text = false;     // prompts as words instead of token ids
  bool ignore_eos = true;
  ClientConnection connection = {};
};

class GrpcTarget final : public LoadTarget {
 public:
  explicit GrpcTarget(const GrpcTargetOptions& options);
  // Waits until the last call has ended.
  ~GrpcTarget() override;

  absl::StatusOr<TargetModel> Describe(int64_t timeout_ms) override;
  void Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) override;
  void CancelAll() override;

 private:
  class Call;

  void Forget(Call* call);

  const GrpcTargetOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;  // one on each channel
  size_t next_stub_ = 0;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  absl::flat_hash_map<Call*, std::shared_ptr<Call>> calls_;  // running; guarded by mutex_
};

}  // namespace baton
