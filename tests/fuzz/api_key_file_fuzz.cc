// libFuzzer target: the file of API keys, and the URI names of certificates. What is read must be
// written and read again without a change.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "security/api_key_file.h"
#include "security/caller.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto entries = baton::ParseApiKeys(text); entries.ok()) {
    for (const baton::ApiKeyEntry& entry : *entries) {
      const auto again = baton::ParseApiKeys(baton::FormatApiKey(entry));
      CHECK(again.ok() && again->size() == 1 && again->front() == entry) << again.status();
    }
  }
  std::vector<std::string> uris;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    uris.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  const baton::Caller caller = baton::CallerOfUris(uris);
  if (caller.tenant.has_value()) {
    const std::vector<std::string> uri = {
        baton::RoleUri(baton::CallerRole::kClient, *caller.tenant)};
    CHECK(baton::CallerOfUris(uri).tenant == caller.tenant);
  }
  return 0;
}
