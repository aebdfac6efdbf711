// One Generate call at the router: the wires of its GenerateSession. The prompt is tokenised on a
// text thread before the session starts. Events come from the client's stream (client_stream.h),
// the decode worker's stream, the prefill worker's answer and an alarm; each is fed to the session
// under one lock, and what follows is carried out at once.
//
// What waits for a slow client is bounded: a decode worker sends at most one message a token of a
// choice, and max_tokens and the context bound those.
//
// Lock order: this call's lock, then RouterCore's or the client stream's. No gRPC function called
// here runs a callback on the spot.
//
// Thread safety: called by gRPC from any thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/clock.h"
#include "router/fleet_log.h"
#include "router/generate_session.h"
#include "router/grpc/client_stream.h"
#include "router/grpc/decode_stream.h"
#include "router/grpc/pull_call.h"
#include "router/grpc/request_ledger.h"
#include "router/grpc/text_tasks.h"
#include "router/grpc/worker_channels.h"
#include "rpc/call_deadline.h"
#include "rpc/client_unary_call.h"
#include "rpc/concurrency_limit.h"

namespace baton {

// What every call needs; all of it outlives every call (the limit tells when the last one is gone).
struct GenerateHost {
  const RouterOptions* options;
  RouterCore* core;
  WorkerChannels* channels;
  FailureDetector* failure_detector;
  TextTasks* text_tasks;
  const Clock* clock;
  FleetLog* log;
};

class GenerateCall final : public ClientListener,
                           public DecodeListener,
                           public SilenceListener,
                           private GenerateCalls,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(const GenerateHost& host, ConcurrencyLimit::Slot slot,
               std::shared_ptr<ClientStream> client, const CallDeadline& deadline,
               int32_t priority);
  ~GenerateCall() override;

  // Checks what is cheap to check and hands the rest to `text_tasks`; or ends the call with what is
  // wrong. `request` may go when this returns. REQUIRES: owned by a shared_ptr.
  void Start(const v1::GenerateRequest& request);

  // Also instead of Start.
  void CallOff(absl::Status status) override;
  void OnClientGone() override;

  void OnDecodeEvent(int32_t attempt, v1::DecodeEvent event) override;
  void OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) override;
  // Breaks off the calls there, as if the worker had ended them.
  void OnWorkerSilent(WorkerNumber worker) override;

 private:
  using PrefillCall =
      ClientUnaryCall<v1::PrefillWorker::Stub, v1::PrefillRequest, v1::PrefillResponse>;

  void OnPullEnd(int32_t attempt, int64_t began_us, const PullOutcome& outcome);
  void OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status,
                    const v1::PrefillResponse& response);
  void OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker, absl::Status status);
  void OnReportOverdue();
  // What the decode worker of this attempt ended with, and which one it is. REQUIRES state_mutex_.
  absl::Status FromWorker(const absl::Status& status) const;

  struct Prepared {
    GenerateSession::Request request;
    v1::SamplingParams sampling;
    int64_t tokenized_us = 0;
  };

  // Tokenises and starts the session; or ends the call with what is wrong.
  void PrepareAndRun(const v1::GenerateRequest& request);
  // Without the lock: other threads may end the call meanwhile.
  absl::StatusOr<Prepared> Prepare(const v1::GenerateRequest& request) const;

  // All below: REQUIRES state_mutex_.
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
  void SendEnds() override;  // with their ledgers
  void End(const absl::Status& status) override;
  // What decode and prefill worker are told alike.
  template <typename WorkerRequest>
  void Describe(WorkerRequest& request) const;

  const ConcurrencyLimit::Slot slot_;  // first, so that it is given back last
  const GenerateHost host_;
  const std::shared_ptr<ClientStream> client_;
  const CallDeadline deadline_;  // the client's
  const int32_t priority_;

  std::mutex state_mutex_;
  GenerateSession session_;
  RequestLedgerBuilder ledger_;
  std::string request_id_;
  v1::SamplingParams sampling_;
  bool return_prompt_ = false;
  v1::DecodeEvent event_;  // the one being handled
  v1::TransferTicket ticket_;
  std::vector<v1::Finished> ends_;  // of choices, to be sent
  v1::Finished last_end_;           // as it was sent
  std::shared_ptr<PullCall> pull_;
  std::shared_ptr<DecodeStream> decode_;
  std::shared_ptr<PrefillCall> prefill_;
  std::unique_ptr<grpc::Alarm> report_alarm_;
};

}  // namespace baton
