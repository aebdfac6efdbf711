#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/entropy.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/engine_inbox.h"
#include "engine/engine_loop.h"
#include "engine/idle_integrity_check.h"
#include "engine/kv_pool.h"
#include "engine/loop_watchdog.h"
#include "engine/model_loader.h"
#include "engine/peer_transport.h"
#include "engine/pending_cancellations.h"
#include "engine/pool_resizer.h"
#include "engine/sequence_inspection.h"
#include "engine/worker_core.h"
#include "model/architecture.h"

namespace baton {
namespace {

Epoch NewEpoch() {
  return Epoch(EntropyBits() | 1);  // zero means "no epoch"
}

}  // namespace

// Engine with its loop thread. Members are declared in the order in which they depend on each
// other.
class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(const EngineOptions& options) : options_(options), epoch_(NewEpoch()) {}

  ~EngineImpl() override {
    if (!thread_.joinable()) return;
    inbox_.Close();
    thread_.join();
  }

  absl::Status Load();

  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) override {
    return inbox_.Generate(std::move(request), std::move(sink));
  }
  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) override {
    return inbox_.Prefill(std::move(request), std::move(sink));
  }
  RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) override {
    return inbox_.PullPrefix(std::move(request), std::move(sink));
  }
  void SendPrefix(SendPrefixRequest request,
                  std::function<void(absl::StatusOr<int32_t>)> done) override {
    inbox_.SendPrefix(std::move(request), std::move(done));
  }
  void Cancel(RequestHandle handle) override {
    cancels_.Add(handle);
    inbox_.Cancel(handle);
  }
  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      std::function<void(absl::Status)> done) override {
    inbox_.PrefillLocally(transfer_id, receiver_epoch, std::move(done));
  }

  absl::StatusOr<PoolSize> Resize(int32_t blocks) override {
    RETURN_IF_ERROR(resizer_->Prepare(Status().pool.limit, blocks));
    return Ask<absl::StatusOr<PoolSize>>(
        [this, blocks](WorkerCore& core) {
          absl::StatusOr<PoolSize> size = resizer_->Resize(core, blocks);
          PublishState();  // Status() has the new size when Resize returns
          return size;
        },
        absl::UnavailableError("the engine is shutting down"));
  }

  int64_t BlocksIn(int64_t bytes) const override { return pool_.BlocksIn(bytes); }

  absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) override {
    return Ask<absl::StatusOr<int32_t>>([=, this](WorkerCore&) { return cache_->ClearCache(only); },
                                        absl::UnavailableError("the engine is shutting down"));
  }

  KvEventFeed* kv_events() override { return loop_->kv_events(); }
  void SnapshotKvEvents(KvEventSnapshotDone done) override { loop_->SnapshotKvEvents(done); }

  EngineStatus Status() override {
    std::lock_guard lock(status_mutex_);
    return status_;
  }
  EngineInspection Inspect() override {
    return Ask<EngineInspection>([this](WorkerCore& core) { return MakeInspection(core); },
                                 EngineInspection());
  }

  absl::Status CheckWatchdog() const override { return watchdog_.Check(); }

  const EngineOptions& options() const override { return options_; }
  const KvFingerprint& fingerprint() const override { return fingerprint_; }
  Epoch epoch() const override { return epoch_; }
  const ModelInfo& model_info() const override { return model_.info; }
  const Tokenizer& tokenizer() const override { return *model_.tokenizer; }
  std::string StartupReport() const override;

 private:
  // Runs `question` on the loop thread and returns its answer. Returns `otherwise` if the inbox is
  // closed. Accepted questions always run, so this always returns.
  template <typename Result>
  Result Ask(std::function<Result(WorkerCore&)> question, Result otherwise) {
    // The caller is a sink on the loop thread. Waiting for the loop would deadlock.
    if (std::this_thread::get_id() == thread_.get_id()) return question(*core_);
    auto promise = std::make_shared<std::promise<Result>>();
    std::future<Result> answer = promise->get_future();
    const absl::Status posted =
        inbox_.Post([promise, question](WorkerCore& core) { promise->set_value(question(core)); },
                    EngineInbox::Bound::kWaived);
    return posted.ok() ? answer.get() : otherwise;
  }

  void RunLoop();
  void Wake();
  void Wait(int64_t us);
  absl::Status CheckIntegrity() const;
  void PublishState();
  EngineStatus MakeStatus(const WorkerCore& core) const;
  EngineInspection MakeInspection(const WorkerCore& core) const;
  std::string OpPath() const;

  EngineOptions options_;
  const Epoch epoch_;
  SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool news_ = false;  // an event, a transfer or a step has something to report; guarded by mutex_
  PendingCancellations cancels_;
  LoopWatchdog watchdog_{&clock_, options_.op_stall_ms * 1000};

  LoadedModel model_;
  KvPool pool_;
  // Its threads wake the loop, read cancels_ and feed watchdog_.
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCacheManager> cache_;
  std::unique_ptr<PoolResizer> resizer_;
  std::unique_ptr<Scheduler> scheduler_;
  KvFingerprint fingerprint_;

  std::mutex status_mutex_;
  EngineStatus status_;  // guarded by status_mutex_
  KvEventFeed kv_event_feed_;
  IdleIntegrityCheck integrity_check_{[this] { return CheckIntegrity(); }, &clock_};
  EngineInbox inbox_{&integrity_check_, [this] { Wake(); }};

  std::unique_ptr<KvTransport> transport_;  // its threads wake the loop
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<EngineLoop> loop_;
  std::thread thread_;  // runs loop_
};

absl::Status EngineImpl::Load() {
  ASSIGN_OR_RETURN(model_, LoadModel(options_));
  options_.model = model_.info.path;
  options_.threads = model_.threads;
  options_.instruction_set = model_.instruction_set;
  RETURN_IF_ERROR(SettleContextLength(options_, model_.info.spec.context_length));
  RETURN_IF_ERROR(SettleCacheOptions(options_));
  ASSIGN_OR_RETURN(pool_, KvPool::Create(model_.info.spec, *model_.device, options_));
  fingerprint_ = FingerprintOf(model_.info, options_);
  ModelRunnerOptions runner;
  runner.limits.max_tokens = options_.token_budget;
  runner.limits.max_sequences = options_.max_running;
  runner.limits.max_logit_rows = options_.max_running;
  // A sequence cannot be longer than the pool.
  runner.limits.max_context = static_cast<int32_t>(std::min<int64_t>(
      options_.context_length, int64_t{pool_.max_blocks(0)} * options_.block_size));
  runner.paged = options_.paged;
  runner.graph = options_.graph;
  ASSIGN_OR_RETURN(runner_,
                   model_.weights->CreateRunner(pool_.layout(), pool_.kernel_address(), runner));
  if (options_.steps_in_flight > runner_->max_in_flight()) {
    return absl::InvalidArgumentError(StrCat("steps-in-flight is ", options_.steps_in_flight,
                                             "; the device (", model_.device->Description(),
                                             ") takes at most ", runner_->max_in_flight()));
  }
  cache_ = std::make_unique<KvCacheManager>(
      KvCacheOptions{.num_blocks = options_.kv_blocks,
                     .max_blocks = pool_.max_blocks(0),
                     .block_size = options_.block_size,
                     .kind = options_.cache_kind,
                     .paged = options_.paged,
                     .min_prefix_tokens = options_.min_prefix_tokens,
                     .eviction_policy = options_.eviction_policy,
                     .hash_seed = EntropyBits(),
                     .high_water = options_.high_water,
                     .low_water = options_.low_water,
                     .kv_events = options_.kv_events,
                     .record_trace = true,
                     .windows = pool_.Windows(options_),
                     .max_step_tokens = MaxStepTokens(options_)},
      &clock_);
  resizer_ = std::make_unique<PoolResizer>(&pool_, cache_.get());
  scheduler_ =
      std::make_unique<Scheduler>(SchedulerOptions{.token_budget = options_.token_budget,
                                                   .max_chunk_tokens = options_.max_chunk_tokens,
                                                   .max_running = options_.max_running,
                                                   .max_waiting = options_.max_waiting,
                                                   .insert_chunks = options_.prefix_cache},
                                  cache_.get());
  const auto wake = [this] { Wake(); };
  ASSIGN_OR_RETURN(
      transport_,
      CreatePeerTransport(
          {.fingerprint = fingerprint_, .epoch = epoch_, .pool = &pool_.lender(), .waker = wake},
          options_));
  core_ = std::make_unique<WorkerCore>(
      WorkerCoreOptions{.vocabulary = model_.info.spec.vocabulary,
                        .context_length = options_.context_length,
                        .block_size = options_.block_size,
                        .hash_logits = options_.hash_logits,
                        .steps_in_flight = options_.steps_in_flight,
                        .transfer_timeout_ms = options_.transfer_timeout_ms,
                        .layer_pieces = {model_.info.spec.layers,
                                         pool_.layout().bytes_per_block() / options_.block_size,
                                         options_.layer_pieces}},
      cache_.get(), scheduler_.get(), runner_.get(), transport_.get(), model_.tokenizer.get(),
      &clock_, EntropyBits);
  runner_->set_waker(wake);
  core_->set_pending_cancellations(&cancels_);
  core_->set_watchdog(&watchdog_);
  loop_ = std::make_unique<EngineLoop>(EngineLoop::Parts{.core = core_.get(),
                                                         .cache = cache_.get(),
                                                         .inbox = &inbox_,
                                                         .kv_events = &kv_event_feed_,
                                                         .integrity_check = &integrity_check_,
                                                         .watchdog = &watchdog_,
                                                         .clock = &clock_,
                                                         .publish = [this] { PublishState(); }});
  PublishState();
  thread_ = std::thread([this] { RunLoop(); });
  return absl::OkStatus();
}

void EngineImpl::Wake() {
  {
    std::lock_guard lock(mutex_);
    news_ = true;
  }
  wake_.notify_one();
}

void EngineImpl::Wait(int64_t us) {
  std::unique_lock lock(mutex_);
  if (us > 0) wake_.wait_for(lock, std::chrono::microseconds(us), [this] { return news_; });
  news_ = false;
}

void EngineImpl::RunLoop() {
  while (true) {
    Wait(loop_->Rest());
    if (!loop_->Turn()) break;
    if (loop_->has_step()) loop_->Step();
  }
  loop_->Shutdown();
  while (!loop_->PollUntilIdle()) {
    std::this_thread::sleep_for(std::chrono::microseconds(EngineLoop::kShutdownPollUs));
  }
}

absl::Status EngineImpl::CheckIntegrity() const {
  RETURN_IF_ERROR(core_->CheckConservation());
  return options_.also_check();
}

void EngineImpl::PublishState() {
  resizer_->GiveBackRetired();
  EngineStatus status = MakeStatus(*core_);
  std::lock_guard lock(status_mutex_);
  status_ = std::move(status);
}

EngineStatus EngineImpl::MakeStatus(const WorkerCore& core) const {
  EngineStatus status;
  status.cache = cache_->Stats();
  status.block_size = options_.block_size;
  status.context_length = options_.context_length;
  status.max_running = options_.max_running;
  status.bytes_per_block = pool_.layout().group(0).bytes_per_block();
  status.layout = std::string(KvLayoutKindName(options_.layout));
  status.kv_type = std::string(KvTypeName(options_.kv_type));
  status.paged = options_.paged;
  status.prefix_cache = options_.prefix_cache;
  status.min_prefix_tokens = options_.min_prefix_tokens;
  status.pool = resizer_->Size();
  status.groups = KvGroupStatuses(pool_.layout(), *cache_, status.cache);
  status.waiting = scheduler_->waiting_count();
  status.running = scheduler_->running_count();
  status.waiting_for_kv = scheduler_->waiting_for_kv_count();
  status.active_transfers = core.active_transfers();
  status.steps = core.counters().steps;
  status.prefill_tokens = core.counters().prefill_tokens;
  status.decode_tokens = core.counters().decode_tokens;
  status.preemptions = scheduler_->preemption_count();
  status.requests = core.counters().requests;
  status.failures = core.counters().failures;
  status.conservation_error = std::string(integrity_check_.error().message());
  return status;
}

EngineInspection EngineImpl::MakeInspection(const WorkerCore& core) const {
  EngineInspection inspection;
  inspection.op_path = OpPath();
  inspection.status = MakeStatus(core);
  inspection.resident_pool_bytes = pool_.ResidentBytes();
  inspection.cache_depth = cache_->CacheDepth();
  inspection.trace = cache_->trace();
  inspection.sequences = InspectSequences(core, *scheduler_, *cache_);
  return inspection;
}

std::string EngineImpl::OpPath() const {
  const RunnerCounters counters = runner_->counters();
  return absl::StrFormat(
      "%s attention, %s, %s, %s blocks of %d tokens, %s; %d graph replays, %d eager steps, "
      "%d table entries in %d uploads",
      options_.paged ? "paged" : "contiguous", std::string(KvTypeName(options_.kv_type)),
      model_.device->Description(), std::string(KvLayoutKindName(options_.layout)),
      options_.block_size, options_.graph ? "graph" : "eager", counters.graph_replays,
      counters.eager_steps, counters.table_entries, counters.table_uploads);
}

std::string EngineImpl::StartupReport() const {
  return absl::StrFormat("model %s\ndevice %s\nKV pool: %s, prefix cache %s\n",
                         model_.Description(options_.context_length), model_.device->Description(),
                         pool_.Description(options_), options_.prefix_cache ? "on" : "off");
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::make_unique<EngineImpl>(options);
  RETURN_IF_ERROR(engine->Load());
  return engine;
}

}  // namespace baton
