#include "engine/in_process_pair.h"

#include <limits>
#include <mutex>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kvtransfer/loopback/loopback_transport.h"

namespace baton {
// Guarded pointer to the prefill engine. It is cleared before that engine is destroyed, because the
// decode engine may issue a ticket later.
class InProcessPair::PrefillDoor {
 public:
  explicit PrefillDoor(Engine* prefill) : prefill_(prefill) {}

  void Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) {
    const std::lock_guard lock(mutex_);
    if (prefill_ != nullptr) prefill_->Prefill(std::move(request), std::move(sink));
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    prefill_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Engine* prefill_;  // guarded by mutex_
};

class InProcessPair::PrefillSinkOfPair final : public PrefillSink {
 public:
  PrefillSinkOfPair(Engine* decode, const TransferTicket& ticket)
      : decode_(decode), ticket_(ticket) {}

  void OnDone(absl::StatusOr<PrefillResult> result) override {
    if (result.ok()) return;
    // NotFound: the request has ended, or its KV arrived after all.
    decode_->PrefillLocally(ticket_.transfer_id, ticket_.receiver_epoch,
                            [](const absl::Status&) {});
  }

 private:
  Engine* const decode_;
  const TransferTicket ticket_;
};

class InProcessPair::RequestSinkOfPair final : public RequestSink {
 public:
  RequestSinkOfPair(std::shared_ptr<PrefillDoor> door, Engine* decode,
                    const GenerateRequest& request, std::shared_ptr<RequestSink> sink)
      : door_(std::move(door)),
        decode_(decode),
        prefill_request_{.request_id = request.request_id,
                         .prompt = request.prompt,
                         .chunked = request.chunked,
                         .n = request.n,
                         .generated = {},
                         .sampling = request.sampling,
                         .cache_namespace = request.cache_namespace,
                         .cache_owner = request.cache_owner,
                         .priority = request.priority,
                         .ticket = {}},
        sink_(std::move(sink)) {
    if (request.n == 1 && !request.generated.empty()) {
      prefill_request_.generated = request.generated.front();
    }
  }

  void OnTicket(const TransferTicket& ticket) override {
    prefill_request_.ticket = ticket;
    door_->Prefill(std::move(prefill_request_),
                   std::make_shared<PrefillSinkOfPair>(decode_, ticket));
  }
  void OnTokens(TokenOutput output) override { sink_->OnTokens(std::move(output)); }
  void OnFinish(FinishInfo info) override { sink_->OnFinish(std::move(info)); }
  void OnError(absl::Status status) override { sink_->OnError(std::move(status)); }

 private:
  const std::shared_ptr<PrefillDoor> door_;
  Engine* const decode_;
  PrefillRequest prefill_request_;
  const std::shared_ptr<RequestSink> sink_;
};

InProcessPair::InProcessPair() = default;

InProcessPair::~InProcessPair() {
  if (door_ != nullptr) door_->Close();
  prefill_.reset();
}

absl::StatusOr<std::unique_ptr<InProcessPair>> InProcessPair::Create(
    const EngineOptions& options, PairTransport transport, std::optional<KvGeometry> prefill_pool,
    int32_t prefill_ranks) {
  auto pair = std::make_unique<InProcessPair>();
  EngineOptions one = options;
  const std::shared_ptr<LoopbackNetwork> network = CreateLoopbackNetwork();
  const auto join = [&](const char* name) {
    if (transport != PairTransport::kLoopback) return;
    one.open_transport = [network, name](TransportOptions opened) {
      return CreateLoopbackTransport(network, name, std::move(opened));
    };
  };
  join("decode");
  one.transfer_nccl = transport == PairTransport::kNccl;
  if (transport == PairTransport::kTcp || one.transfer_nccl) one.transfer_listen = "127.0.0.1:0";
  if (transport == PairTransport::kShm) one.transfer_shm = true;
  ASSIGN_OR_RETURN(pair->decode_, Engine::Create(one));
  join("prefill");
  if (prefill_pool) {
    const int32_t decode_block_size = pair->decode_->Status().block_size;
    one.layout = prefill_pool->layout;
    one.block_size = prefill_pool->block_size != 0 ? prefill_pool->block_size : decode_block_size;
    RETURN_IF_ERROR(CheckBlockSize("the prefill engine's block_size", one.block_size));
    const int64_t slots = int64_t{options.kv_blocks} * decode_block_size;
    const int64_t blocks = (slots + one.block_size - 1) / one.block_size;
    if (blocks > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          StrCat("the prefill engine's pool of ", blocks, " blocks of ", one.block_size,
                 " tokens exceeds the limit of ", std::numeric_limits<int32_t>::max()));
    }
    one.kv_blocks = static_cast<int32_t>(blocks);
  }
  if (prefill_ranks != 0) one.tensor_parallel = prefill_ranks;
  ASSIGN_OR_RETURN(pair->prefill_, Engine::Create(one));
  pair->door_ = std::make_shared<PrefillDoor>(pair->prefill_.get());
  return pair;
}

RequestHandle InProcessPair::Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) {
  // A repair is computed where the answer is generated.
  const bool repairs =
      request.chunked.has_value() && !request.chunked->options.repair.RepairsNothing();
  if (repairs) return decode_->Generate(std::move(request), std::move(sink));
  request.remote_prefill = true;
  auto pair_sink =
      std::make_shared<RequestSinkOfPair>(door_, decode_.get(), request, std::move(sink));
  return decode_->Generate(std::move(request), std::move(pair_sink));
}

}  // namespace baton
