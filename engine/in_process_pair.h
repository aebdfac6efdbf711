// A prefill engine and a decode engine in one process, connected by a KV transport. This is the
// disaggregated path without separate processes.
//
// The pair replaces the router: every request is prefilled on one engine, its KV is transferred,
// and the other engine decodes. Exactness tests and `baton run --transport` use it.
//
// Thread safety: as Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "kvtransfer/protocol/fingerprint.h"

namespace baton {

// kNccl: as the workers' --transport nccl, so over TCP where NCCL cannot be used. NVIDIA's NCCL
// refuses two ranks on one GPU.
enum class PairTransport : uint8_t { kLoopback, kTcp, kShm, kNccl };

class InProcessPair {
 public:
  InProcessPair();
  // Cancels all requests. Destroys the prefill engine first, so that its sends end before the
  // receiver does.
  ~InProcessPair();

  // Creates both engines with `options`. `prefill_pool`, if given, sets layout and block size of
  // the prefill engine's pool, which then has room for as many tokens. `prefill_ranks` is the
  // prefill engine's tensor-parallel degree; 0: that of `options`. The model is loaded twice.
  static absl::StatusOr<std::unique_ptr<InProcessPair>> Create(
      const EngineOptions& options, PairTransport transport,
      std::optional<KvGeometry> prefill_pool = std::nullopt, int32_t prefill_ranks = 0);

  // As Engine::Generate. The sink gets no ticket.
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
