// Client of a router: runs jobs and reads its status.
//
// Thread safety: every function, from any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.grpc.pb.h"
#include "cli/connection_client.h"
#include "cli/job_runner.h"
#include "common/sampling_defaults.h"

namespace baton {

struct RouterClientOptions {
  std::string router;      // HOST:PORT
  int64_t timeout_ms = 0;  // for each request; 0: none
  v1::PrefillPlacement placement = v1::PREFILL_PLACEMENT_UNSPECIFIED;
  ClientConnection connection = {};
};

class RouterClient final : public JobRunner {
 public:
  explicit RouterClient(const RouterClientOptions& options);

  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override;
  absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) override;
  // Returns no recommendation from a router of an older version.
  absl::StatusOr<SamplingDefaults> RecommendedSampling() override;
  // Ends all running jobs. Until Resume, later jobs end at once as Cancelled.
  void Interrupt() override;
  void Resume();
  // Returns true if there is a connection. If there is none, tries to connect for at most
  // `timeout_ms`; an interrupt ends the attempt.
  bool Connect(int64_t timeout_ms);
  // Makes later calls use a new connection. It does not wait for the old connection's retry.
  void Reconnect();

  absl::StatusOr<v1::GetStatusResponse> GetStatus(int64_t timeout_ms);

 private:
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<v1::Inference::Stub> stub;
  };
  Connection NewConnection() const;
  // Returns the newest connection. Running calls keep theirs.
  Connection Newest();
  // Returns the newest connection. Replaces it first if it failed to connect.
  Connection Usable();

  const RouterClientOptions options_;
  std::mutex mutex_;
  Connection connection_;                              // guarded by mutex_
  bool interrupted_ = false;                           // guarded by mutex_
  absl::flat_hash_set<grpc::ClientContext*> running_;  // guarded by mutex_
};

}  // namespace baton
