#include "rpc/raw_message.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kMostBytes = 1024;
constexpr int64_t kLogIntervalMs = 30'000;

thread_local std::string* kept = nullptr;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void LogNowAndThen(const std::string& message) {
  static std::atomic<int64_t> next_ms = 0;
  static std::atomic<int64_t> unsaid = 0;
  int64_t due_ms = next_ms.load();
  const int64_t now_ms = NowMs();
  if (now_ms < due_ms || !next_ms.compare_exchange_strong(due_ms, now_ms + kLogIntervalMs)) {
    ++unsaid;
    return;
  }
  LOG(WARNING) << "protobuf: " << message.substr(0, kMostBytes) << " (and " << unsaid.exchange(0)
               << " more since the last such line)";
}

void OnProtobufLog(google::protobuf::LogLevel level, const char* file, int line,
                   const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    LOG(ERROR) << "protobuf: " << file << ":" << line << ": " << message;
  } else if (kept != nullptr) {
    if (kept->empty()) *kept = message.substr(0, kMostBytes);
  } else {
    LogNowAndThen(message);
  }
}

// While this object exists, protobuf's first error about a message that this thread parses is
// stored here and not logged. At most one object per thread.
class ParseComplaints {
 public:
  ParseComplaints() { kept = &said_; }
  ~ParseComplaints() { kept = nullptr; }
  ParseComplaints(const ParseComplaints&) = delete;
  ParseComplaints& operator=(const ParseComplaints&) = delete;

  const std::string& said() const { return said_; }

 private:
  std::string said_;  // at most kMostBytes
};

absl::Status ParseFailure(const std::string& complaint, const std::string& type) {
  // "String field 'baton.v1.GenerateRequest.prompt' contains invalid UTF-8 data when parsing …"
  const size_t begin = complaint.find('\'');
  const size_t end = begin == std::string::npos ? begin : complaint.find('\'', begin + 1);
  if (end == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the request's bytes are not a ", type));
  }
  const std::string field = complaint.substr(begin + 1, end - begin - 1);
  return absl::InvalidArgumentError(
      absl::StrCat(field.substr(field.find_last_of('.') + 1), " is not UTF-8 (", field, ")"));
}

}  // namespace

void LimitProtobufLog() {
  static std::once_flag once;
  std::call_once(once, [] { google::protobuf::SetLogHandler(&OnProtobufLog); });
}

absl::Status ParseRaw(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer shared = bytes;  // the reader needs a mutable buffer; slices are shared
  const ParseComplaints complaints;
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader) && reader.status().ok()) {
    return absl::OkStatus();
  }
  return ParseFailure(complaints.said(), message.GetDescriptor()->name());
}

grpc::ByteBuffer ToRaw(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  const grpc::Slice slice(size);
  // The creator of a new slice may write into it. gRPC's own serialisation does the same.
  CHECK(message.SerializeToArray(const_cast<uint8_t*>(slice.begin()), static_cast<int>(size)));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace baton
