// What an engine and its peers must agree on, and the transport on which KV goes between them.
//
// Thread safety: free functions of what they are given.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/transport.h"

namespace baton {

// REQUIRES: settled options.
KvFingerprint FingerprintOf(const ModelInfo& model, const EngineOptions& options);

// What the options name: loopback, or TCP and shared memory; null when they name nothing. Where
// shared memory cannot be had and FallBackToTcp allows it, `options` says so afterwards.
absl::StatusOr<std::unique_ptr<KvTransport>> CreatePeerTransport(TransportOptions transport,
                                                                 EngineOptions& options);

}  // namespace baton
