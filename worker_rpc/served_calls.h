// What a worker does with the calls of its services: a call takes a place, becomes a request to the
// engine, and both end together, in whichever order their ends come.
//
// Rules:
//  1. A call that finds no place, or whose request is wrong, ends with that error. The engine does
//     not see it.
//  2. A call that is called off cancels its request, also before the engine has named it.
//  3. A decode stream that takes no more messages cancels its request.
//  4. A decode stream ends behind the end of its last choice, or with the request's error.
//
// Pure: derived classes send. The workers' gRPC services and the simulation both run this.
//
// Thread safety: Start and CancelRequest from any thread, once each at a time; the rest is called
// by the engine.
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

// Readers of KV events at a time: one for each router, and those whose end was not noticed yet.
inline constexpr int32_t kMaxKvEventStreams = 64;
// Pulls that a worker is asked for at a time, and prefixes to send for other workers' pulls.
inline constexpr int32_t kMaxPulls = 1024;

// Converts and checks a call's request; called when the call has its place.
template <typename Request>
using MakeRequest = absl::FunctionRef<absl::StatusOr<Request>()>;

class ServedDecode : public RequestSink {
 public:
  // `engine` must outlive this.
  explicit ServedDecode(EngineRequests* engine) : engine_(engine), engine_call_(engine) {}

  // `deadline_ms`: until the call's deadline; 0: it has none. `limit` must outlive this. REQUIRES:
  // `self` is this.
  void Start(ConcurrencyLimit& limit, MakeRequest<GenerateRequest> make, int64_t deadline_ms,
             std::shared_ptr<RequestSink> self);
  void CancelRequest() { engine_call_.Cancel(); }

  void OnTicket(const TransferTicket& ticket) override;
  void OnTokens(TokenOutput output) override;
  void OnFinish(FinishInfo info) override;
  void OnError(absl::Status status) override { EndCall(status); }

 protected:
  // False: the stream takes no more.
  virtual bool SendTicket(const TransferTicket& ticket) = 0;
  virtual bool SendTokens(TokenOutput output) = 0;
  virtual bool SendFinish(FinishInfo info) = 0;
  // Ends the stream behind what was sent.
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

  // As ServedDecode::Start, but the limit must outlive the call alone.
  void Start(ConcurrencyLimit& limit, MakeRequest<PullRequest> make,
             std::shared_ptr<PullSink> self);
  void CancelRequest() { engine_call_.Cancel(); }
  // The call is over. The engine may keep this for longer.
  void GiveBackPlace() { slot_ = ConcurrencyLimit::Slot(); }

  void OnTicket(const TransferTicket& ticket) override { SendTicket(ticket); }
  void OnDone(absl::StatusOr<PullResult> result) override { EndCall(result); }

 protected:
  virtual void SendTicket(const TransferTicket& ticket) = 0;
  // Tells the result, if there is one, and ends the stream.
  virtual void EndCall(const absl::StatusOr<PullResult>& result) = 0;

 private:
  EngineRequests* const engine_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

// A SendPrefix call. It has its place until the engine has answered, which may be after the client,
// and the service, have gone.
void ServeSendPrefix(EngineRequests& engine, const std::shared_ptr<ConcurrencyLimit>& limit,
                     MakeRequest<SendPrefixRequest> make,
                     std::function<void(absl::StatusOr<int32_t>)> done);

// The answer to a probe. `meant`: the incarnation that the router probes; 0: any.
// FailedPrecondition: it has ended. Unavailable: the engine hangs.
absl::Status AnswerPing(const EngineRequests& engine, Epoch meant);

}  // namespace baton
