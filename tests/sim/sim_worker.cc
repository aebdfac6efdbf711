#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <utility>

#include "rpc/rpc_server_options.h"

namespace baton {
namespace {

constexpr int64_t kDrainPollUs = 5'000;

}  // namespace

class SimWorker::DecodeSink final : public RequestSink {
 public:
  DecodeSink(SimNode& node, uint64_t request, std::shared_ptr<SimCall> call,
             ConcurrencyLimit::Slot slot, std::shared_ptr<bool> alive,
             std::function<void(SimDecodeEvent)> on_event)
      : node_(node),
        request_(request),
        call_(std::move(call)),
        slot_(std::move(slot)),
        alive_(std::move(alive)),
        on_event_(std::move(on_event)) {}

  void OnTicket(const TransferTicket& ticket) override {
    Note("hands out a ticket from block %d, %d blocks", ticket.first_block, ticket.block_count);
    Send(ticket);
  }
  void OnTokens(TokenOutput output) override { Send(std::move(output)); }
  void OnFinish(FinishInfo info) override {
    Note("finished, %d tokens, %d cached", info.completion_tokens, info.ledger.cached_tokens);
    const bool last = info.last;
    Send(std::move(info));
    if (*alive_ && last) call_->Finish(absl::OkStatus());
  }
  void OnError(absl::Status status) override {
    Note("failed", 0, 0, status.ToString());
    if (*alive_) call_->Finish(std::move(status));
  }

 private:
  void Note(const char* what, int64_t a, int64_t b, std::string detail = {}) {
    if (*alive_) node_.Note(request_, what, a, b, std::move(detail));
  }
  void Send(SimDecodeEvent event) {
    if (!*alive_) return;
    const bool ticket = std::holds_alternative<TransferTicket>(event);
    call_->Send(ticket ? MessageKind::kTicket : MessageKind::kCall,
                [on_event = on_event_, event = std::move(event)] { on_event(event); });
  }

  SimNode& node_;
  const uint64_t request_;
  const std::shared_ptr<SimCall> call_;
  const ConcurrencyLimit::Slot slot_;
  const std::shared_ptr<bool> alive_;
  const std::function<void(SimDecodeEvent)> on_event_;
};

class SimWorker::AnsweringSink final : public PrefillSink {
 public:
  AnsweringSink(SimNode& node, uint64_t request, std::shared_ptr<SimCall> call,
                ConcurrencyLimit::Slot slot, std::shared_ptr<bool> alive)
      : node_(node),
        request_(request),
        call_(std::move(call)),
        slot_(std::move(slot)),
        alive_(std::move(alive)) {}

  void OnDone(absl::StatusOr<PrefillResult> result) override {
    if (!*alive_) return;
    node_.Note(request_, "prefill done", 0, 0, result.status().ToString());
    call_->Finish(result.status());
  }

 private:
  SimNode& node_;
  const uint64_t request_;
  const std::shared_ptr<SimCall> call_;
  const ConcurrencyLimit::Slot slot_;
  const std::shared_ptr<bool> alive_;
};

class SimWorker::PullingSink final : public PullSink {
 public:
  PullingSink(SimNode& node, uint64_t request, std::shared_ptr<SimCall> call,
              std::shared_ptr<bool> alive, std::function<void(TransferTicket)> on_ticket)
      : node_(node),
        request_(request),
        call_(std::move(call)),
        alive_(std::move(alive)),
        on_ticket_(std::move(on_ticket)) {}

  void OnTicket(const TransferTicket& ticket) override {
    if (!*alive_) return;
    node_.Note(request_, "pulls from block %d on, %d blocks", ticket.first_block,
               ticket.block_count);
    call_->Send(MessageKind::kCall, [on_ticket = on_ticket_, ticket] { on_ticket(ticket); });
  }
  void OnDone(absl::StatusOr<PullResult> result) override {
    if (!*alive_) return;
    node_.Note(request_, "pull done, %d tokens, %d pulled", result.ok() ? result->tokens : 0,
               result.ok() ? result->pulled_tokens : 0, result.status().ToString());
    call_->Finish(result.status());
  }

 private:
  SimNode& node_;
  const uint64_t request_;
  const std::shared_ptr<SimCall> call_;
  const std::shared_ptr<bool> alive_;
  const std::function<void(TransferTicket)> on_ticket_;
};

SimWorker::SimWorker(Options options, Environment environment)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      epochs_(environment_.seed, "epochs of " + options_.id) {}

SimWorker::~SimWorker() {
  if (engine_ != nullptr) Kill();
}

// ---- life ---------------------------------------------------------------------------------------

void SimWorker::Start() {
  if (node().up()) return;
  node().Start();
  draining_ = false;
  registration_ = Registration();
  epoch_ = Epoch(epochs_.Bits() | 1);
  alive_ = std::make_shared<bool>(true);
  limit_ = std::make_unique<ConcurrencyLimit>(options_.max_active_requests);
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
}

void SimWorker::LeaveBehind() {
  if (alive_ != nullptr) *alive_ = false;
  kv_event_streams_.clear();
  static_cast<void>(engine_.release());
  static_cast<void>(limit_.release());
}

void SimWorker::Terminate() {
  if (!node().up() || draining_) return;
  node().Note(0, "SIGTERM");
  Drain(*this, RpcServerOptions().drain_ms,
        [this] { engine_->Shutdown([this] { node().Post(0, [this] { Exit(); }); }); });
}

void SimWorker::Resize(int32_t blocks) {
  if (!node().up() || node().paused() || draining_) return;
  node().Note(0, "resizes its pool of %d blocks to %d", engine_->cache().num_blocks(), blocks);
  engine_->Resize(blocks);
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
  WorkerReport report;
  report.id = options_.id;
  report.address = address();
  report.role = options_.role;
  report.epoch = epoch_;
  report.model = "simulated";
  report.model_name = "simulated";
  const KvFingerprint fingerprint = SimFingerprint(options_.engine);
  report.fingerprint = fingerprint.ToString();
  report.backend = fingerprint.backend;
  report.protocol = fingerprint.protocol;
  report.pool_layout = fingerprint.layout;
  report.paged = options_.engine.paged;
  report.prefix_cache = options_.engine.cache_kind == CacheKind::kRadix;
  report.draining = draining_;
  report.queued = engine_->status().queued;
  report.block_size = options_.engine.block_size;
  report.available_blocks = engine_->status().available_blocks;
  report.pool_tokens = int64_t{engine_->status().pool_blocks} * options_.engine.block_size;
  report.context_length = options_.engine.context_length;
  return report;
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
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) return call->Finish(slot.status());
  request.timeout_ms = call->MillisecondsLeft();
  node().Note(number, "decodes %d tokens, remote prefill %d",
              static_cast<int64_t>(request.prompt.size()), request.remote_prefill ? 1 : 0);
  const RequestHandle handle = engine_->inbox().Generate(
      std::move(request), std::make_shared<DecodeSink>(node(), number, call, *std::move(slot),
                                                       alive_, std::move(on_event)));
  call->OnCalledOff([this, number, handle] {
    node().Note(number, "called off");
    engine_->Cancel(handle);
  });
}

void SimWorker::Prefill(const std::shared_ptr<SimCall>& call, uint64_t number,
                        PrefillRequest request) {
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) return call->Finish(slot.status());
  node().Note(number, "prefills %d tokens", static_cast<int64_t>(request.prompt.size()));
  const RequestHandle handle = engine_->inbox().Prefill(
      std::move(request),
      std::make_shared<AnsweringSink>(node(), number, call, *std::move(slot), alive_));
  call->OnCalledOff([this, number, handle] {
    node().Note(number, "called off");
    engine_->Cancel(handle);
  });
}

void SimWorker::PrefillLocally(const std::shared_ptr<SimCall>& call, uint64_t transfer_id,
                               Epoch epoch) {
  engine_->inbox().PrefillLocally(transfer_id, epoch, [this, call](const absl::Status& status) {
    node().Note(0, "asked to prefill locally", 0, 0, status.ToString());
    call->Finish(status);
  });
}

void SimWorker::PullPrefix(const std::shared_ptr<SimCall>& call, uint64_t number,
                           PullRequest request, std::function<void(TransferTicket)> on_ticket) {
  const RequestHandle handle = engine_->inbox().PullPrefix(
      std::move(request),
      std::make_shared<PullingSink>(node(), number, call, alive_, std::move(on_ticket)));
  call->OnCalledOff([this, number, handle] {
    node().Note(number, "pull called off");
    engine_->Cancel(handle);
  });
}

void SimWorker::SendPrefix(const std::shared_ptr<SimCall>& call, uint64_t number,
                           SendPrefixRequest request) {
  engine_->inbox().SendPrefix(std::move(request),
                              [this, number, call](const absl::StatusOr<int32_t>& tokens) {
                                node().Note(number, "sends a prefix of %d tokens",
                                            tokens.value_or(0), 0, tokens.status().ToString());
                                call->Finish(tokens.status());
                              });
}

void SimWorker::StreamKvEvents(const std::shared_ptr<SimCall>& call,
                               const KvEventPosition& position,
                               SimKvEventStream::OnMessage on_message) {
  if (engine_->loop().kv_events() == nullptr) {
    return call->Finish(absl::FailedPreconditionError("this worker cannot tell"));
  }
  const auto stream = std::make_shared<SimKvEventStream>(
      node(), *engine_, epoch_, environment_.mutant, call, std::move(on_message));
  kv_event_streams_.insert(stream);
  stream->Start(position.epoch, position.sequence);
  call->OnCalledOff([this, weak = std::weak_ptr(stream)] { kv_event_streams_.erase(weak.lock()); });
}

}  // namespace baton
