// Connects the calls of a worker's services with engine requests. A call takes a slot of its limit
// and then becomes a request. The call and the request end together, in either order.
//
// Rules:
//  1. A call without a free slot or with an invalid request ends with that error. The engine does
//     not see it.
//  2. A cancelled call cancels its request, even before the engine has returned the handle.
//  3. A decode stream that accepts no more messages cancels its request.
//  4. A decode stream ends after the end of its last choice, or with the request's error.
//
// Pure: derived classes send. The workers' gRPC services and the simulation both use these classes.
//
// Thread safety: any thread may call Start and CancelRequest, but two threads must not call the
// same function at once. The engine calls the other functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_requests.h"
#include "engine/request.h"
#include "rpc/concurrency_limit.h"
#include "worker_rpc/engine_call.h"

namespace baton {

// Limit of concurrent readers of KV events: one per router, plus readers that are gone but not yet
// noticed.
inline constexpr int32_t kMaxKvEventStreams = 64;
// Limit of concurrent pulls to a worker, and of concurrent send calls for pulls of other workers.
inline constexpr int32_t kMaxPulls = 1024;

// Converts and checks a call's request. Runs after the call has its slot.
template <typename Request>
using MakeRequest = absl::FunctionRef<absl::StatusOr<Request>()>;

class ServedDecode : public RequestSink {
 public:
  // `engine` must outlive this.
  explicit ServedDecode(EngineRequests* engine) : engine_(engine), engine_call_(engine) {}

  // `deadline_ms`: time until the call's deadline; 0 if it has none. `limit` must outlive this.
  // REQUIRES: `self` is this.
  void Start(ConcurrencyLimit& limit, MakeRequest<GenerateRequest> make, int64_t deadline_ms,
             std::shared_ptr<RequestSink> self);
  void CancelRequest() { engine_call_.Cancel(); }

  void OnTicket(const TransferTicket& ticket) override;
  void OnTokens(TokenOutput output) override;
  void OnFinish(FinishInfo info) override;
  void OnError(absl::Status status) override { EndCall(status); }

 protected:
  // These three return false if the stream accepts no more messages.
  virtual bool SendTicket(const TransferTicket& ticket) = 0;
  virtual bool SendTokens(TokenOutput output) = 0;
  virtual bool SendFinish(FinishInfo info) = 0;
  // Ends the stream after the messages already sent.
  virtual void EndCall(const absl::Status& status) = 0;

 private:
  EngineRequests* const engine_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

class ServedPrefill : public PrefillSink {
 public:
  // `engine` must outlive this.
  explicit ServedPrefill(EngineRequests* engine) : engine_(engine), engine_call_(engine) {}

  // As ServedDecode::Start.
  void Start(ConcurrencyLimit& limit, MakeRequest<PrefillRequest> make,
             std::shared_ptr<PrefillSink> self);
  void CancelRequest() { engine_call_.Cancel(); }

  void OnDone(absl::StatusOr<PrefillResult> result) override { EndCall(result); }

 protected:
  virtual void EndCall(const absl::StatusOr<PrefillResult>& result) = 0;

 private:
  EngineRequests* const engine_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

class ServedPull : public PullSink {
 public:
  // `engine` must outlive this.
  explicit ServedPull(EngineRequests* engine) : engine_(engine), engine_call_(engine) {}

  // As ServedDecode::Start, but `limit` needs to outlive only the call.
  void Start(ConcurrencyLimit& limit, MakeRequest<PullRequest> make,
             std::shared_ptr<PullSink> self);
  void CancelRequest() { engine_call_.Cancel(); }
  // Called when the call is over. The engine may keep this object for longer.
  void GiveBackPlace() { slot_ = ConcurrencyLimit::Slot(); }

  void OnTicket(const TransferTicket& ticket) override { SendTicket(ticket); }
  void OnDone(absl::StatusOr<PullResult> result) override { EndCall(result); }

 protected:
  virtual void SendTicket(const TransferTicket& ticket) = 0;
  // Sends the result, if there is one, and ends the stream.
  virtual void EndCall(const absl::StatusOr<PullResult>& result) = 0;

 private:
  EngineRequests* const engine_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

// Serves a SendPrefix call. It keeps the slot until the engine has answered. By then the client and
// the service may be gone.
void ServeSendPrefix(EngineRequests& engine, const std::shared_ptr<ConcurrencyLimit>& limit,
                     MakeRequest<SendPrefixRequest> make,
                     std::function<void(absl::StatusOr<int32_t>)> done);

// Returns the answer to a probe. `meant` is the incarnation that the router probes; 0: any.
// FailedPrecondition: that incarnation has ended. Unavailable: the engine hangs.
absl::Status AnswerPing(const EngineRequests& engine, Epoch meant);

}  // namespace baton
