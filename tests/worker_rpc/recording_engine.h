// Engine that records the requests of a worker's calls. The test sends the answers.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_requests.h"

namespace baton {

class RecordingEngine final : public EngineRequests {
 public:
  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) override {
    asked = std::move(request);
    generate = std::move(sink);
    return Name();
  }
  RequestHandle Prefill(PrefillRequest, std::shared_ptr<PrefillSink> sink) override {
    prefill = std::move(sink);
    return Name();
  }
  RequestHandle PullPrefix(PullRequest, std::shared_ptr<PullSink> sink) override {
    pull = std::move(sink);
    return Name();
  }
  void SendPrefix(SendPrefixRequest, std::function<void(absl::StatusOr<int32_t>)> done) override {
    sent = std::move(done);
  }
  void PrefillLocally(uint64_t, Epoch, std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Cancel(RequestHandle handle) override { cancelled.push_back(handle); }
  KvEventFeed* kv_events() override { return feed.get(); }
  void SnapshotKvEvents(KvEventSnapshotDone done) override { snapshots.push_back(std::move(done)); }
  absl::Status CheckWatchdog() const override { return watchdog; }
  Epoch epoch() const override { return Epoch(7); }

  GenerateRequest asked;
  std::shared_ptr<RequestSink> generate;
  std::shared_ptr<PrefillSink> prefill;
  std::shared_ptr<PullSink> pull;
  std::function<void(absl::StatusOr<int32_t>)> sent;
  std::function<void()> before_named = [] {};
  int requests = 0;
  RequestHandle last = 0;
  std::vector<RequestHandle> cancelled;
  std::unique_ptr<KvEventFeed> feed;
  std::vector<KvEventSnapshotDone> snapshots;
  absl::Status watchdog;

 private:
  RequestHandle Name() {
    before_named();
    ++requests;
    return ++last;
  }
};

}  // namespace baton
