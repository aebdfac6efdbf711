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
#include "common/choices.h"
#include "common/clock.h"
#include "common/entropy.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/chunk_mover_thread.h"
#include "engine/engine_machines.h"
#include "engine/kv_pool.h"
#include "engine/loop_watchdog.h"
#include "engine/model_loader.h"
#include "engine/peer_transport.h"
#include "engine/pending_cancellations.h"
#include "engine/sequence_inspection.h"
#include "model/architecture.h"

namespace baton {
namespace {

Epoch NewEpoch() {
  return Epoch(EntropyBits() | 1);  // zero means "no epoch"
}

// Lets a runner's steps have the parts of chunked prompts, and sequences that see them.
PromptPartsOptions LimitsOfChunks(const EngineOptions& options, int32_t blocks, bool on_host,
                                  StepLimits& limits) {
  constexpr auto kMostParts = static_cast<int32_t>(kMaxPromptChunks) + 2;
  // The context bounds positions, not slots. A sequence with its parts cannot be longer than the
  // pool, unless a part stands in it twice. On a GPU, memory for attention grows with the slots, so
  // there the parts and the answer must fit the context together.
  if (on_host) {
    limits.max_context = static_cast<int32_t>(
        std::min<int64_t>(std::max<int64_t>(limits.max_context, kMaxPromptTokenIds),
                          int64_t{blocks} * options.block_size));
  }
  limits.max_parts = kMaxPartsInStep;
  PromptPartsOptions parts;
  parts.max_repair_runs = 16 * kMostParts;
  limits.max_extra_runs =
      limits.max_sequences * kMostParts + 2 * kMaxPartsInStep + parts.max_repair_runs;
  limits.max_shifted_queries = std::max(2 * options.token_budget, 2 * kMostParts);
  parts.max_slots = limits.max_context;
  parts.max_shifted_queries = limits.max_shifted_queries;
  limits.max_compared_rows = options.token_budget;
  return parts;
}

}  // namespace

// Engine with its loop thread. Members are declared in the order in which they depend on each
// other.
class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(const EngineOptions& options) : options_(options), epoch_(NewEpoch()) {}

  ~EngineImpl() override {
    if (!thread_.joinable()) return;
    machines_->inbox().Close();
    thread_.join();
    if (options_.transfer_nccl && !model_.device->host_accessible()) {
      LOG(INFO) << "transfers copied " << pool_.lender().BytesThroughHost()
                << " bytes of KV between the GPU and host memory";
    }
  }

  absl::Status Load();

  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) override {
    return machines_->inbox().Generate(std::move(request), std::move(sink));
  }
  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) override {
    return machines_->inbox().Prefill(std::move(request), std::move(sink));
  }
  RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) override {
    return machines_->inbox().PullPrefix(std::move(request), sink);
  }
  void SendPrefix(SendPrefixRequest request,
                  std::function<void(absl::StatusOr<int32_t>)> done) override {
    machines_->inbox().SendPrefix(std::move(request), done);
  }
  void Cancel(RequestHandle handle) override {
    cancels_.Add(handle, clock_.NowUs());
    machines_->inbox().Cancel(handle);
  }
  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      std::function<void(absl::Status)> done) override {
    machines_->inbox().PrefillLocally(transfer_id, receiver_epoch, done);
  }

  absl::StatusOr<PoolSize> Resize(int32_t blocks) override {
    const absl::Status prepared = machines_->PrepareResize(blocks);
    return Ask<absl::StatusOr<PoolSize>>(
        [this, blocks, prepared]() -> absl::StatusOr<PoolSize> {
          if (!prepared.ok()) {
            machines_->AbandonResize(blocks);
            return prepared;
          }
          absl::StatusOr<PoolSize> size = machines_->Resize(blocks);
          PublishState();  // Status() has the new size when Resize returns
          return size;
        },
        absl::UnavailableError("the engine is shutting down"));
  }

  int64_t BlocksIn(int64_t bytes) const override { return pool_.BlocksIn(bytes); }
  int64_t BytesOf(int32_t blocks) const override { return pool_.BytesOf(blocks); }

  absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) override {
    return Clear([=, this] { return machines_->core().ClearCache(only); });
  }
  absl::StatusOr<int32_t> ClearChunks(std::optional<CacheNamespace> only) override {
    return Clear([=, this] { return machines_->core().ClearChunks(only); });
  }
  std::vector<ChunkCache::EntryInfo> ListChunks() override {
    return Ask<std::vector<ChunkCache::EntryInfo>>(
        [this] { return machines_->core().chunk_entries(); }, {});
  }

  KvEventFeed* kv_events() override { return machines_->loop().kv_events(); }
  void SnapshotKvEvents(KvEventSnapshotDone done) override {
    machines_->loop().SnapshotKvEvents(done);
  }

  EngineStatus Status() override {
    std::lock_guard lock(status_mutex_);
    return status_;
  }
  EngineInspection Inspect() override {
    return Ask<EngineInspection>([this] { return MakeInspection(); }, EngineInspection());
  }

  absl::Status CheckWatchdog() const override {
    const absl::Status health = runner_->Health();
    return health.ok() ? watchdog_.Check() : absl::UnavailableError(health.message());
  }
  absl::Status DeviceHealth() const override { return runner_->Health(); }

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
  Result Ask(std::function<Result()> question, Result otherwise) {
    // The caller is a sink on the loop thread. Waiting for the loop would deadlock.
    if (std::this_thread::get_id() == thread_.get_id()) return question();
    auto promise = std::make_shared<std::promise<Result>>();
    std::future<Result> answer = promise->get_future();
    const absl::Status posted = machines_->inbox().Post(
        [promise, question](WorkerCore&) { promise->set_value(question()); },
        EngineInbox::Bound::kWaived);
    return posted.ok() ? answer.get() : otherwise;
  }

  // Runs `clear` on the loop thread. Status() has its effect when this returns.
  absl::StatusOr<int32_t> Clear(std::function<int32_t()> clear) {
    return Ask<absl::StatusOr<int32_t>>(
        [this, clear] {
          const int32_t freed = clear();
          PublishState();
          return freed;
        },
        absl::UnavailableError("the engine is shutting down"));
  }

  void RunLoop();
  void Wake();
  void Wait(int64_t us);
  void PublishState();
  EngineStatus CurrentStatus() const;
  EngineInspection MakeInspection() const;
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
  KvFingerprint fingerprint_;

  std::mutex status_mutex_;
  EngineStatus status_;                      // guarded by status_mutex_
  std::unique_ptr<KvTransport> transport_;   // its threads wake the loop
  std::unique_ptr<ChunkMover> chunk_mover_;  // the same; null: no prompt chunk sleeps
  std::unique_ptr<EngineMachines> machines_;
  std::thread thread_;  // runs the machines' loop
};

namespace {

// Sets the options that depend on the model and the device to the values in effect.
absl::Status Settle(const ModelSpec& model, const Device& device, EngineOptions& options) {
  RETURN_IF_ERROR(SettleContextLength(options, model.context_length));
  RETURN_IF_ERROR(SettleCacheOptions(options));
  return SettleTransfer(device, options);
}

}  // namespace

absl::Status EngineImpl::Load() {
  ASSIGN_OR_RETURN(model_, LoadModel(options_));
  options_.model = model_.info.path;
  options_.threads = model_.threads;
  options_.instruction_set = model_.instruction_set;
  options_.numerics = model_.numerics;
  RETURN_IF_ERROR(Settle(model_.info.spec, *model_.device, options_));
  ASSIGN_OR_RETURN(pool_, KvPool::Create(model_.info.spec, model_.pool_devices, options_,
                                         model_.pool_devices_reach_first));
  fingerprint_ = FingerprintOf(model_.info, *model_.device, options_);
  ModelRunnerOptions runner;
  runner.limits.max_tokens = options_.token_budget;
  runner.limits.max_sequences = options_.max_running;
  runner.limits.max_logit_rows = options_.max_running;
  // A sequence cannot be longer than the pool.
  runner.limits.max_context = static_cast<int32_t>(std::min<int64_t>(
      options_.context_length, int64_t{pool_.max_blocks(0)} * options_.block_size));
  runner.paged = options_.paged;
  runner.graph = options_.graph;
  runner.limits.max_draws = options_.max_running * kMaxChoices;
  PromptPartsOptions parts;
  if (pool_.layout().groups() == 1) {
    parts = LimitsOfChunks(options_, pool_.max_blocks(0), model_.device->host_accessible(),
                           runner.limits);
  }
  ASSIGN_OR_RETURN(runner_,
                   model_.weights->CreateRunner(pool_.memory_layout(),
                                                PoolAddresses(pool_.kernel_addresses()), runner));
  if (options_.steps_in_flight > runner_->max_in_flight()) {
    return absl::InvalidArgumentError(StrCat("steps-in-flight is ", options_.steps_in_flight,
                                             "; the device (", model_.DeviceDescription(),
                                             ") takes at most ", runner_->max_in_flight()));
  }
  const auto wake = [this] { Wake(); };
  ASSIGN_OR_RETURN(
      transport_,
      CreatePeerTransport(
          {.fingerprint = fingerprint_, .epoch = epoch_, .pool = &pool_.lender(), .waker = wake},
          options_));
  if (options_.chunk_host_mib > 0 && pool_.layout().groups() == 1) {
    ASSIGN_OR_RETURN(std::unique_ptr<TransferPool> lender, pool_.NewLender(options_));
    chunk_mover_ =
        std::make_unique<ChunkMoverThread>(std::move(lender), options_.chunk_compress, wake);
  }
  RETURN_IF_ERROR(pool_.TakeMemory(options_));
  runner_->set_waker(wake);
  EngineMachinesOptions machines = MachinesOptionsOf(options_, model_.info.spec.vocabulary,
                                                     pool_.max_blocks(0), pool_.Windows(options_));
  machines.prompt_parts.max_slots = parts.max_slots;
  machines.prompt_parts.max_shifted_queries = parts.max_shifted_queries;
  machines.prompt_parts.max_repair_runs = parts.max_repair_runs;
  machines.prompt_parts.repairs_share = runner_->compares_rows();
  machines.cache.hash_seed = EntropyBits();
  machines.cache.record_trace = true;
  machines_ = std::make_unique<EngineMachines>(
      machines, EngineEnvironment{.clock = &clock_,
                                  .layout = pool_.layout(),
                                  .pool = &pool_,
                                  .runner = runner_.get(),
                                  .transport = transport_.get(),
                                  .tokenizer = model_.tokenizer.get(),
                                  .cancellations = &cancels_,
                                  .watchdog = &watchdog_,
                                  .random_bits = EntropyBits,
                                  .also_check = options_.also_check,
                                  .wake = wake,
                                  .publish = [this] { PublishState(); },
                                  .chunk_mover = chunk_mover_.get(),
                                  .metrics = options_.metrics});
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
  EngineLoop& loop = machines_->loop();
  while (true) {
    Wait(loop.Rest());
    if (!loop.Turn()) break;
    if (loop.has_step()) loop.Step();
  }
  loop.Shutdown();
  while (!loop.PollUntilIdle()) {
    std::this_thread::sleep_for(std::chrono::microseconds(EngineLoop::kShutdownPollUs));
  }
}

void EngineImpl::PublishState() {
  EngineStatus status = CurrentStatus();
  std::lock_guard lock(status_mutex_);
  status_ = std::move(status);
}

EngineStatus EngineImpl::CurrentStatus() const {
  EngineStatus status = machines_->Status();
  status.kv_bytes_through_host = pool_.lender().BytesThroughHost();
  return status;
}

EngineInspection EngineImpl::MakeInspection() const {
  const KvCacheManager& cache = machines_->cache();
  EngineInspection inspection;
  inspection.op_path = OpPath();
  inspection.status = CurrentStatus();
  inspection.resident_pool_bytes = pool_.ResidentBytes();
  inspection.cache_depth = cache.CacheDepth();
  inspection.trace = cache.trace();
  inspection.sequences = InspectSequences(machines_->core(), machines_->scheduler(), cache);
  return inspection;
}

std::string EngineImpl::OpPath() const {
  const RunnerCounters counters = runner_->counters();
  return absl::StrFormat(
      "%s attention, %s, %s, %s blocks of %d tokens, %s; %d graph replays, %d eager steps, "
      "%d table entries in %d uploads",
      options_.paged ? "paged" : "contiguous", std::string(KvTypeName(options_.kv_type)),
      model_.DeviceDescription(), std::string(KvLayoutKindName(options_.layout)),
      options_.block_size, options_.graph ? "graph" : "eager", counters.graph_replays,
      counters.eager_steps, counters.table_entries, counters.table_uploads);
}

std::string EngineImpl::StartupReport() const {
  return absl::StrFormat("model %s\ndevice %s\nKV pool: %s, prefix cache %s\n",
                         model_.Description(options_.context_length), model_.DeviceDescription(),
                         pool_.Description(options_), options_.prefix_cache ? "on" : "off");
}

absl::Status Engine::Check(EngineOptions options) {
  return CheckModelAndDevice(options, [&options](const LoadedModel& model) -> absl::Status {
    RETURN_IF_ERROR(Settle(model.info.spec, *model.device, options));
    return KvPool::Check(model.info.spec, model.pool_devices, options);
  });
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto engine = std::make_unique<EngineImpl>(options);
  RETURN_IF_ERROR(engine->Load());
  return engine;
}

}  // namespace baton
