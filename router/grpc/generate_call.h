// One Generate call at the router: the I/O of its GenerateSession. A text thread tokenises the
// prompt before the session starts. Events come from the client's stream (client_stream.h), the
// decode worker's stream, the prefill worker's answer and an alarm. Each event goes to the session
// under one lock, and the resulting actions are carried out at once.
//
// The queue for a slow client is bounded. A decode worker sends at most one message per token of a
// choice. max_tokens and the context bound the tokens.
//
// Lock order: this call's lock, then RouterCore's, the tenant gate's or the client stream's. No
// gRPC function called here runs a callback before it returns.
//
// Thread safety: gRPC calls it from any thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/clock.h"
#include "requests/client_request.h"
#include "router/fleet_log.h"
#include "router/generate_session.h"
#include "router/grpc/client_stream.h"
#include "router/grpc/decode_stream.h"
#include "router/grpc/pull_call.h"
#include "router/grpc/request_ledger.h"
#include "router/grpc/text_tasks.h"
#include "router/grpc/worker_channels.h"
#include "router/recent_requests.h"
#include "router/request_log.h"
#include "router/request_meter.h"
#include "router/request_trace.h"
#include "router/tenant_gate.h"
#include "rpc/call_deadline.h"
#include "rpc/client_unary_call.h"
#include "rpc/concurrency_limit.h"
#include "security/api_keys.h"

namespace baton {

// What all calls share. It outlives every call; the ConcurrencyLimit tells when the last call is
// gone.
struct GenerateHost {
  const RouterOptions* options;
  RouterCore* core;
  WorkerChannels* channels;
  FailureDetector* failure_detector;
  TextTasks* text_tasks;
  const Clock* clock;
  FleetLog* log;
  RequestLog* request_log = nullptr;  // null: requests are not logged
  MetricSet* metrics = nullptr;       // null: nothing is counted
  const ApiKeys* api_keys = nullptr;  // null: clients need no key
  TenantGate* tenants = nullptr;      // null: tenants have no limits
  const Tracer* tracer = nullptr;     // null: no spans are recorded
  RecentRequests* recent = nullptr;   // null: ended requests are not kept

  // Counts and logs a request that is refused before it has a call.
  void Refused(Endpoint endpoint, std::string_view id, const absl::Status& status,
               Refusal reason) const;
};

class GenerateCall final : public ClientListener,
                           public DecodeListener,
                           public SilenceListener,
                           private GenerateCalls,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // `visit` has the tenant's limits; null: it has none. `priority` is the visit's.
  GenerateCall(const GenerateHost& host, ConcurrencyLimit::Slot slot,
               std::shared_ptr<ClientStream> client, const CallDeadline& deadline, int32_t priority,
               Endpoint endpoint = Endpoint::kGenerate,
               std::unique_ptr<TenantVisit> visit = nullptr);
  ~GenerateCall() override;

  // Sets the id for log lines. Only a call that may end before Start needs it.
  void SetRequestId(std::string_view id);
  // Makes the cheap checks and posts the rest to `text_tasks`, or ends the call with an error.
  // REQUIRES: a shared_ptr owns this.
  void Start(ClientRequest request, Placement placement = Placement::kAutomatic);
  // The same, for a client that sends protobuf.
  void Start(const v1::GenerateRequest& wire);

  // May also be called instead of Start.
  void CallOff(absl::Status status) override;
  void OnClientGone() override;

  void OnDecodeEvent(int32_t attempt, v1::DecodeEvent event) override;
  void OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) override;
  // Cancels the calls to this worker, as if the worker had ended them.
  void OnWorkerSilent(WorkerNumber worker) override;

 private:
  using PrefillCall =
      ClientUnaryCall<v1::PrefillWorker::Stub, v1::PrefillRequest, v1::PrefillResponse>;

  void OnPullEnd(int32_t attempt, int64_t began_us, const PullOutcome& outcome);
  void OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status,
                    const v1::PrefillResponse& response);
  void OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker, absl::Status status);
  void OnReportOverdue();
  // Returns the decode worker's error with the worker's name added. REQUIRES: state_mutex_.
  absl::Status FromWorker(const absl::Status& status) const;

  struct Prepared {
    GenerateSession::Request request;
    v1::SamplingParams sampling;
    int64_t tokenized_us = 0;
    std::string model;  // its name
  };

  // Tokenises and starts the session, or ends the call with an error.
  void PrepareAndRun(const ClientRequest& request, Placement placement);
  // Runs without the lock: other threads may end the call meanwhile.
  absl::StatusOr<Prepared> Prepare(const ClientRequest& request, Placement placement) const;
  RequestLimits Limits() const;  // of the model, if it is known
  // It is the request's turn.
  void StartSession();
  void SetParts(ChunkedPrompt prompt, std::string_view session,
                GenerateSession::Request& prepared) const;

  // All functions below: REQUIRES state_mutex_.
  void OnRouted(Route& route) override;
  void StartPull(int32_t attempt) override;
  void OpenDecode(const FlowAction& action) override;
  void SendPrefill(const FlowAction& action) override;
  void PrefillLocally(const FlowAction& action) override;
  void CancelPull() override { pull_->Cancel(); }
  void CancelDecode() override { decode_->Cancel(); }
  void CancelPrefill() override { prefill_->Cancel(); }
  void AwaitReport() override;
  void SendStarted() override;
  bool SendTokens() override;
  void KeepEnd() override;
  void SendEnds() override;  // adds their ledgers
  void End(const absl::Status& status) override;
  // Returns true if the session may start now. Otherwise StartSession follows, or it has ended.
  bool MayStart();
  int64_t AnswerTokens() const;
  void CountEnd(const absl::Status& status);
  RecentRequest Ended(const absl::Status& status, int64_t now_us) const;
  // Fills the fields that decode and prefill workers have in common.
  template <typename WorkerRequest>
  void Describe(WorkerRequest& request) const;
  // Names the owner of what the request caches, if its tenant has a kv_share.
  template <typename WorkerRequest>
  void SetCacheOwner(WorkerRequest& request) const {
    if (visit_ == nullptr || !visit_->cache_owner().has_value()) return;
    request.mutable_cache_owner()->set_id(visit_->cache_owner()->id);
    request.mutable_cache_owner()->set_share(visit_->cache_owner()->share);
  }

  const ConcurrencyLimit::Slot slot_;  // first member, so that it is released last
  const GenerateHost host_;
  const std::shared_ptr<ClientStream> client_;
  const CallDeadline deadline_;  // the client's
  const int32_t priority_;
  const std::unique_ptr<TenantVisit> visit_;  // null: the tenant has no limits

  std::mutex state_mutex_;
  GenerateSession session_;
  RequestLedgerBuilder ledger_;
  RequestMeter meter_;
  GenerateSession::Request waiting_request_;  // while it waits for its turn
  std::unique_ptr<RequestTrace> trace_;       // null: nothing is traced
  std::string request_id_;
  v1::SamplingParams sampling_;
  bool return_prompt_ = false;
  v1::DecodeEvent event_;  // the event being handled
  v1::TransferTicket ticket_;
  std::vector<v1::Finished> ends_;  // ends of choices that are not sent yet
  v1::Finished last_end_;           // the last end that was sent
  std::shared_ptr<PullCall> pull_;
  std::shared_ptr<DecodeStream> decode_;
  std::shared_ptr<PrefillCall> prefill_;
  std::unique_ptr<grpc::Alarm> report_alarm_;
};

}  // namespace baton
