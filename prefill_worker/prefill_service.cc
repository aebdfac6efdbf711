#include "prefill_worker/prefill_service.h"

#include <memory>
#include <utility>

#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "rpc/unary_call.h"
#include "worker_rpc/engine_call.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {
namespace {

class PrefillCall final : public UnaryCall<v1::PrefillResponse> {
 public:
  PrefillCall(v1::PrefillResponse* response, Engine* engine, ConcurrencyLimit::Slot slot)
      : UnaryCall(response), slot_(std::move(slot)), engine_call_(engine) {}

  EngineCall& engine_call() { return engine_call_; }

 protected:
  void OnCalledOff() override { engine_call_.Cancel(); }

 private:
  const ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

class AnsweringSink final : public PrefillSink {
 public:
  explicit AnsweringSink(std::shared_ptr<PrefillCall> call) : call_(std::move(call)) {}

  void OnDone(absl::StatusOr<PrefillResult> result) override {
    if (result.ok()) {
      call_->Answer(PrefillResultToWire(*result));
    } else {
      call_->Fail(ToGrpcStatus(result.status()));
    }
  }

 private:
  const std::shared_ptr<PrefillCall> call_;
};

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* PrefillService::Prefill(grpc::CallbackServerContext* context,
                                                  const v1::PrefillRequest* wire,
                                                  v1::PrefillResponse* response) {
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) return Refuse(context, slot.status());
  absl::StatusOr<SamplingParams> sampling = SamplingFromWire(wire->sampling());
  if (!sampling.ok()) return Refuse(context, sampling.status());
  const absl::Status fits =
      CheckPromptSize(wire->prompt_token_ids_size(), wire->generated().token_ids_size(),
                      engine_->options().context_length);
  if (!fits.ok()) return Refuse(context, fits);
  PrefillRequest request = PrefillRequestFromWire(v1::PrefillRequest(*wire), *std::move(sampling));

  auto call = std::make_shared<PrefillCall>(response, engine_, *std::move(slot));
  call->Hold();
  call->engine_call().Started(
      engine_->Prefill(std::move(request), std::make_shared<AnsweringSink>(call)));
  return call.get();
}

RoleService PrefillRoleService() {
  return {.name = v1::PrefillWorker::service_full_name(),
          .make = [](Engine* engine, ConcurrencyLimit* limit) {
            return std::make_unique<PrefillService>(engine, limit);
          }};
}

}  // namespace baton
