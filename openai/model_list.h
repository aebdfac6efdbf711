// The bodies of /v1/models and /v1/models/ID.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace baton {

struct ListedModel {
  std::string id = {};
  int64_t created = 0;         // seconds since 1970
  int32_t context_length = 0;  // tokens; 0: unknown. Written as "max_model_len"
};

std::string ModelBody(const ListedModel& model);
std::string ModelListBody(std::span<const ListedModel> models);

}  // namespace baton
