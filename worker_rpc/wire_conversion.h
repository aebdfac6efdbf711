// Between the wire's messages and the engine's types. What comes from the wire is range-checked
// where the types differ; what it means is the engine's to validate.
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

// Whether a prompt of so many tokens leaves room in the context, and what was generated behind it
// fits there: asked before they are copied. InvalidArgument names the numbers.
absl::Status CheckPromptSize(int64_t prompt_tokens, int64_t generated_tokens,
                             int32_t context_length);
// The same of every part of a request for choices, of which there are so many at most.
absl::Status CheckSize(const v1::DecodeRequest& wire, int32_t context_length);
GenerateRequest GenerateRequestFromWire(v1::DecodeRequest&& wire, SamplingParams sampling);
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
// The size in blocks that is asked for. InvalidArgument unless exactly one of the request's fields
// is positive and none negative, or when it is less than a block or more than can be counted.
absl::StatusOr<int32_t> BlocksFromWire(const v1::ResizePoolRequest& wire,
                                       absl::FunctionRef<int64_t(int64_t bytes)> blocks_in);
v1::ResizePoolResponse PoolSizeToWire(const PoolSize& size);

// The namespace of requests to this model with these fields; none: every namespace.
std::optional<CacheNamespace> NamespaceFromWire(const v1::ClearCacheRequest& wire,
                                                const ModelInfo& model);

v1::InspectResponse InspectionToWire(const EngineInspection& inspection);
v1::TokenizerDescription TokenizerToWire(const ModelInfo& model);

// How a worker presents itself.
struct WorkerIdentity {
  std::string worker_id;
  std::string address;  // HOST:PORT that the router dials
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
};
v1::WorkerStatus WorkerStatusToWire(const WorkerIdentity& identity, Epoch epoch,
                                    const EngineStatus& status, bool draining);

}  // namespace baton
