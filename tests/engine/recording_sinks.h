// Sinks that record a worker's answers, and detect calls out of order or after the end.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace baton {

struct SinkRecord {
  std::optional<TransferTicket> ticket;
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<TokenDetail> logprobs;
  // Totals after each call of OnTokens.
  struct Progress {
    size_t tokens;
    size_t text_bytes;
    uint64_t logits_hash;
  };
  std::vector<Progress> progress;
  std::optional<FinishInfo> finish;
  std::optional<absl::Status> error;
  // This record is for choice 0 and for the whole request. `others` has the other choices.
  std::map<int32_t, SinkRecord> others;
  bool last_finished = false;
  bool ended() const { return last_finished || error.has_value(); }
  SinkRecord& Choice(int32_t choice) { return choice == 0 ? *this : others[choice]; }
};

class RecordingSink final : public RequestSink {
 public:
  explicit RecordingSink(std::shared_ptr<SinkRecord> record) : record_(std::move(record)) {}
  void OnTicket(const TransferTicket& ticket) override {
    EXPECT_TRUE(record_->tokens.empty() && !record_->ended())
        << "the ticket must be the first call";
    EXPECT_FALSE(record_->ticket.has_value());
    record_->ticket = ticket;
  }
  void OnTokens(TokenOutput output) override {
    EXPECT_FALSE(record_->ended()) << "tokens after the end";
    SinkRecord& choice = record_->Choice(output.choice);
    EXPECT_FALSE(choice.finish.has_value()) << "tokens after the choice's end";
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
    EXPECT_FALSE(record_->done.has_value()) << "a ticket after the end";
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
