// Converts what an engine reports to the wire's messages, and operators' requests from them. The
// requests of routers are in request_conversion.h.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/transfer.pb.h"
#include "baton/v1/worker.pb.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace baton {

v1::KvFingerprint FingerprintToWire(const KvFingerprint& fingerprint);

v1::Tokens TokensToWire(TokenOutput output);
v1::Finished FinishedToWire(FinishInfo info);
v1::PrefillResponse PrefillResultToWire(const PrefillResult& result);

v1::PoolStatus PoolToWire(const EngineStatus& status);
// Returns the requested size in blocks. InvalidArgument: not exactly one of the request's fields is
// positive, one is negative, or the size is below one block or above kMaxKvBlocks. `blocks_in`
// converts bytes to blocks.
absl::StatusOr<int32_t> BlocksFromWire(const v1::ResizePoolRequest& wire,
                                       absl::FunctionRef<int64_t(int64_t bytes)> blocks_in);
v1::ResizePoolResponse PoolSizeToWire(const PoolSize& size);

// Returns the namespace of requests to this model with these fields; nothing means every namespace.
std::optional<CacheNamespace> NamespaceFromWire(const v1::ClearCacheRequest& wire,
                                                const ModelInfo& model);

v1::InspectResponse InspectionToWire(const EngineInspection& inspection);
v1::TokenizerDescription TokenizerToWire(const ModelInfo& model);

// Identity of a worker towards routers.
struct WorkerIdentity {
  std::string worker_id;
  std::string address;  // HOST:PORT that the router dials
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
};
v1::WorkerStatus WorkerStatusToWire(const WorkerIdentity& identity, Epoch epoch,
                                    const EngineStatus& status, bool draining);

}  // namespace baton
