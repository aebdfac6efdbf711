#include "worker_rpc/prefix_pull_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "rpc/status_conversion.h"
#include "rpc/stream_writer.h"
#include "rpc/unary_call.h"
#include "worker_rpc/request_conversion.h"
#include "worker_rpc/served_calls.h"

namespace baton {
namespace {

constexpr size_t kTicketAndDone = 2;

// Call this before copying a long list.
absl::Status CheckPrefixSize(int64_t tokens, int32_t context_length) {
  if (tokens <= context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a prefix of ", tokens, " tokens exceeds the context of ", context_length));
}

class PullStream final : public StreamWriter<v1::PullPrefixEvent>, public ServedPull {
 public:
  explicit PullStream(Engine* engine) : StreamWriter(kTicketAndDone), ServedPull(engine) {}

 protected:
  void OnCalledOff() override { CancelRequest(); }
  void OnStreamDone() override { GiveBackPlace(); }

  void SendTicket(const TransferTicket& ticket) override {
    v1::PullPrefixEvent event;
    *event.mutable_ticket()->mutable_ticket() = TicketToWire(ticket);
    Send(std::move(event));
  }
  void EndCall(const absl::StatusOr<PullResult>& result) override {
    if (!result.ok()) return End(ToGrpcStatus(result.status()));
    v1::PullPrefixEvent event;
    event.mutable_done()->set_tokens(result->tokens);
    event.mutable_done()->set_pulled_tokens(result->pulled_tokens);
    event.mutable_done()->set_kv_bytes(result->kv_bytes);
    event.mutable_done()->set_kv_transfer_us(result->kv_transfer_us);
    Send(std::move(event));
    End(grpc::Status::OK);
  }
};

}  // namespace

grpc::ServerWriteReactor<v1::PullPrefixEvent>* StartPull(Engine* engine,
                                                         const v1::PullPrefixRequest& request,
                                                         ConcurrencyLimit& limit) {
  auto stream = std::make_shared<PullStream>(engine);
  stream->Hold();
  stream->Start(
      limit,
      [&]() -> absl::StatusOr<PullRequest> {
        RETURN_IF_ERROR(
            CheckPrefixSize(request.token_ids_size(), engine->options().context_length));
        return PullRequestFromWire(request);
      },
      stream);
  return stream.get();
}

grpc::ServerUnaryReactor* StartSend(Engine* engine, const v1::SendPrefixRequest& request,
                                    v1::SendPrefixResponse* response,
                                    const std::shared_ptr<ConcurrencyLimit>& limit) {
  auto call = std::make_shared<UnaryCall<v1::SendPrefixResponse>>(response);
  call->Hold();
  ServeSendPrefix(
      *engine, limit,
      [&]() -> absl::StatusOr<SendPrefixRequest> {
        RETURN_IF_ERROR(
            CheckPrefixSize(request.token_ids_size(), engine->options().context_length));
        return SendPrefixRequestFromWire(request);
      },
      [call](const absl::StatusOr<int32_t>& tokens) {
        if (!tokens.ok()) return call->Fail(ToGrpcStatus(tokens.status()));
        v1::SendPrefixResponse answer;
        answer.set_tokens(*tokens);
        call->Answer(std::move(answer));
      });
  return call.get();
}

}  // namespace baton
