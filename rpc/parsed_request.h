// A request that came as bytes which may be no message: gRPC itself would answer those with
// UNIMPLEMENTED and no word, and protobuf would write a line of log for each.
//
// A method takes such requests by a handler for ParsedRequest<Message> in place of the generated
// one for Message, as router/inference_service.cc has it.
//
// Thread safety: LimitProtobufLog before there are other threads; a ParseComplaints belongs to one.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <string>

#include "absl/status/status.h"

namespace baton {

// From now on what protobuf says of messages is logged now and then, not each time. REQUIRES:
// nobody parses a message meanwhile.
void LimitProtobufLog();

// Until it goes, what protobuf says of a message that this thread parses is kept here instead of
// logged. REQUIRES: LimitProtobufLog was called; this thread has no other one.
class ParseComplaints {
 public:
  ParseComplaints();
  ~ParseComplaints();
  ParseComplaints(const ParseComplaints&) = delete;
  ParseComplaints& operator=(const ParseComplaints&) = delete;

  // InvalidArgument: which field holds text that is not UTF-8, or that the bytes are no `type`.
  absl::Status Failure(const std::string& type) const;

 private:
  std::string said_;  // the first; bounded
};

template <typename Message>
struct ParsedRequest {
  Message message;
  absl::Status status;  // not OK: `message` means nothing
};

}  // namespace baton

namespace grpc {

template <typename Message>
class SerializationTraits<baton::ParsedRequest<Message>, void> {
 public:
  static Status Deserialize(ByteBuffer* bytes, baton::ParsedRequest<Message>* parsed) {
    const baton::ParseComplaints complaints;
    if (!GenericDeserialize<ProtoBufferReader, Message>(bytes, &parsed->message).ok()) {
      parsed->status = complaints.Failure(Message::descriptor()->name());
    }
    return Status::OK;
  }
};

}  // namespace grpc
