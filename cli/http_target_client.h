// An OpenAI-compatible server as the target of a load test, for example the HTTP endpoint of a
// Baton router, llama.cpp's server or vLLM.
//
// Thread safety: as LoadTarget.
#pragma once

#include <memory>
#include <string>

#include "http/http_client.h"
#include "loadtest/load_target.h"
#include "loadtest/openai_requests.h"
#include "loadtest/target_address.h"

namespace baton {

struct HttpTargetOptions {
  TargetAddress address;
  int64_t timeout_ms = 0;  // of each request; 0: none
  OpenAiOptions requests;  // an empty model name: the first model that the server lists
  HttpClientOptions client = {};
};

class HttpTarget final : public LoadTarget {
 public:
  explicit HttpTarget(const HttpTargetOptions& options)
      : options_(options), client_(options.address.host_port, options.client) {}

  // Fills in the model name. A server without a list of models is an error, unless the options name
  // a model.
  absl::StatusOr<TargetModel> Describe(int64_t timeout_ms) override;
  void Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) override;
  void CancelAll() override { client_.CancelAll(); }

 private:
  HttpTargetOptions options_;
  HttpClient client_;
};

}  // namespace baton
