// The connection to a trace collector, by the settings of a program.
//
// Thread safety: functions may be called from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "tracing/tracing_options.h"

namespace baton {

// InvalidArgument or NotFound names the setting, or the file, that is wrong. OK if none is set.
absl::Status CheckCollector(const TracingOptions& options);

// Returns a channel to the collector. With TLS, it checks the chain and the name of the collector's
// certificate, and reads files that were replaced. REQUIRES: CheckCollector, and an endpoint.
std::shared_ptr<grpc::Channel> CollectorChannel(const TracingOptions& options);

}  // namespace baton
