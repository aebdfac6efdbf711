// Engine without a model, for tests of the services. It answers as its script says, and records the
// requests and cancellations that it gets.
//
// Thread safety: any thread may call any function.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/index/kv_event.h"
#include "engine/engine.h"
#include "text/byte_alphabet.h"

namespace baton {

inline TokenizerSpec ByteTokenizer() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  spec.tokens.push_back("<|end|>");
  spec.token_types.assign(256, 1);
  spec.token_types.push_back(3);
  spec.eos = 256;
  return spec;
}

class FakeEngine final : public Engine {
 public:
  struct Script {
    absl::Status refusal = absl::OkStatus();           // error of Generate and Prefill
    absl::Status hand_off_refusal = absl::OkStatus();  // error of Generate with remote prefill
    int32_t tokens = 3;                                // length of each answer: "abc…"
    bool finish = true;                                // false: send the tokens, but no end
    bool hold_hand_overs = false;  // leave hand-overs open until AnswerHandOvers
    bool prefix_cache = true;
    absl::Status pull_refusal = absl::OkStatus();
    bool pull_has_all = false;  // Pull finds the whole prefix cached
    size_t kept_event_bytes = KvEventFeed::kKeptBytes;
    std::string model_name = "fake";
    std::string kv_type = "f16";
    std::string backend = "cpu";
    ProtocolRange protocol = kTransferProtocol;
    int32_t context_length = 512;  // at most the model's 512
    std::string chat_template = "";
    SamplingDefaults sampling = {};
    bool resizes = false;
    // Absent: the worker is of a build that does not know chunked prompts.
    std::optional<PromptChunkSupport> chunks = {};
    std::vector<ChunkCache::EntryInfo> chunk_entries = {};
  };

  FakeEngine(uint64_t epoch, Script script)
      : script_(std::move(script)), epoch_(epoch), kv_event_feed_(script_.kept_event_bytes) {
    info_.spec.architecture = "llama";
    info_.fingerprint = "fake-model";
    info_.spec.name = script_.model_name;
    info_.chat_template = script_.chat_template;
    info_.sampling = script_.sampling;
    info_.spec.layers = 1;
    info_.spec.context_length = 512;
    options_.context_length = script_.context_length;
    info_.tokenizer = ByteTokenizer();
    fingerprint_.model = info_.fingerprint;
    fingerprint_.numerics = "r1";
    fingerprint_.kv_type = script_.kv_type;
    fingerprint_.backend = script_.backend;
    fingerprint_.protocol = script_.protocol;
    tokenizer_ = *Tokenizer::Create(info_.tokenizer);
  }

  // Sets the function that delivers a computed prefill to its ticket. By default nothing happens.
  void OnPrefill(std::function<void(const TransferTicket&)> deliver) {
    deliver_ = std::move(deliver);
  }

  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) override {
    std::unique_lock lock(mutex_);
    const RequestHandle handle = next_handle_++;
    generated_.push_back(request);
    const absl::Status& refusal =
        request.remote_prefill && script_.refusal.ok() ? script_.hand_off_refusal : script_.refusal;
    if (!refusal.ok()) {
      lock.unlock();
      sink->OnError(refusal);
      return handle;
    }
    live_[handle] = {std::move(request), sink};
    const bool remote = live_[handle].first.remote_prefill;
    changed_.notify_all();
    lock.unlock();
    if (remote) {
      sink->OnTicket({.transfer_id = handle,
                      .receiver_epoch = epoch_,
                      .address = "tcp:127.0.0.1:1",
                      .first_block = 0,
                      .block_count = 1,
                      .timeout_ms = 1000});
    } else {
      Answer(handle);
    }
    return handle;
  }

  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) override {
    {
      std::lock_guard lock(mutex_);
      prefilled_.push_back(request);
      changed_.notify_all();
    }
    if (!script_.refusal.ok()) {
      sink->OnDone(script_.refusal);
    } else if (!script_.finish) {
      std::lock_guard lock(mutex_);
      live_prefills_[next_handle_] = sink;
      return next_handle_++;
    } else {
      if (deliver_) deliver_(request.ticket);
      PrefillResult result;
      result.cached_tokens = 16;
      result.computed_tokens = static_cast<int32_t>(request.prompt.size()) - 16;
      result.chunks = 2;
      sink->OnDone(result);
    }
    std::lock_guard lock(mutex_);
    return next_handle_++;
  }

  int64_t BlocksIn(int64_t bytes) const override { return bytes >> 10; }
  int64_t BytesOf(int32_t blocks) const override { return int64_t{blocks} << 10; }
  absl::StatusOr<PoolSize> Resize(int32_t blocks) override {
    if (!script_.resizes) return absl::FailedPreconditionError("a fake pool");
    const int32_t before = pool_blocks_.exchange(blocks);
    return PoolSize{.before = before, .limit = blocks, .reserved = blocks, .retiring = 0};
  }

  absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace>) override { return 0; }
  absl::StatusOr<int32_t> ClearChunks(std::optional<CacheNamespace> only) override {
    return only.has_value() ? 2 : 5;
  }
  std::vector<ChunkCache::EntryInfo> ListChunks() override { return script_.chunk_entries; }

  void Cancel(RequestHandle handle) override {
    std::shared_ptr<RequestSink> sink;
    std::shared_ptr<PrefillSink> prefill_sink;
    {
      std::lock_guard lock(mutex_);
      cancelled_.push_back(handle);
      if (const auto found = live_.find(handle); found != live_.end()) {
        sink = found->second.second;
        live_.erase(found);
      }
      if (const auto found = live_prefills_.find(handle); found != live_prefills_.end()) {
        prefill_sink = found->second;
        live_prefills_.erase(found);
      }
      changed_.notify_all();
    }
    EndPull(handle, absl::CancelledError("cancelled"));
    if (sink != nullptr) sink->OnError(absl::CancelledError("cancelled"));
    if (prefill_sink != nullptr) prefill_sink->OnDone(absl::CancelledError("cancelled"));
  }

  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      std::function<void(absl::Status)> done) override {
    if (receiver_epoch != epoch_) return done(absl::NotFoundError("another epoch"));
    {
      std::lock_guard lock(mutex_);
      ++prefilled_locally_;
      if (script_.hold_hand_overs) hand_overs_.push_back(done);
      changed_.notify_all();
    }
    if (script_.hold_hand_overs) return;
    done(Answer(transfer_id) ? absl::OkStatus() : absl::NotFoundError("no such transfer"));
  }

  // Answers every open hand-over with NotFound.
  void AnswerHandOvers() {
    std::vector<std::function<void(absl::Status)>> waiting;
    {
      std::lock_guard lock(mutex_);
      waiting.swap(hand_overs_);
    }
    for (const auto& done : waiting) done(absl::NotFoundError("complete"));
  }

  // Sends the scripted answer of a live request. Returns false if the request is not live.
  bool Answer(RequestHandle handle) {
    std::shared_ptr<RequestSink> sink;
    FinishInfo finish;
    GenerateRequest request;
    {
      std::lock_guard lock(mutex_);
      const auto found = live_.find(handle);
      if (found == live_.end()) return false;
      sink = found->second.second;
      request = found->second.first;
      finish.prompt_tokens = static_cast<int32_t>(request.prompt.size());
      if (script_.finish) live_.erase(found);
    }
    if (request.generated.empty()) request.generated.resize(static_cast<size_t>(request.n));
    finish.completion_tokens = script_.tokens;
    for (int32_t choice = 0; choice < request.n; ++choice) {
      const GeneratedPart& part = request.generated[choice];
      for (auto i = static_cast<int32_t>(part.tokens.size()); i < script_.tokens; ++i) {
        sink->OnTokens({.choice = choice,
                        .token_ids = {'a' + i},
                        .text = std::string(1, static_cast<char>('a' + i)),
                        .logprobs = {},
                        .logits_hash = 100 + static_cast<uint64_t>(i)});
      }
      finish.choice = choice;
      finish.last = choice + 1 == request.n;
      if (script_.finish && !part.finished) sink->OnFinish(finish);
    }
    return true;
  }

  // Waits up to 20 s until `done` holds. Returns false on timeout.
  template <typename Predicate>
  bool Eventually(Predicate done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return done(*this); });
  }
  std::vector<GenerateRequest> generated() {
    std::lock_guard lock(mutex_);
    return generated_;
  }
  std::vector<PrefillRequest> prefilled() {
    std::lock_guard lock(mutex_);
    return prefilled_;
  }
  std::vector<PullRequest> pulled() {
    std::lock_guard lock(mutex_);
    return pulled_;
  }
  std::vector<SendPrefixRequest> sent() {
    std::lock_guard lock(mutex_);
    return sent_;
  }
  int prefilled_locally() {
    std::lock_guard lock(mutex_);
    return prefilled_locally_;
  }

  // Adds hashes to the prefix cache, or removes them, and publishes the KV event.
  void Store(const std::vector<Hash128>& hashes) {
    {
      std::lock_guard lock(mutex_);
      cached_.insert(hashes.begin(), hashes.end());
    }
    Publish({.kind = KvEvent::Kind::kStored, .parent = {}, .hashes = hashes});
  }
  void Drop(const std::vector<Hash128>& hashes) {
    {
      std::lock_guard lock(mutex_);
      for (const Hash128& hash : hashes) cached_.erase(hash);
    }
    Publish({.kind = KvEvent::Kind::kRemoved, .parent = {}, .hashes = hashes});
  }
  RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) override {
    std::unique_lock lock(mutex_);
    const RequestHandle handle = next_handle_++;
    pulled_.push_back(request);
    changed_.notify_all();
    live_pulls_[handle] = sink;
    lock.unlock();
    if (!script_.pull_refusal.ok()) {
      EndPull(handle, script_.pull_refusal);
    } else if (script_.pull_has_all) {
      EndPull(handle, PullResult{.tokens = static_cast<int32_t>(request.tokens.size())});
    } else {
      sink->OnTicket({.transfer_id = handle,
                      .receiver_epoch = epoch_,
                      .address = "tcp:127.0.0.1:1",
                      .first_block = 0,
                      .block_count = static_cast<int32_t>(request.tokens.size()) / 16,
                      .block_size = 16,
                      .timeout_ms = request.timeout_ms});
    }
    return handle;
  }
  // Ends a pull that has its ticket. Does nothing if the pull has ended.
  void EndPull(RequestHandle handle, absl::StatusOr<PullResult> result) {
    std::shared_ptr<PullSink> sink;
    {
      std::lock_guard lock(mutex_);
      const auto found = live_pulls_.find(handle);
      if (found == live_pulls_.end()) return;
      sink = found->second;
      live_pulls_.erase(found);
    }
    sink->OnDone(std::move(result));
  }
  // Sets the function that sends a prefix. By default the engine has no prefix cached.
  using SendDone = std::function<void(absl::StatusOr<int32_t>)>;
  using Send = std::function<void(const SendPrefixRequest&, const SendDone& done)>;
  void OnSend(Send send) { send_ = std::move(send); }
  void SendPrefix(SendPrefixRequest request, SendDone done) override {
    {
      std::lock_guard lock(mutex_);
      sent_.push_back(request);
      changed_.notify_all();
    }
    if (send_ == nullptr) return done(absl::NotFoundError("nothing is cached"));
    send_(request, done);
  }

  KvEventFeed* kv_events() override { return script_.prefix_cache ? &kv_event_feed_ : nullptr; }
  // Makes a snapshot of an empty part and one part for each hash.
  void SnapshotKvEvents(KvEventSnapshotDone done) override {
    KvEventSnapshot snapshot{.sequence = kv_event_feed_.last(), .parts = {EncodeKvEvents({})}};
    {
      std::lock_guard lock(mutex_);
      for (const Hash128& hash : cached_) {
        const KvEvent event{.kind = KvEvent::Kind::kStored, .parent = {}, .hashes = {hash}};
        snapshot.parts.push_back(EncodeKvEvents({&event, 1}));
      }
    }
    done(std::make_shared<const KvEventSnapshot>(std::move(snapshot)));
  }

  EngineStatus Status() override {
    EngineStatus status;
    status.prefix_cache = script_.prefix_cache;
    status.block_size = 16;
    status.pool.limit = pool_blocks_;
    status.cache.blocks.total = 1000;
    status.cache.blocks.free = 1000;
    status.context_length = script_.context_length;
    if (script_.chunks) {
      status.prompt_chunks = std::make_shared<const PromptChunkSupport>(*script_.chunks);
    }
    return status;
  }
  EngineInspection Inspect() override { return {}; }
  const KvFingerprint& fingerprint() const override { return fingerprint_; }
  Epoch epoch() const override { return epoch_; }
  const ModelInfo& model_info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const EngineOptions& options() const override { return options_; }
  // Makes the engine look as if its loop had stopped.
  void Hang() { hangs_ = true; }
  absl::Status CheckWatchdog() const override {
    return hangs_ ? absl::UnavailableError("the engine hangs") : absl::OkStatus();
  }
  std::string StartupReport() const override { return "fake\n"; }

  // Call these only inside Eventually, which holds the lock.
  size_t generated_count() const { return generated_.size(); }
  size_t prefilled_count() const { return prefilled_.size(); }
  size_t cancelled_count() const { return cancelled_.size(); }
  size_t hand_over_count() const { return hand_overs_.size(); }
  size_t pulled_count() const { return pulled_.size(); }
  size_t live_pull_count() const { return live_pulls_.size(); }
  size_t sent_count() const { return sent_.size(); }

 private:
  void Publish(const KvEvent& event) { kv_event_feed_.Publish({EncodeKvEvents({&event, 1})}); }

  const Script script_;
  EngineOptions options_;
  const Epoch epoch_;
  ModelInfo info_;
  KvFingerprint fingerprint_;
  std::atomic<bool> hangs_ = false;
  std::atomic<int32_t> pool_blocks_ = 0;  // 0: not reported
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::function<void(const TransferTicket&)> deliver_;
  Send send_;

  std::mutex mutex_;
  std::condition_variable changed_;
  RequestHandle next_handle_ = 1;
  std::map<RequestHandle, std::pair<GenerateRequest, std::shared_ptr<RequestSink>>> live_;
  std::map<RequestHandle, std::shared_ptr<PrefillSink>> live_prefills_;
  std::map<RequestHandle, std::shared_ptr<PullSink>> live_pulls_;
  std::vector<PullRequest> pulled_;
  std::vector<SendPrefixRequest> sent_;
  std::vector<GenerateRequest> generated_;
  std::vector<PrefillRequest> prefilled_;
  std::vector<RequestHandle> cancelled_;
  int prefilled_locally_ = 0;
  std::vector<std::function<void(absl::Status)>> hand_overs_;
  std::set<Hash128> cached_;
  KvEventFeed kv_event_feed_;
};

}  // namespace baton
