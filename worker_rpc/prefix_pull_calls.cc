#include "worker_rpc/prefix_pull_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/status_conversion.h"
#include "rpc/stream_writer.h"
#include "rpc/unary_call.h"
#include "worker_rpc/engine_call.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {
namespace {

constexpr size_t kTicketAndDone = 2;

// Call this before copying a long list.
absl::Status CheckPrefixSize(int64_t tokens, int32_t context_length) {
  if (tokens <= context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a prefix of ", tokens, " tokens exceeds the context of ", context_length));
}

class PullStream final : public StreamWriter<v1::PullPrefixEvent>, public PullSink {
 public:
  explicit PullStream(Engine* engine)
      : StreamWriter(kTicketAndDone), engine_(engine), engine_call_(engine) {}

  // REQUIRES: `self` is this.
  void Start(const v1::PullPrefixRequest& request, absl::StatusOr<ConcurrencyLimit::Slot> slot,
             std::shared_ptr<PullSink> self) {
    if (!slot.ok()) return End(ToGrpcStatus(slot.status()));
    slot_ = *std::move(slot);
    const absl::Status fits =
        CheckPrefixSize(request.token_ids_size(), engine_->options().context_length);
    if (!fits.ok()) return End(ToGrpcStatus(fits));
    engine_call_.Started(engine_->PullPrefix(PullRequestFromWire(request), std::move(self)));
  }

  void OnTicket(const TransferTicket& ticket) override {
    v1::PullPrefixEvent event;
    *event.mutable_ticket()->mutable_ticket() = TicketToWire(ticket);
    Send(std::move(event));
  }
  void OnDone(absl::StatusOr<PullResult> result) override {
    if (!result.ok()) return End(ToGrpcStatus(result.status()));
    v1::PullPrefixEvent event;
    event.mutable_done()->set_tokens(result->tokens);
    event.mutable_done()->set_pulled_tokens(result->pulled_tokens);
    event.mutable_done()->set_kv_bytes(result->kv_bytes);
    event.mutable_done()->set_kv_transfer_us(result->kv_transfer_us);
    Send(std::move(event));
    End(grpc::Status::OK);
  }

 protected:
  void OnCalledOff() override { engine_call_.Cancel(); }
  // The engine may keep this object alive for longer than the limit exists.
  void OnStreamDone() override { slot_ = ConcurrencyLimit::Slot(); }

 private:
  Engine* const engine_;
  ConcurrencyLimit::Slot slot_;
  EngineCall engine_call_;
};

}  // namespace

grpc::ServerWriteReactor<v1::PullPrefixEvent>* StartPull(
    Engine* engine, const v1::PullPrefixRequest& request,
    absl::StatusOr<ConcurrencyLimit::Slot> slot) {
  auto stream = std::make_shared<PullStream>(engine);
  stream->Hold();
  stream->Start(request, std::move(slot), stream);
  return stream.get();
}

grpc::ServerUnaryReactor* StartSend(Engine* engine, const v1::SendPrefixRequest& request,
                                    v1::SendPrefixResponse* response,
                                    const std::shared_ptr<ConcurrencyLimit>& limit) {
  struct Place {
    std::shared_ptr<ConcurrencyLimit> limit;
    ConcurrencyLimit::Slot slot;
  };
  auto call = std::make_shared<UnaryCall<v1::SendPrefixResponse>>(response);
  call->Hold();
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit->Enter();
  absl::Status fits = slot.status();
  if (fits.ok()) {
    fits = CheckPrefixSize(request.token_ids_size(), engine->options().context_length);
  }
  if (!fits.ok()) {
    call->Fail(ToGrpcStatus(fits));
    return call.get();
  }
  // Keeps the slot until the engine has answered. By then the client and this service may be gone.
  const auto place = std::make_shared<Place>(Place{.limit = limit, .slot = *std::move(slot)});
  engine->SendPrefix(SendPrefixRequestFromWire(request),
                     [call, place](const absl::StatusOr<int32_t>& tokens) {
                       if (!tokens.ok()) return call->Fail(ToGrpcStatus(tokens.status()));
                       v1::SendPrefixResponse answer;
                       answer.set_tokens(*tokens);
                       call->Answer(std::move(answer));
                     });
  return call.get();
}

}  // namespace baton
