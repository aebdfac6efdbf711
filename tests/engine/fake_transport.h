// A transport that reports what the test tells it, and detects misuse.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/transport.h"
#include "tests/engine/fake_worker_parts.h"

namespace baton {

// Transport without a peer. It records its posts and reports what the test says. It uses its blocks
// until the terminal event, so another user of such a block reads damaged data.
class FakeTransport final : public KvTransport {
 public:
  explicit FakeTransport(ChainPool* pool) : pool_(pool) {}

  struct Receive {
    ReceiveSpec spec;
    int cancels = 0;
  };
  struct Send {
    SendSpec spec;
    std::vector<BlockId> blocks;               // rows
    std::vector<std::vector<uint64_t>> slots;  // content of these blocks when announced
    bool final = false;
    std::string manifest;
    int cancels = 0;
    std::vector<int32_t> layers;     // layers of the rest, as announced
    std::vector<BlockId> rest = {};  // the blocks of these layers
  };

  absl::Status next_post;  // returned once, by the next Expect or StartSend
  std::map<uint64_t, Receive> receives;
  std::map<uint64_t, Send> sends;

  std::string address() const override { return "fake:here"; }
  Epoch epoch() const override { return Epoch(77); }

  absl::Status Expect(ReceiveSpec spec) override {
    if (!next_post.ok()) return std::exchange(next_post, absl::OkStatus());
    const uint64_t id = spec.transfer_id;
    EXPECT_EQ(spec.blocks.size() % groups(), 0);
    for (size_t at = 0; at < spec.blocks.size(); ++at) {
      reported_.erase({GroupOf(at), spec.blocks[at]});
    }
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
    if (!sends.contains(id)) return;  // ended but not polled yet
    Send& send = sends[id];
    EXPECT_FALSE(send.final) << "announced again after the final announcement";
    EXPECT_TRUE(send.rest.empty() || std::ranges::equal(send.rest, blocks));
    EXPECT_TRUE(final || !blocks.empty());
    EXPECT_EQ(blocks.size() % groups(), 0);
    for (size_t at = 0; at < blocks.size(); ++at) {
      send.blocks.push_back(blocks[at]);
      send.slots.push_back(SlotsOf(blocks, at));
      const auto reported = reported_.find({GroupOf(at), blocks[at]});
      EXPECT_TRUE(reported == reported_.end() || reported->second == send.slots.back())
          << "block " << blocks[at] << " was written after it was reported as full";
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
  std::function<void()> after_layers;  // runs after layers were announced
  void CancelSend(uint64_t id) override {
    if (sends.contains(id)) ++sends[id].cancels;
  }
  void Written(std::span<const BlockId> full, std::span<const BlockId> part,
               int32_t group) override {
    for (const BlockId block : part) reported_.erase({group, block});
    for (const BlockId block : full) reported_[{group, block}] = pool_->Slots(block, group);
  }
  std::vector<TransferEvent> Poll() override { return std::exchange(events_, {}); }
  // Number of full blocks that the engine reported and has not rewritten since, by its own reports.
  size_t reported_full() const { return reported_.size(); }

  // Delivers the prompt's KV with this manifest. With `blocks`, delivers only so many blocks; the
  // sender must be allowed to end early.
  void Deliver(uint64_t id, const std::vector<TokenId>& prompt, std::string manifest,
               std::optional<int32_t> blocks = std::nullopt) {
    const ReceiveSpec spec = Take(receives, id).spec;
    EXPECT_TRUE(spec.may_end_early || !blocks.has_value());
    const int32_t landed = blocks.value_or(static_cast<int32_t>(spec.blocks.size() / groups()));
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
  // Fails the transfer. The first `landed` blocks have the prompt's KV; the rest is damaged.
  void FailReceive(uint64_t id, const absl::Status& why, int32_t landed = 0,
                   const std::vector<TokenId>& prompt = {}) {
    const ReceiveSpec spec = Take(receives, id).spec;
    for (size_t at = 0; at < spec.blocks.size(); ++at) {
      for (int32_t i = 0; i < pool_->layout().block_size() && spec.blocks[at] != kNoBlock; ++i) {
        pool_->Set(spec.blocks[at], i, 0xDEAD, GroupOf(at));
      }
    }
    WriteChain(spec, prompt, landed);
    events_.push_back(Event(TransferEvent::Kind::kReceiveFailed, id, why));
    events_.back().blocks_done = landed;
  }
  // Ends a send. Checks that the announced blocks still have the announced content.
  void EndSend(uint64_t id, const absl::Status& status) {
    const Send send = Take(sends, id);
    for (size_t at = 0; at < send.blocks.size(); ++at) {
      EXPECT_EQ(SlotsOf(send.blocks, at), send.slots[at]) << "block " << send.blocks[at];
    }
    events_.push_back(Event(
        status.ok() ? TransferEvent::Kind::kSent : TransferEvent::Kind::kSendFailed, id, status));
  }

 private:
  // Writes the KV of the first `count` requested blocks.
  void WriteChain(const ReceiveSpec& spec, const std::vector<TokenId>& prompt, int32_t count) {
    const int32_t block_size = pool_->layout().block_size();
    uint64_t chain = 0;
    for (int32_t slot = 0; slot < static_cast<int32_t>(prompt.size()); ++slot) {
      chain = ChainPool::Chain(chain, prompt[slot]);
      const int32_t block = slot / block_size - spec.first_block;
      if (block < 0 || block >= count) continue;
      for (size_t group = 0; group < groups(); ++group) {
        const BlockId to = spec.blocks.at(block * groups() + group);
        if (to != kNoBlock) pool_->Set(to, slot % block_size, chain, static_cast<int32_t>(group));
      }
    }
  }
  size_t groups() const { return static_cast<size_t>(pool_->groups()); }
  int32_t GroupOf(size_t at) const { return static_cast<int32_t>(at % groups()); }
  std::vector<uint64_t> SlotsOf(std::span<const BlockId> rows, size_t at) const {
    if (rows[at] == kNoBlock) return {};
    return pool_->Slots(rows[at], GroupOf(at));
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
  std::map<std::pair<int32_t, BlockId>, std::vector<uint64_t>> reported_;  // by group and block
};

}  // namespace baton
