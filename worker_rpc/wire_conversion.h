// Converts between the wire's messages and the engine's types. Values from the wire are
// range-checked only where the types differ. The engine validates their meaning.
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

// Checks that the prompt leaves room in the context and that the generated tokens also fit. Call it
// before copying them. InvalidArgument names the numbers.
absl::Status CheckPromptSize(int64_t prompt_tokens, int64_t generated_tokens,
                             int32_t context_length);
// The same check for every part of a request, and for the number of its parts. The parts of a
// chunked prompt may exceed the context together, so only the generated tokens are checked then.
absl::Status CheckSize(const v1::DecodeRequest& wire, int32_t context_length);
// InvalidArgument: a chunked prompt is too large to copy or has an unknown option, or the request
// has an ordinary prompt too.
absl::StatusOr<GenerateRequest> GenerateRequestFromWire(v1::DecodeRequest&& wire,
                                                        SamplingParams sampling);
PrefillRequest PrefillRequestFromWire(v1::PrefillRequest&& wire, SamplingParams sampling);

PullRequest PullRequestFromWire(const v1::PullPrefixRequest& wire);
SendPrefixRequest SendPrefixRequestFromWire(const v1::SendPrefixRequest& wire);

TransferTicket TicketFromWire(const v1::TransferTicket& wire);
v1::TransferTicket TicketToWire(const TransferTicket& ticket);
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
