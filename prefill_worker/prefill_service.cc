#include "prefill_worker/prefill_service.h"

#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/status_macros.h"
#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "rpc/unary_call.h"
#include "worker_rpc/request_conversion.h"
#include "worker_rpc/served_calls.h"
#include "worker_rpc/wire_conversion.h"
#include "worker_rpc/work_trace.h"

namespace baton {
namespace {

class PrefillCall final : public UnaryCall<v1::PrefillResponse>, public ServedPrefill {
 public:
  PrefillCall(v1::PrefillResponse* response, Engine* engine, const WorkTrace& trace)
      : UnaryCall(response), ServedPrefill(engine), trace_(trace) {}

 protected:
  void OnCalledOff() override { CancelRequest(); }

  void EndCall(const absl::StatusOr<PrefillResult>& result) override {
    trace_.PrefillEnded(result, SystemClock().NowUs());
    if (result.ok()) {
      Answer(PrefillResultToWire(*result));
    } else {
      Fail(ToGrpcStatus(result.status()));
    }
  }

 private:
  WorkTrace trace_;
};

absl::StatusOr<PrefillRequest> RequestOf(const v1::PrefillRequest& wire, const Engine& engine) {
  ASSIGN_OR_RETURN(SamplingParams sampling, SamplingFromWire(wire.sampling()));
  RETURN_IF_ERROR(CheckSize(wire, engine.options().context_length));
  return PrefillRequestFromWire(v1::PrefillRequest(wire), std::move(sampling));
}

}  // namespace

grpc::ServerUnaryReactor* PrefillService::Prefill(grpc::CallbackServerContext*,
                                                  const v1::PrefillRequest* wire,
                                                  v1::PrefillResponse* response) {
  const WorkTrace trace(tracer_, wire->trace_parent(), SystemClock().NowUs());
  auto call = std::make_shared<PrefillCall>(response, engine_, trace);
  call->Hold();
  call->Start(
      *limit_, [&] { return RequestOf(*wire, *engine_); }, call);
  return call.get();
}

RoleService PrefillRoleService() {
  return {.name = v1::PrefillWorker::service_full_name(),
          .make = [](Engine* engine, ConcurrencyLimit* limit, const Tracer* tracer) {
            return std::make_unique<PrefillService>(engine, limit, tracer);
          }};
}

}  // namespace baton
