// The parts of a worker that WorkerCore decides over, as fakes that notice misuse: a model that
// needs its KV, a transport that is told what to report, and sinks that count terminal calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache_spec.h"
#include "engine/handoff_manifest.h"
#include "engine/request.h"
#include "kvtransfer/transport.h"
#include "model/inline_runner.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace baton {

inline constexpr int32_t kFakeVocabulary = 257;  // the bytes, then the end token
inline constexpr TokenId kEndToken = 256;
inline constexpr int32_t kFakeLayers = 3;  // that the runner says it wrote, one after the other

inline std::unique_ptr<const Tokenizer> MakeByteTokenizer() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  spec.tokens.push_back("<|end|>");
  spec.token_types.assign(256, 1);
  spec.token_types.push_back(3);
  spec.eos = kEndToken;
  return *Tokenizer::Create(spec);
}

inline std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

// The memory of a KV pool, one number a slot: a chain over all tokens up to it.
class ChainPool {
 public:
  ChainPool(int32_t num_blocks, int32_t block_size)
      : layout_(*KvLayout::Create({.layers = 1, .kv_heads = 1, .head_dim = 4, .type = KvType::kF32},
                                  KvLayoutKind::kBlockMajor, block_size, num_blocks)),
        bytes_(static_cast<size_t>(layout_.pool_bytes())) {}

  static uint64_t Chain(uint64_t before, TokenId token) {
    const uint64_t x = (before ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ull + 1;
    return x ^ (x >> 29);
  }

  const KvLayout& layout() const { return layout_; }
  std::byte* base() { return bytes_.data(); }

  uint64_t Get(BlockId block, int32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + Offset(block, offset), sizeof(value));
    return value;
  }
  void Set(BlockId block, int32_t offset, uint64_t value) {
    std::memcpy(bytes_.data() + Offset(block, offset), &value, sizeof(value));
  }
  std::vector<uint64_t> Slots(BlockId block) const {
    std::vector<uint64_t> slots;
    for (int32_t i = 0; i < layout_.block_size(); ++i) slots.push_back(Get(block, i));
    return slots;
  }

 private:
  size_t Offset(BlockId block, int32_t offset) const {
    return static_cast<size_t>(layout_.PieceOffset(0, false, block.value()) +
                               offset * layout_.token_stride() * 4);
  }

  const KvLayout layout_;
  std::vector<std::byte> bytes_;
};

// Says the token that the chain of everything before it asks for, read through the block table.
// What is not wanted any more, it leaves as damage.
class FakeRunner final : public InlineRunner {
 public:
  explicit FakeRunner(ChainPool* pool) : pool_(pool) {}

  // Which token follows; by default a letter. `length`: tokens before it.
  std::function<TokenId(uint64_t chain, int32_t length)> choose = [](uint64_t chain, int32_t) {
    return static_cast<TokenId>('a' + chain % 26);
  };
  absl::Status next_status;                  // of the next Run, once
  std::function<void()> during_step;         // what happens meanwhile
  std::function<void()> after_chunk;         // and when a chunk is half done
  std::optional<TokenId> poison;             // logits behind it are NaN
  std::vector<std::vector<int32_t>> counts;  // tokens of every chunk of every step
  int64_t copied_blocks = 0;

  absl::Status Run(const StepInput& input) override {
    if (!next_status.ok()) return std::exchange(next_status, absl::OkStatus());
    if (during_step) during_step();
    rows_.clear();
    counts.emplace_back();
    for (int32_t i = 0; i < Wanted(input); ++i) {
      RunChunk(input.chunks[i]);
      if (after_chunk) after_chunk();
    }
    for (int32_t layers = 1; layers <= kFakeLayers && Wanted(input) > 0; ++layers) {
      if (input.kv_written) input.kv_written(layers, Wanted(input));
    }
    for (size_t i = Wanted(input); i < input.chunks.size(); ++i) Spoil(input.chunks[i]);
    return Wanted(input) > 0 ? absl::OkStatus() : absl::CancelledError("abandoned");
  }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      ++copied_blocks;
      for (int32_t i = 0; i < copy.tokens; ++i) {
        pool_->Set(copy.to, i, pool_->Get(copy.from, i));
      }
    }
    return absl::OkStatus();
  }
  std::span<const float> LogitsOf(int32_t row) const override {
    return rows_.at(static_cast<size_t>(row));
  }

  std::vector<float> Row(uint64_t chain, int32_t length) const {
    std::vector<float> row(kFakeVocabulary);
    for (int32_t t = 0; t < kFakeVocabulary; ++t) {
      row[t] = static_cast<float>((chain >> (t % 48)) & 7) * 0.125f;
    }
    row[choose(chain, length)] = 4;
    return row;
  }
  // What a greedy request must say, computed without any KV.
  std::vector<TokenId> Continuation(const std::vector<TokenId>& prompt, int32_t count) const {
    uint64_t chain = 0;
    for (const TokenId token : prompt) chain = ChainPool::Chain(chain, token);
    std::vector<TokenId> said;
    while (static_cast<int32_t>(said.size()) < count) {
      said.push_back(choose(chain, static_cast<int32_t>(prompt.size() + said.size())));
      chain = ChainPool::Chain(chain, said.back());
    }
    return said;
  }

 private:
  static int32_t Wanted(const StepInput& input) {
    return input.wanted ? input.wanted() : static_cast<int32_t>(input.chunks.size());
  }
  void Spoil(const StepChunk& chunk) {
    const int32_t block_size = pool_->layout().block_size();
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const int32_t slot = chunk.begin_slot + static_cast<int32_t>(i);
      pool_->Set(chunk.block_table[slot / block_size], slot % block_size, 0xBAD);
    }
  }
  void RunChunk(const StepChunk& chunk) {
    counts.back().push_back(static_cast<int32_t>(chunk.tokens.size()));
    const int32_t block_size = pool_->layout().block_size();
    ASSERT_EQ(chunk.begin_slot, chunk.begin_position);
    ASSERT_LE(chunk.logit_rows, 1);
    int32_t slot = chunk.begin_slot;
    uint64_t chain = 0;
    if (slot > 0) {
      chain = pool_->Get(chunk.block_table[(slot - 1) / block_size], (slot - 1) % block_size);
    }
    for (const TokenId token : chunk.tokens) {
      ASSERT_TRUE(token >= 0 && token < kFakeVocabulary) << token;
      chain = ChainPool::Chain(chain, token);
      ASSERT_LT(slot / block_size, chunk.block_table.size());
      pool_->Set(chunk.block_table[slot / block_size], slot % block_size, chain);
      ++slot;
    }
    if (chunk.logit_rows == 0) return;
    rows_.push_back(Row(chain, slot));
    if (chunk.tokens.back() == poison) {
      rows_.back()[7] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  ChainPool* const pool_;
  std::vector<std::vector<float>> rows_;
};

// A transport without a peer: remembers its posts, and reports what the test says. It uses the
// blocks that it was given until the terminal event, so that whoever else got them reads damage.
class FakeTransport final : public KvTransport {
 public:
  explicit FakeTransport(ChainPool* pool) : pool_(pool) {}

  struct Receive {
    ReceiveSpec spec;
    int cancels = 0;
  };
  struct Send {
    SendSpec spec;
    std::vector<BlockId> blocks;
    std::vector<std::vector<uint64_t>> slots;  // as announced
    bool final = false;
    std::string manifest;
    int cancels = 0;
    std::vector<int32_t> layers;     // announced of the rest, one after the other
    std::vector<BlockId> rest = {};  // of which they were
  };

  absl::Status next_post;  // of the next Expect or StartSend, once
  std::map<uint64_t, Receive> receives;
  std::map<uint64_t, Send> sends;

  std::string address() const override { return "fake:here"; }
  Epoch epoch() const override { return Epoch(77); }

  absl::Status Expect(ReceiveSpec spec) override {
    if (!next_post.ok()) return std::exchange(next_post, absl::OkStatus());
    const uint64_t id = spec.transfer_id;
    for (const BlockId block : spec.blocks) reported_.erase(block);
    EXPECT_TRUE(receives.emplace(id, Receive{std::move(spec), 0}).second);
    return absl::OkStatus();
  }
  void CancelReceive(uint64_t id) override {
    if (receives.contains(id)) ++receives[id].cancels;
  }
  absl::Status StartSend(SendSpec spec) override {
    if (!next_post.ok()) return std::exchange(next_post, absl::OkStatus());
    const uint64_t id = spec.sender_transfer;
    EXPECT_TRUE(sends.emplace(id, Send{std::move(spec), {}, {}, false, {}, 0, {}, {}}).second);
    return absl::OkStatus();
  }
  void Announce(uint64_t id, std::span<const BlockId> blocks, bool final,
                std::string manifest) override {
    if (!sends.contains(id)) return;  // ended, not polled yet
    Send& send = sends[id];
    EXPECT_FALSE(send.final) << "announced again after the final announcement";
    EXPECT_TRUE(send.rest.empty() || std::ranges::equal(send.rest, blocks));
    EXPECT_TRUE(final || !blocks.empty());
    for (const BlockId block : blocks) {
      send.blocks.push_back(block);
      send.slots.push_back(pool_->Slots(block));
      const auto reported = reported_.find(block);
      EXPECT_TRUE(reported == reported_.end() || reported->second == send.slots.back())
          << "block " << block << " was written after it was reported as full";
    }
    send.final = final;
    send.manifest = std::move(manifest);
  }
  void AnnounceLayers(uint64_t id, std::span<const BlockId> rest, int32_t layers) override {
    if (!sends.contains(id)) return;
    Send& send = sends[id];
    EXPECT_FALSE(send.final);
    EXPECT_FALSE(rest.empty());
    EXPECT_TRUE(send.layers.empty() || send.layers.back() < layers);
    EXPECT_TRUE(send.layers.empty() || std::ranges::equal(send.rest, rest));
    send.layers.push_back(layers);
    send.rest.assign(rest.begin(), rest.end());
    if (after_layers) after_layers();
  }
  std::function<void()> after_layers;  // what happens when they are announced
  void CancelSend(uint64_t id) override {
    if (sends.contains(id)) ++sends[id].cancels;
  }
  void Written(std::span<const BlockId> full, std::span<const BlockId> part,
               int32_t group) override {
    CHECK_EQ(group, 0);
    for (const BlockId block : part) reported_.erase(block);
    for (const BlockId block : full) reported_[block] = pool_->Slots(block);
  }
  std::vector<TransferEvent> Poll() override { return std::exchange(events_, {}); }
  // Full blocks that the engine reported, and have not been written since as far as it said.
  size_t reported_full() const { return reported_.size(); }

  // The prompt's KV lands, with this manifest; where the sender may end early, `blocks` of it.
  void Deliver(uint64_t id, const std::vector<TokenId>& prompt, std::string manifest,
               std::optional<int32_t> blocks = std::nullopt) {
    const ReceiveSpec spec = Take(receives, id).spec;
    EXPECT_TRUE(spec.may_end_early || !blocks.has_value());
    const int32_t landed = blocks.value_or(static_cast<int32_t>(spec.blocks.size()));
    WriteChain(spec, prompt, landed);
    events_.push_back({.kind = TransferEvent::Kind::kReceived,
                       .id = id,
                       .blocks_done = landed,
                       .manifest = std::move(manifest),
                       .status = {},
                       .bytes = 1000,
                       .busy_us = 10});
  }
  void Progress(uint64_t id) {
    events_.push_back(Event(TransferEvent::Kind::kReceiving, id, absl::OkStatus()));
  }
  // The first `landed` blocks of the prompt's KV are there; the rest is wrong.
  void FailReceive(uint64_t id, const absl::Status& why, int32_t landed = 0,
                   const std::vector<TokenId>& prompt = {}) {
    const ReceiveSpec spec = Take(receives, id).spec;
    for (const BlockId block : spec.blocks) {
      for (int32_t i = 0; i < pool_->layout().block_size(); ++i) pool_->Set(block, i, 0xDEAD);
    }
    WriteChain(spec, prompt, landed);
    events_.push_back(Event(TransferEvent::Kind::kReceiveFailed, id, why));
    events_.back().blocks_done = landed;
  }
  // The receiver has read the announced blocks: they still hold what they held then.
  void EndSend(uint64_t id, const absl::Status& status) {
    const Send send = Take(sends, id);
    for (size_t i = 0; i < send.blocks.size(); ++i) {
      EXPECT_EQ(pool_->Slots(send.blocks[i]), send.slots[i]) << "block " << send.blocks[i];
    }
    events_.push_back(Event(
        status.ok() ? TransferEvent::Kind::kSent : TransferEvent::Kind::kSendFailed, id, status));
  }

 private:
  // The KV of the first `count` blocks that were asked for.
  void WriteChain(const ReceiveSpec& spec, const std::vector<TokenId>& prompt, int32_t count) {
    const int32_t block_size = pool_->layout().block_size();
    uint64_t chain = 0;
    for (int32_t slot = 0; slot < static_cast<int32_t>(prompt.size()); ++slot) {
      chain = ChainPool::Chain(chain, prompt[slot]);
      const int32_t block = slot / block_size - spec.first_block;
      if (block >= 0 && block < count) pool_->Set(spec.blocks.at(block), slot % block_size, chain);
    }
  }
  static TransferEvent Event(TransferEvent::Kind kind, uint64_t id, const absl::Status& status) {
    return {.kind = kind,
            .id = id,
            .blocks_done = 0,
            .manifest = {},
            .status = status,
            .bytes = 1000,
            .busy_us = 10,
            .exposed_us = 4};
  }
  template <typename Live>
  static Live Take(std::map<uint64_t, Live>& live, uint64_t id) {
    auto node = live.extract(id);
    EXPECT_FALSE(node.empty()) << "no live transfer " << id;
    return std::move(node.mapped());
  }

  ChainPool* const pool_;
  std::vector<TransferEvent> events_;
  std::map<BlockId, std::vector<uint64_t>> reported_;
};

struct SinkRecord {
  std::optional<TransferTicket> ticket;
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<TokenDetail> logprobs;
  // What had come with every call of OnTokens.
  struct Progress {
    size_t tokens;
    size_t text_bytes;
    uint64_t logits_hash;
  };
  std::vector<Progress> progress;
  std::optional<FinishInfo> finish;
  std::optional<absl::Status> error;
  // This one is of choice 0, and of the request; the others are of what came for them.
  std::map<int32_t, SinkRecord> others;
  bool last_finished = false;
  bool ended() const { return last_finished || error.has_value(); }
  SinkRecord& Choice(int32_t choice) { return choice == 0 ? *this : others[choice]; }
};

class RecordingSink final : public RequestSink {
 public:
  explicit RecordingSink(std::shared_ptr<SinkRecord> record) : record_(std::move(record)) {}
  void OnTicket(const TransferTicket& ticket) override {
    EXPECT_TRUE(record_->tokens.empty() && !record_->ended()) << "a ticket is the first call";
    EXPECT_FALSE(record_->ticket.has_value());
    record_->ticket = ticket;
  }
  void OnTokens(TokenOutput output) override {
    EXPECT_FALSE(record_->ended()) << "tokens behind the end";
    SinkRecord& choice = record_->Choice(output.choice);
    EXPECT_FALSE(choice.finish.has_value()) << "tokens behind the choice's end";
    choice.tokens.insert(choice.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    choice.text += output.text;
    for (TokenDetail& detail : output.logprobs) choice.logprobs.push_back(std::move(detail));
    choice.progress.push_back({choice.tokens.size(), choice.text.size(), output.logits_hash});
  }
  void OnFinish(FinishInfo info) override {
    EXPECT_FALSE(record_->ended()) << "a second end";
    SinkRecord& choice = record_->Choice(info.choice);
    EXPECT_FALSE(choice.finish.has_value()) << "a second end of the choice";
    choice.text += info.text;
    record_->last_finished = info.last;
    choice.finish = std::move(info);
  }
  void OnError(absl::Status status) override {
    EXPECT_FALSE(record_->ended()) << "a second end";
    EXPECT_FALSE(status.ok());
    record_->error = std::move(status);
  }

 private:
  const std::shared_ptr<SinkRecord> record_;
};

struct PullRecord {
  std::optional<TransferTicket> ticket;
  std::optional<absl::StatusOr<PullResult>> done;
};

class RecordingPullSink final : public PullSink {
 public:
  explicit RecordingPullSink(std::shared_ptr<PullRecord> record) : record_(std::move(record)) {}
  void OnTicket(const TransferTicket& ticket) override {
    EXPECT_FALSE(record_->ticket.has_value()) << "a second ticket";
    EXPECT_FALSE(record_->done.has_value()) << "a ticket behind the end";
    record_->ticket = ticket;
  }
  void OnDone(absl::StatusOr<PullResult> result) override {
    EXPECT_FALSE(record_->done.has_value()) << "a second end";
    record_->done = std::move(result);
  }

 private:
  const std::shared_ptr<PullRecord> record_;
};

struct PrefillRecord {
  std::optional<absl::StatusOr<PrefillResult>> done;
};

class RecordingPrefillSink final : public PrefillSink {
 public:
  explicit RecordingPrefillSink(std::shared_ptr<PrefillRecord> record)
      : record_(std::move(record)) {}
  void OnDone(absl::StatusOr<PrefillResult> result) override {
    EXPECT_FALSE(record_->done.has_value()) << "a second end";
    record_->done = std::move(result);
  }

 private:
  const std::shared_ptr<PrefillRecord> record_;
};

}  // namespace baton
