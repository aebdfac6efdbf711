// Messages of raw methods: the service gets a request's bytes and parses them itself.
//
// gRPC would answer bytes that are no message with UNIMPLEMENTED and an empty text, and protobuf
// would log a line for each. A service that takes a method's bytes (WithRawCallbackMethod_…) can
// answer INVALID_ARGUMENT and name what is wrong; router/grpc/inference_service.h does.
//
// Thread safety: pure functions, but call LimitProtobufLog before there are other threads.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace baton {

// From now on protobuf's complaints are logged now and then, not each time. REQUIRES: no other
// thread parses a message meanwhile.
void LimitProtobufLog();

// InvalidArgument: which field holds text that is not UTF-8, or that the bytes are not a message of
// this type. `message` then means nothing. REQUIRES: LimitProtobufLog was called.
absl::Status ParseRaw(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

grpc::ByteBuffer ToRaw(const google::protobuf::MessageLite& message);

}  // namespace baton
