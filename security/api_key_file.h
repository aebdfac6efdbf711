// The file of API keys: one JSON object a line.
//
//   {"id": "acme-1", "sha256": "<64 hex digits>", "tenant": "acme", "role": "client",
//    "expires": "2027-01-31T00:00:00Z"}
//
// The file has no secret: `sha256` is the hash of the key. `role` is client (default) or operator.
// `expires` is absent, empty, or a time as in RFC 3339. Blank lines and lines that begin with # are
// skipped.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/caller.h"

namespace baton {

using KeyDigest = std::array<uint8_t, 32>;  // SHA-256

inline constexpr size_t kMaxApiKeys = 10'000;
inline constexpr size_t kMaxApiKeyIdBytes = 128;
inline constexpr size_t kMaxApiKeyFileBytes = size_t{16} << 20;
// A longer key is refused without being hashed.
inline constexpr size_t kMaxApiKeyBytes = 512;
inline constexpr int64_t kNeverExpires = std::numeric_limits<int64_t>::max();

struct ApiKeyEntry {
  std::string id;  // for logs; unique in the file
  KeyDigest digest{};
  std::string tenant;
  CallerRole role = CallerRole::kClient;
  int64_t expires_s = kNeverExpires;  // Unix time

  bool operator==(const ApiKeyEntry&) const = default;
};

// InvalidArgument names the line, the field, its value and the limit. It shows no digest.
absl::StatusOr<std::vector<ApiKeyEntry>> ParseApiKeys(std::string_view text);

// Returns the line of an entry, with its line break.
std::string FormatApiKey(const ApiKeyEntry& entry);

// Returns the file's text. NotFound: it cannot be read. InvalidArgument: it is too large.
absl::StatusOr<std::string> ReadApiKeyText(const std::string& path);

// Appends the entry's line to the file, which is made if there is none. InvalidArgument: a router
// would refuse the file with this line, for example because it has the id already; then nothing is
// written. NotFound: the file cannot be read. Unavailable: it cannot be written.
// REQUIRES: no other process writes the file at the same time.
absl::Status AppendApiKey(const std::string& path, const ApiKeyEntry& entry);

KeyDigest DigestOfKey(std::string_view key);

// Returns a new key: "bk-" and 43 letters, digits, '-' and '_' with 256 random bits. Internal: the
// system has no random bits.
absl::StatusOr<std::string> DrawApiKey();

}  // namespace baton
