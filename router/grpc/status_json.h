// The state of a router and its fleet as JSON, for the status page (observe/page/status.js).
//
// Text from workers and clients is made valid UTF-8, and '<' becomes \u003c, so the result is also
// harmless inside of HTML. It has no text of prompts and answers.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "router/recent_requests.h"
#include "router/shared_prefixes.h"

namespace baton {

struct StatusPageInput {
  const v1::GetStatusResponse* status = nullptr;
  std::string model = {};  // its name; empty: no worker has sent the model yet
  size_t waiting = 0;      // requests that wait for their first token
  std::vector<RecentRequest> recent = {};
  std::vector<PrefixNode> tree = {};
  int64_t now_us = 0;
};

// Shows at most so many workers, so that the page of a large fleet stays small.
inline constexpr int kMostShownWorkers = 200;

std::string StatusPageToJson(const StatusPageInput& input);

}  // namespace baton
