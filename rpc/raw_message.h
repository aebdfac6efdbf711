// Parses and serialises the messages of raw methods, which get a request as bytes.
//
// gRPC answers bytes that do not parse with UNIMPLEMENTED and an empty text, and protobuf logs a
// line for each. A service with a raw method (WithRawCallbackMethod_…) can answer INVALID_ARGUMENT
// and name the problem, as router/grpc/inference_service.h does.
//
// Thread safety: pure functions, but call LimitProtobufLog before other threads exist.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace baton {

// Rate-limits protobuf's log lines about bad messages. REQUIRES: no other thread is parsing a
// message.
void LimitProtobufLog();

// Parses `bytes` into `message`. InvalidArgument names the field with text that is not UTF-8, or
// says that the bytes are not a message of this type. `message` is then undefined. REQUIRES:
// LimitProtobufLog was called.
absl::Status ParseRaw(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

grpc::ByteBuffer ToRaw(const google::protobuf::MessageLite& message);

}  // namespace baton
