// Creates the KV transport between an engine and its peers, and the fingerprint on which both must
// agree.
//
// Thread safety: free functions; they use only their arguments.
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

// How KV travels between workers: the index of a row in the table of peer_transport.cc. 0 is the
// default. To add a medium, add a row.
enum class TransferMedium : uint8_t {};
// Values of --transport; the default comes first.
std::vector<std::pair<std::string, TransferMedium>> TransferMediumNames();
// Sets the transfer options to the endpoints of `medium`. `listen`: HOST:PORT for TCP.
void UseMedium(TransferMedium medium, const std::string& listen, EngineOptions& options);

// Sets transfer_shm and transfer_nccl to the values in effect for a pool on `device`. With
// transfer_auto, a GPU's pool uses NCCL and TCP, any other shared memory and TCP. InvalidArgument:
// NCCL is asked for beside TLS, without nccl_plaintext.
absl::Status SettleTransfer(const Device& device, EngineOptions& options);

// Returns the fingerprint of the KV that this engine computes. REQUIRES: the options are settled.
KvFingerprint FingerprintOf(const ModelInfo& model, const Device& device,
                            const EngineOptions& options);

// Creates the transport that `open_transport` opens, or that the other options name: TCP, shared
// memory, NCCL. Null if they name none. Turns `transfer_shm` off if shared memory fails and
// FallBackToTcp allows that.
absl::StatusOr<std::unique_ptr<KvTransport>> CreatePeerTransport(TransportOptions transport,
                                                                 EngineOptions& options);

}  // namespace baton
