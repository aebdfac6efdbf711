#include "decode_worker/decode_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/status_macros.h"
#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "rpc/stream_writer.h"
#include "rpc/unary_call.h"
#include "worker_rpc/request_conversion.h"
#include "worker_rpc/served_calls.h"
#include "worker_rpc/wire_conversion.h"
#include "worker_rpc/work_trace.h"

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

class DecodeCall final : public StreamWriter<v1::DecodeEvent>, public ServedDecode {
 public:
  DecodeCall(Engine* engine, size_t max_queued, const WorkTrace& trace)
      : StreamWriter(max_queued), ServedDecode(engine), trace_(trace) {}

 protected:
  void OnCalledOff() override { CancelRequest(); }

  bool SendTicket(const TransferTicket& ticket) override {
    v1::DecodeEvent event;
    *event.mutable_ticket() = TicketToWire(ticket);
    return Send(std::move(event));
  }
  bool SendTokens(TokenOutput output) override {
    trace_.TokensArrived(SystemClock().NowUs());
    v1::DecodeEvent event;
    event.set_logits_hash(output.logits_hash);
    *event.mutable_tokens() = TokensToWire(std::move(output));
    return Send(std::move(event));
  }
  bool SendFinish(FinishInfo info) override {
    trace_.ChoiceFinished(info);
    v1::DecodeEvent event;
    *event.mutable_finished() = FinishedToWire(std::move(info));
    return Send(std::move(event));
  }
  void EndCall(const absl::Status& status) override {
    trace_.DecodeEnded(status, SystemClock().NowUs());
    End(ToGrpcStatus(status));
  }

 private:
  WorkTrace trace_;
};

absl::StatusOr<GenerateRequest> RequestOf(const v1::DecodeRequest& wire, const Engine& engine) {
  ASSIGN_OR_RETURN(SamplingParams sampling, SamplingFromWire(wire.sampling()));
  RETURN_IF_ERROR(CheckSize(wire, engine.options().context_length));
  return GenerateRequestFromWire(v1::DecodeRequest(wire), std::move(sampling));
}

}  // namespace

DecodeService::DecodeService(Engine* engine, ConcurrencyLimit* limit, const Tracer* tracer)
    : engine_(engine), limit_(limit), tracer_(tracer) {}

grpc::ServerWriteReactor<v1::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context, const v1::DecodeRequest* request) {
  const auto tokens = static_cast<size_t>(engine_->model_info().spec.context_length);
  const auto choices = static_cast<size_t>(std::clamp(request->n(), 1, kMaxChoices));
  const size_t messages = kTicket + choices * (tokens + kFinish);
  const WorkTrace trace(tracer_, request->trace_parent(), SystemClock().NowUs());
  auto call = std::make_shared<DecodeCall>(engine_, messages, trace);
  call->Hold();
  call->Start(
      *limit_, [&] { return RequestOf(*request, *engine_); }, MillisecondsLeft(*context), call);
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
          .make = [](Engine* engine, ConcurrencyLimit* limit, const Tracer* tracer) {
            return std::make_unique<DecodeService>(engine, limit, tracer);
          }};
}

}  // namespace baton
