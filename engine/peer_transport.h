// What an engine and its peers must agree on, and the transport on which KV goes between them.
//
// Thread safety: free functions of what they are given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/transport.h"

namespace baton {

// How KV comes from other workers: a row of the table in peer_transport.cc, 0 the default. A
// further medium is a further row.
enum class TransferMedium : uint8_t {};
// The values of --transport, the default first.
std::vector<std::pair<std::string, TransferMedium>> TransferMediumNames();
// Makes `options` open the ways of `medium`; `listen` is HOST:PORT for those over TCP.
void UseMedium(TransferMedium medium, const std::string& listen, EngineOptions& options);

// REQUIRES: settled options.
KvFingerprint FingerprintOf(const ModelInfo& model, const EngineOptions& options);

// What the options open, or name: TCP, shared memory, NCCL; null when they name nothing. Where
// shared memory cannot be had and FallBackToTcp allows it, `options` says so afterwards.
absl::StatusOr<std::unique_ptr<KvTransport>> CreatePeerTransport(TransportOptions transport,
                                                                 EngineOptions& options);

}  // namespace baton
