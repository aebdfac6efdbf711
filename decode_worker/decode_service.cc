#include "decode_worker/decode_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "rpc/stream_writer.h"
#include "rpc/unary_call.h"
#include "worker_rpc/engine_call.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {
namespace {

constexpr size_t kTicket = 1;
constexpr size_t kFinish = 1;

// Milliseconds until the call's deadline, at least 1; 0 if it has none.
int64_t MillisecondsLeft(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return 0;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::system_clock::now());
  constexpr int64_t kLongestMs = int64_t{1} << 40;  // gRPC's "infinite future" may be a little less
  if (left.count() >= kLongestMs) return 0;
  return std::max<int64_t>(1, left.count());
}

int64_t SoonerTimeoutMs(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0) return std::max(a, b);
  return std::min(a, b);
}

class DecodeCall final : public StreamWriter<v1::DecodeEvent>, public RequestSink {
 public:
  DecodeCall(Engine* engine, ConcurrencyLimit* limit, size_t max_queued)
      : StreamWriter(max_queued), engine_(engine), limit_(limit), engine_call_(engine) {}

  // REQUIRES: `self` is this.
  void Start(const v1::DecodeRequest& wire, int64_t deadline_ms,
             std::shared_ptr<RequestSink> self) {
    absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
    if (!slot.ok()) return End(ToGrpcStatus(slot.status()));
    slot_ = *std::move(slot);
    absl::StatusOr<SamplingParams> sampling = SamplingFromWire(wire.sampling());
    if (!sampling.ok()) return End(ToGrpcStatus(sampling.status()));
    const absl::Status fits = CheckSize(wire, engine_->options().context_length);
    if (!fits.ok()) return End(ToGrpcStatus(fits));
    GenerateRequest request =
        GenerateRequestFromWire(v1::DecodeRequest(wire), *std::move(sampling));
    request.timeout_ms = SoonerTimeoutMs(request.timeout_ms, deadline_ms);
    engine_call_.Started(engine_->Generate(std::move(request), std::move(self)));
  }

  void OnTicket(const TransferTicket& ticket) override {
    v1::DecodeEvent event;
    *event.mutable_ticket() = TicketToWire(ticket);
    SendOrCancel(std::move(event));
  }
  void OnTokens(TokenOutput output) override {
    v1::DecodeEvent event;
    event.set_logits_hash(output.logits_hash);
    *event.mutable_tokens() = TokensToWire(std::move(output));
    SendOrCancel(std::move(event));
  }
  void OnFinish(FinishInfo info) override {
    const bool last = info.last;
    v1::DecodeEvent event;
    *event.mutable_finished() = FinishedToWire(std::move(info));
    if (!last) return SendOrCancel(std::move(event));
    Send(std::move(event));
    End(grpc::Status::OK);
  }
  void OnError(absl::Status status) override { End(ToGrpcStatus(status)); }

 protected:
  void OnCalledOff() override { engine_call_.Cancel(); }

 private:
  void SendOrCancel(v1::DecodeEvent event) {
    if (!Send(std::move(event))) engine_call_.Cancel();
  }

  Engine* const engine_;
  ConcurrencyLimit* const limit_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

}  // namespace

DecodeService::DecodeService(Engine* engine, ConcurrencyLimit* limit)
    : engine_(engine), limit_(limit) {}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context, const v1::DecodeRequest* request) {
  const auto tokens = static_cast<size_t>(engine_->model_info().spec.context_length);
  const auto choices = static_cast<size_t>(std::clamp(request->n(), 1, kMaxChoices));
  const size_t messages = kTicket + choices * (tokens + kFinish);
  auto call = std::make_shared<DecodeCall>(engine_, limit_, messages);
  call->Hold();
  call->Start(*request, MillisecondsLeft(*context), call);
  return call.get();
}

grpc::ServerUnaryReactor* DecodeService::PrefillLocally(grpc::CallbackServerContext*,
                                                        const v1::PrefillLocallyRequest* request,
                                                        v1::PrefillLocallyResponse* response) {
  auto call = std::make_shared<UnaryCall<v1::PrefillLocallyResponse>>(response);
  call->Hold();
  engine_->PrefillLocally(request->transfer_id(), Epoch(request->receiver_epoch()),
                          [call](const absl::Status& status) {
                            if (status.ok()) {
                              call->Answer({});
                            } else {
                              call->Fail(ToGrpcStatus(status));
                            }
                          });
  return call.get();
}

RoleService DecodeRoleService() {
  return {.name = v1::DecodeWorker::service_full_name(),
          .make = [](Engine* engine, ConcurrencyLimit* limit) {
            return std::make_unique<DecodeService>(engine, limit);
          }};
}

}  // namespace baton
