// A prefill worker and a decode worker with the fake model, connected by the loopback transport.
// The test runs their steps.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/chunked_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {

struct PairedRequest {
  GenerateRequest request;
  RequestHandle decode = 0;
  RequestHandle prefill = 0;  // 0: not started
  std::shared_ptr<SinkRecord> record;
  std::shared_ptr<PrefillRecord> prefilled;
  bool gave_up = false;  // the decode worker knows that the prefill has failed
};

class ChunkPair {
 public:
  ChunkPair(const BenchOptions& prefill, const BenchOptions& decode)
      : network_(CreateLoopbackNetwork()),
        prefills(prefill, network_, "prefill"),
        decodes(decode, network_, "decode") {
    for (WorkerBench* bench : {&prefills, &decodes}) {
      bench->next_transfer_id = [next = uint64_t{1000}]() mutable { return next++; };
    }
  }
  explicit ChunkPair(const BenchOptions& both = {}) : ChunkPair(both, both) {}

  // Opens the request at the decode worker.
  PairedRequest Open(GenerateRequest request) {
    PairedRequest opened;
    opened.request = std::move(request);
    opened.request.remote_prefill = true;
    opened.record = decodes.Generate(opened.request);
    opened.decode = decodes.last_handle - opened.request.n + 1;
    return opened;
  }
  // Sends its ticket to the prefill worker.
  void Prefill(PairedRequest& opened) {
    const GenerateRequest& request = opened.request;
    PrefillRequest prefill;
    prefill.request_id = "prefill";
    prefill.prompt = request.prompt;
    prefill.chunked = request.chunked;
    prefill.n = request.n;
    if (request.n == 1 && !request.generated.empty()) {
      prefill.generated = request.generated.front();
    }
    prefill.sampling = request.sampling;
    prefill.cache_namespace = request.cache_namespace;
    prefill.priority = request.priority;
    prefill.ticket = *opened.record->ticket;
    opened.prefilled = std::make_shared<PrefillRecord>();
    opened.prefill = ++prefills.last_handle;
    prefills.core->AddPrefill(opened.prefill, std::move(prefill),
                              std::make_shared<RecordingPrefillSink>(opened.prefilled));
  }
  // What a router does if the prefill has failed.
  void GiveUpIfFailed(PairedRequest& opened) {
    if (opened.gave_up || opened.prefilled == nullptr) return;
    if (!opened.prefilled->done.has_value() || opened.prefilled->done->ok()) return;
    GiveUp(opened);
  }
  void GiveUp(PairedRequest& opened) {
    opened.gave_up = true;
    const TransferTicket& ticket = *opened.record->ticket;
    decodes.core->PrefillLocally(ticket.transfer_id, ticket.receiver_epoch).IgnoreError();
  }
  PairedRequest Start(const ChunkedPrompt& prompt, int32_t max_tokens) {
    PairedRequest opened = Open(ChunkedRequest(prompt, max_tokens));
    if (opened.record->ticket.has_value()) Prefill(opened);
    return opened;
  }
  struct PairedPull {
    WorkerBench* receiver = nullptr;
    RequestHandle handle = 0;
    std::shared_ptr<PullRecord> record;
  };
  // Pulls the prompt's chunks into the cache of `receiver`. The other worker is the source, unless
  // the ticket is lost.
  PairedPull Pull(WorkerBench& receiver, ChunkedPrompt prompt, bool lost = false) {
    PairedPull pull{.receiver = &receiver, .record = std::make_shared<PullRecord>()};
    prompt.question.clear();
    pull.handle = ++receiver.last_handle;
    receiver.core->PullPrefix(
        pull.handle,
        {.tokens = {}, .cache_namespace = CacheNamespace(0), .timeout_ms = 0, .chunked = prompt},
        std::make_shared<RecordingPullSink>(pull.record));
    if (!pull.record->ticket.has_value() || lost) return pull;
    WorkerBench& source = &receiver == &prefills ? decodes : prefills;
    const absl::Status sent =
        source.core
            ->SendPrefix(++source.last_handle, {.tokens = {},
                                                .cache_namespace = CacheNamespace(0),
                                                .ticket = *pull.record->ticket,
                                                .chunked = std::move(prompt)})
            .status();
    if (!sent.ok()) receiver.core->Cancel(pull.handle);
    return pull;
  }
  void Run() { RunBoth(prefills, decodes); }
  // Same, with a router that reacts to failed prefills. Returns false if the workers never become
  // idle.
  bool Run(std::span<PairedRequest> requests) {
    for (int i = 0; i < 100'000; ++i) {
      for (PairedRequest& one : requests) GiveUpIfFailed(one);
      if (prefills.core->idle() && decodes.core->idle()) return true;
      const bool worked = prefills.Turn();
      if (!decodes.Turn() && !worked) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return false;
  }
  void ExpectAllBlocksHome() {
    prefills.ExpectAllBlocksHome();
    decodes.ExpectAllBlocksHome();
  }

 private:
  const std::shared_ptr<LoopbackNetwork> network_;

 public:
  WorkerBench prefills;
  WorkerBench decodes;
};

}  // namespace baton
