// A prefill engine and a decode engine in one process, joined by a KV transport: the disaggregated
// path without a network of processes.
//
// Plays the router's part in the smallest way: every request prefills on one engine, its KV
// travels, and the other decodes. For tests of exactness and for `baton run --transport`.
//
// Thread safety: as Engine.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "kvtransfer/protocol/fingerprint.h"

namespace baton {

enum class PairTransport : uint8_t { kLoopback, kTcp, kShm };

class InProcessPair {
 public:
  InProcessPair();
  // Cancels what runs. Ends the prefill engine first, so that its sends end before the receiver
  // does.
  ~InProcessPair();

  // Both engines run with `options`, the prefill engine with a pool that is cut as `prefill_pool`
  // says and holds as much; the model is loaded twice.
  static absl::StatusOr<std::unique_ptr<InProcessPair>> Create(
      const EngineOptions& options, PairTransport transport,
      std::optional<KvGeometry> prefill_pool = std::nullopt);

  // As Engine::Generate; the sink sees no ticket.
  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink);
  void Cancel(RequestHandle handle) { decode_->Cancel(handle); }

  Engine& prefill() { return *prefill_; }
  Engine& decode() { return *decode_; }

 private:
  class PrefillDoor;
  class PrefillSinkOfPair;
  class RequestSinkOfPair;

  std::unique_ptr<Engine> decode_;
  std::unique_ptr<Engine> prefill_;
  std::shared_ptr<PrefillDoor> door_;
};

}  // namespace baton
