// An OpenAI-compatible server of known times (loadtest/mock_times.h). Answers are words. It serves
// POST /v1/completions and /v1/chat/completions, streamed only, and GET /v1/models.
//
// Thread safety: Start and the destructor on one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/mock_times.h"

namespace baton {

class MockServer {
 public:
  // Unavailable: the address cannot be bound. InvalidArgument: not a valid address.
  static absl::StatusOr<std::unique_ptr<MockServer>> Start(const std::string& listen,
                                                           const MockTimes& times);
  ~MockServer();

  // HOST:PORT with the port that was bound.
  const std::string& address() const;

 private:
  class Impl;
  explicit MockServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
