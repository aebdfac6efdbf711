#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>

#include "routing/heartbeat_report.h"
#include "rpc/rpc_server_options.h"
#include "worker_rpc/served_calls.h"

namespace baton {
namespace {

constexpr int64_t kDrainPollUs = 5'000;

}  // namespace

// State that the sinks of one incarnation share: a call's stream and access to the history. After
// the process has died, the sinks send and record nothing.
struct SimWorker::Reply {
  SimNode* node;
  uint64_t request;  // in the history
  std::shared_ptr<SimCall> call;
  std::shared_ptr<bool> alive;

  void Note(const char* what, int64_t a, int64_t b, std::string detail = {}) const {
    if (*alive) node->Note(request, what, a, b, std::move(detail));
  }
  bool Send(MessageKind kind, std::function<void()> deliver) const {
    if (*alive) call->Send(kind, std::move(deliver));
    return true;  // unread messages wait in the simulated network
  }
  void Finish(const absl::Status& status) const {
    if (*alive) call->Finish(status);
  }
};

class SimWorker::DecodeSink final : public ServedDecode {
 public:
  DecodeSink(SimEngine* engine, Reply reply, std::function<void(SimDecodeEvent)> on_event)
      : ServedDecode(engine), reply_(std::move(reply)), on_event_(std::move(on_event)) {}

  void OnError(absl::Status status) override {
    reply_.Note("failed", 0, 0, status.ToString());
    ServedDecode::OnError(std::move(status));
  }

 protected:
  bool SendTicket(const TransferTicket& ticket) override {
    reply_.Note("gives a ticket from block %d on, for %d blocks", ticket.first_block,
                ticket.block_count);
    return Send(MessageKind::kTicket, ticket);
  }
  bool SendTokens(TokenOutput output) override {
    return Send(MessageKind::kCall, std::move(output));
  }
  bool SendFinish(FinishInfo info) override {
    reply_.Note("finished, %d tokens, %d cached", info.completion_tokens,
                info.ledger.cached_tokens);
    return Send(MessageKind::kCall, std::move(info));
  }
  void EndCall(const absl::Status& status) override { reply_.Finish(status); }

 private:
  bool Send(MessageKind kind, SimDecodeEvent event) {
    return reply_.Send(kind, [on_event = on_event_, event = std::move(event)] { on_event(event); });
  }

  const Reply reply_;
  const std::function<void(SimDecodeEvent)> on_event_;
};

class SimWorker::AnsweringSink final : public ServedPrefill {
 public:
  AnsweringSink(SimEngine* engine, Reply reply) : ServedPrefill(engine), reply_(std::move(reply)) {}

  void OnDone(absl::StatusOr<PrefillResult> result) override {
    reply_.Note("prefill done", 0, 0, result.status().ToString());
    ServedPrefill::OnDone(std::move(result));
  }

 protected:
  void EndCall(const absl::StatusOr<PrefillResult>& result) override {
    reply_.Finish(result.status());
  }

 private:
  const Reply reply_;
};

class SimWorker::PullingSink final : public ServedPull {
 public:
  // `pulled_tokens` must outlive this.
  PullingSink(SimEngine* engine, Reply reply, std::function<void(TransferTicket)> on_ticket,
              int64_t* pulled_tokens)
      : ServedPull(engine),
        reply_(std::move(reply)),
        on_ticket_(std::move(on_ticket)),
        pulled_tokens_(pulled_tokens) {}

 protected:
  void SendTicket(const TransferTicket& ticket) override {
    reply_.Note("pulls from block %d on, %d blocks", ticket.first_block, ticket.block_count);
    reply_.Send(MessageKind::kCall, [on_ticket = on_ticket_, ticket] { on_ticket(ticket); });
  }
  void EndCall(const absl::StatusOr<PullResult>& result) override {
    reply_.Note("pull done, %d tokens, %d pulled", result.ok() ? result->tokens : 0,
                result.ok() ? result->pulled_tokens : 0, result.status().ToString());
    if (result.ok()) *pulled_tokens_ += result->pulled_tokens;
    reply_.Finish(result.status());
  }

 private:
  const Reply reply_;
  const std::function<void(TransferTicket)> on_ticket_;
  int64_t* const pulled_tokens_;
};

SimWorker::SimWorker(Options options, Environment environment)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      epochs_(environment_.seed, "epochs of " + options_.id),
      role_(options_.role) {}

SimWorker::~SimWorker() {
  if (engine_ != nullptr) Kill();
}

// ---- life ---------------------------------------------------------------------------------------

void SimWorker::Start() {
  if (node().up()) return;
  node().Start();
  draining_ = false;
  role_ = options_.role;
  registration_ = Registration();
  epoch_ = Epoch(epochs_.Bits() | 1);
  alive_ = std::make_shared<bool>(true);
  limit_ = std::make_unique<ConcurrencyLimit>(options_.max_active_requests);
  pulls_ = std::make_unique<ConcurrencyLimit>(kMaxPulls);
  sends_ = std::make_shared<ConcurrencyLimit>(kMaxPulls);
  event_readers_ = std::make_unique<ConcurrencyLimit>(kMaxKvEventStreams);
  engine_ = std::make_unique<SimEngine>(
      options_.engine,
      SimEngine::Environment{.node = environment_.node,
                             .streams = environment_.streams,
                             .mutant = environment_.mutant,
                             .seed = epochs_.Bits(),
                             .after_event = [this] { environment_.check(*this); }},
      epoch_, "tcp:" + options_.id + ":9000");
  node().Note(0, "started");
  Beat();
}

void SimWorker::Kill() {
  if (!node().up()) return;
  node().Note(0, "killed");
  EndProcess();
}

void SimWorker::EndProcess() {
  *alive_ = false;
  environment_.network->NodeDied(node().id());
  environment_.streams->NodeDied(node().id());
  node().Die();
  kv_event_streams_.clear();
  if (environment_.mutant != Mutant::kNone) return LeaveBehind();
  engine_->Abandon();
  engine_.reset();
  limit_.reset();
  pulls_.reset();
}

void SimWorker::LeaveBehind() {
  if (alive_ != nullptr) *alive_ = false;
  kv_event_streams_.clear();
  static_cast<void>(engine_.release());
  static_cast<void>(limit_.release());
  static_cast<void>(pulls_.release());
}

void SimWorker::Terminate() {
  if (!node().up() || draining_) return;
  node().Note(0, "SIGTERM");
  Drain(*this, {.delay_ms = 0, .drain_ms = RpcServerOptions().drain_ms},
        [this] { engine_->Shutdown([this] { node().Post(0, [this] { Exit(); }); }); });
}

void SimWorker::Resize(int32_t blocks) {
  if (!node().up() || node().paused() || draining_) return;
  node().Note(0, "resizes its pool of %d blocks to %d", engine_->cache().num_blocks(), blocks);
  engine_->Resize(blocks);
}

void SimWorker::SetRole(WorkerRole role) {
  if (!node().up() || node().paused() || draining_) return;
  node().Note(0, "gets role %d", static_cast<int64_t>(role));
  role_ = role;
  if (pauses_) Beat();
}

void SimWorker::ClearCache(bool prefixes, std::optional<CacheNamespace> only) {
  if (!node().up() || node().paused() || draining_) return;
  node().Note(0, "clears its caches, prefixes too %d, of all tenants %d", prefixes ? 1 : 0,
              only ? 0 : 1);
  engine_->Clear(prefixes, only);
}

template <typename Request>
void SimWorker::TakeChunked(Request& request) const {
  if (!request.chunked) return;
  if (!options_.knows_chunks) {
    environment_.violation("an older build got a chunked prompt, which it does not know");
  }
  if (environment_.mutant == Mutant::kWrongTenantsChunk) {
    request.cache_namespace = CacheNamespace(1);
  }
}

void SimWorker::LeaveRouters(std::function<void()> done) {
  when_left_ = std::move(done);
  registration_.Leave();
  if (pauses_) Beat();
}

void SimWorker::AwaitCalls(int64_t most_ms, std::function<void()> done) {
  AwaitCallsUntil(node().queue().now_us() + most_ms * 1000, std::move(done));
}

void SimWorker::AwaitCallsUntil(int64_t until_us, std::function<void()> done) {
  const bool waits = environment_.mutant != Mutant::kExitWhilePeerReads;
  if (!waits || limit_->active() == 0 || node().queue().now_us() >= until_us) return done();
  node().Post(kDrainPollUs, [this, until_us, done] { AwaitCallsUntil(until_us, done); });
}

void SimWorker::CutOffCalls() {
  environment_.network->ResetLinks(
      node().id(), environment_.router_node,
      [here = node().id()](const SimLink& link) { return link.IsServedBy(here); });
}

void SimWorker::Exit() {
  node().Note(0, "exits");
  if (!engine_->core().idle()) {
    environment_.violation("the pool is freed while a peer may still read or write it");
  }
  EndProcess();
}

// ---- heartbeats ---------------------------------------------------------------------------------

WorkerReport SimWorker::Report() const {
  const EngineStatus& status = engine_->status();
  const KvFingerprint fingerprint = SimFingerprint(options_.engine);
  std::optional<PromptChunkSupport> chunks;
  if (options_.knows_chunks && status.prompt_chunks != nullptr) chunks = *status.prompt_chunks;
  return ReportOf({.id = options_.id,
                   .address = address(),
                   .role = role_,
                   .changes_role = true,
                   .epoch = epoch_,
                   .model_name = "simulated",
                   .draining = draining_ || status.MustDrain(),
                   .fingerprint = {.model = fingerprint.model,
                                   .kv_type = fingerprint.kv_type,
                                   .numerics = fingerprint.numerics,
                                   .layers = fingerprint.layers,
                                   .kv_heads = fingerprint.kv_heads,
                                   .head_dim = fingerprint.head_dim,
                                   .rope = fingerprint.rope},
                   .backend = fingerprint.backend,
                   .layout = fingerprint.layout,
                   .protocol = fingerprint.protocol,
                   .waiting = status.waiting,
                   .running = status.running,
                   .waiting_for_kv = status.waiting_for_kv,
                   .prompt_tokens_left = status.prompt_tokens_left,
                   .block_size = status.block_size,
                   .free_blocks = status.cache.blocks.free,
                   .cached_blocks = status.cache.blocks.cached,
                   .retiring_blocks = status.pool.retiring,
                   .limit_blocks = status.pool.limit,
                   .bytes_per_block = status.bytes_per_block,
                   .kv_groups = std::ssize(status.groups),
                   .paged = status.paged,
                   .prefix_cache = status.prefix_cache,
                   .min_prefix_tokens = status.min_prefix_tokens,
                   .context_length = status.context_length,
                   .max_running = status.max_running,
                   .chunks = chunks});
}

void SimWorker::Beat() {
  pauses_ = false;
  const Registration::Heartbeat heartbeat = registration_.Next();
  const auto accepted = std::make_shared<absl::Status>();
  SimCall::Start(
      *environment_.network, node().id(), environment_.router_node, MessageKind::kHeartbeat,
      node().queue().now_us() + heartbeat.timeout_ms * 1000,
      [registry = environment_.registry, report = Report(), leaving = heartbeat.leaving,
       accepted](const std::shared_ptr<SimCall>& call) {
        if (leaving) {
          registry->leave(report.id, report.epoch);
        } else {
          *accepted = registry->heartbeat(report);
        }
        call->Finish(absl::OkStatus());
      },
      [this, accepted](const absl::Status& status) { OnBeatAnswered(status, *accepted); });
}

void SimWorker::OnBeatAnswered(const absl::Status& call, const absl::Status& accepted) {
  const Registration::Outcome outcome = registration_.OnAnswer(call, accepted);
  if (!outcome.pause_ms.has_value()) return when_left_();
  pauses_ = true;
  node().Post(*outcome.pause_ms * 1000, [this, beat = ++beats_] {
    if (pauses_ && beat == beats_) Beat();
  });
}

// ---- services -----------------------------------------------------------------------------------

void SimWorker::Decode(const std::shared_ptr<SimCall>& call, uint64_t number,
                       GenerateRequest request, std::function<void(SimDecodeEvent)> on_event) {
  const auto sink = std::make_shared<DecodeSink>(
      engine_.get(), Reply{environment_.node, number, call, alive_}, std::move(on_event));
  sink->Start(
      *limit_,
      [&]() -> absl::StatusOr<GenerateRequest> {
        node().Note(number, "decodes after %d prompt tokens, remote prefill %d",
                    static_cast<int64_t>(request.prompt.size()), request.remote_prefill ? 1 : 0);
        TakeChunked(request);
        return std::move(request);
      },
      call->MillisecondsLeft(), sink);
  call->OnCalledOff([this, number, weak = std::weak_ptr(sink)] {
    node().Note(number, "cancelled");
    if (const auto request = weak.lock()) request->CancelRequest();
  });
}

void SimWorker::Prefill(const std::shared_ptr<SimCall>& call, uint64_t number,
                        PrefillRequest request) {
  const auto sink = std::make_shared<AnsweringSink>(engine_.get(),
                                                    Reply{environment_.node, number, call, alive_});
  sink->Start(
      *limit_,
      [&]() -> absl::StatusOr<PrefillRequest> {
        node().Note(number, "prefills %d tokens", static_cast<int64_t>(request.prompt.size()));
        TakeChunked(request);
        return std::move(request);
      },
      sink);
  call->OnCalledOff([this, number, weak = std::weak_ptr(sink)] {
    node().Note(number, "cancelled");
    if (const auto request = weak.lock()) request->CancelRequest();
  });
}

void SimWorker::PrefillLocally(const std::shared_ptr<SimCall>& call, uint64_t transfer_id,
                               Epoch epoch) {
  engine_->PrefillLocally(transfer_id, epoch, [this, call](const absl::Status& status) {
    node().Note(0, "is asked to prefill locally", 0, 0, status.ToString());
    call->Finish(status);
  });
}

void SimWorker::PullPrefix(const std::shared_ptr<SimCall>& call, uint64_t number,
                           PullRequest request, std::function<void(TransferTicket)> on_ticket) {
  const auto sink = std::make_shared<PullingSink>(
      engine_.get(), Reply{environment_.node, number, call, alive_}, std::move(on_ticket),
      request.chunked ? &pulled_chunk_tokens_ : &pulled_prefix_tokens_);
  sink->Start(
      *pulls_,
      [&]() -> absl::StatusOr<PullRequest> {
        TakeChunked(request);
        return std::move(request);
      },
      sink);
  call->OnCalledOff([this, number, weak = std::weak_ptr(sink)] {
    node().Note(number, "pull cancelled");
    if (const auto request = weak.lock()) request->CancelRequest();
  });
}

void SimWorker::SendPrefix(const std::shared_ptr<SimCall>& call, uint64_t number,
                           SendPrefixRequest request) {
  ServeSendPrefix(
      *engine_, sends_,
      [&]() -> absl::StatusOr<SendPrefixRequest> {
        TakeChunked(request);
        return std::move(request);
      },
      [this, number, call](const absl::StatusOr<int32_t>& tokens) {
        node().Note(number, "sends a prefix of %d tokens", tokens.value_or(0), 0,
                    tokens.status().ToString());
        call->Finish(tokens.status());
      });
}

void SimWorker::StreamKvEvents(const std::shared_ptr<SimCall>& call,
                               const KvEventPosition& position,
                               SimKvEventStream::OnMessage on_message) {
  const auto stream = std::make_shared<SimKvEventStream>(node(), engine_.get(), environment_.mutant,
                                                         call, std::move(on_message));
  stream->Start(*event_readers_, position.epoch, position.sequence);
  if (stream->ended()) return;
  kv_event_streams_.insert(stream);
  call->OnCalledOff([this, weak = std::weak_ptr(stream)] { kv_event_streams_.erase(weak.lock()); });
}

absl::Status SimWorker::Ping(Epoch meant) const { return AnswerPing(*engine_, meant); }

}  // namespace baton
