#include "engine/in_process_pair.h"

#include <utility>

#include "common/status_macros.h"

namespace baton {
namespace {

class PairPrefillSink final : public PrefillSink {
 public:
  PairPrefillSink(Engine* decode, TransferTicket ticket)
      : decode_(decode), ticket_(std::move(ticket)) {}

  void OnDone(absl::StatusOr<PrefillResult> result) override {
    if (result.ok()) return;
    // NotFound: the request has ended, or its KV arrived after all.
    decode_->PrefillLocally(ticket_.transfer_id, ticket_.receiver_epoch).IgnoreError();
  }

 private:
  Engine* const decode_;
  const TransferTicket ticket_;
};

class PairRequestSink final : public RequestSink {
 public:
  PairRequestSink(Engine* prefill, Engine* decode, const GenerateRequest& request,
                  std::shared_ptr<RequestSink> sink)
      : prefill_(prefill),
        decode_(decode),
        prefill_request_{.request_id = request.request_id,
                         .prompt = request.prompt,
                         .sampling = request.sampling,
                         .cache_namespace = request.cache_namespace,
                         .priority = request.priority,
                         .ticket = {}},
        sink_(std::move(sink)) {}

  void OnTicket(const TransferTicket& ticket) override {
    prefill_request_.ticket = ticket;
    prefill_->Prefill(std::move(prefill_request_),
                      std::make_shared<PairPrefillSink>(decode_, ticket));
  }
  void OnTokens(TokenOutput output) override { sink_->OnTokens(std::move(output)); }
  void OnFinish(FinishInfo info) override { sink_->OnFinish(std::move(info)); }
  void OnError(absl::Status status) override { sink_->OnError(std::move(status)); }

 private:
  Engine* const prefill_;
  Engine* const decode_;
  PrefillRequest prefill_request_;
  const std::shared_ptr<RequestSink> sink_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InProcessPair>> InProcessPair::Create(const EngineOptions& options,
                                                                     PairTransport transport) {
  auto pair = std::make_unique<InProcessPair>();
  EngineOptions one = options;
  if (transport == PairTransport::kLoopback) {
    one.loopback = CreateLoopbackNetwork();
  } else {
    one.transfer_listen = "127.0.0.1:0";
  }
  one.loopback_name = "decode";
  ASSIGN_OR_RETURN(pair->decode_, Engine::Create(one));
  one.loopback_name = "prefill";
  ASSIGN_OR_RETURN(pair->prefill_, Engine::Create(one));
  return pair;
}

RequestHandle InProcessPair::Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) {
  request.remote_prefill = true;
  auto pair_sink =
      std::make_shared<PairRequestSink>(prefill_.get(), decode_.get(), request, std::move(sink));
  return decode_->Generate(std::move(request), std::move(pair_sink));
}

}  // namespace baton
