#include "security/api_key_file.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "common/file_descriptor.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "security/file_stamp.h"

namespace baton {
namespace {

constexpr size_t kRandomBytes = 32;
constexpr size_t kShownBytes = 100;

std::string Shown(const std::string& text) { return Printable(text.substr(0, kShownBytes)); }

// Returns the text of a field; an absent field is empty.
absl::StatusOr<std::string> TextField(const nlohmann::json& object, const char* name) {
  const auto field = object.find(name);
  if (field == object.end()) return std::string();
  if (!field->is_string()) {
    return absl::InvalidArgumentError(StrCat(name, " must be a string"));
  }
  return field->get<std::string>();
}

absl::StatusOr<KeyDigest> ParseDigest(const std::string& text) {
  KeyDigest digest;
  const bool is_hex = text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (!is_hex || text.size() != 2 * digest.size()) {
    return absl::InvalidArgumentError(StrCat("sha256 has ", text.size(), " characters; must be ",
                                             2 * digest.size(), " hexadecimal digits"));
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::StatusOr<CallerRole> ParseRole(const std::string& text) {
  if (text.empty() || text == "client") return CallerRole::kClient;
  if (text == "operator") return CallerRole::kOperator;
  return absl::InvalidArgumentError(
      StrCat("role is \"", Shown(text), "\"; must be client or operator"));
}

absl::StatusOr<int64_t> ParseExpiry(const std::string& text) {
  if (text.empty()) return kNeverExpires;
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return absl::InvalidArgumentError(
        StrCat("expires is \"", Shown(text), "\"; must be a time such as 2027-01-31T00:00:00Z"));
  }
  return absl::ToUnixSeconds(time);
}

absl::Status CheckKnownFields(const nlohmann::json& object) {
  for (const auto& [name, value] : object.items()) {
    if (name != "id" && name != "sha256" && name != "tenant" && name != "role" &&
        name != "expires") {
      return absl::InvalidArgumentError(StrCat("there is no field \"", Shown(name), "\""));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ApiKeyEntry> ParseEntry(std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  RETURN_IF_ERROR(CheckKnownFields(object));
  ApiKeyEntry entry;
  ASSIGN_OR_RETURN(entry.id, TextField(object, "id"));
  if (entry.id.empty() || entry.id.size() > kMaxApiKeyIdBytes) {
    return absl::InvalidArgumentError(
        StrCat("id has ", entry.id.size(), " bytes, must have 1 to ", kMaxApiKeyIdBytes));
  }
  ASSIGN_OR_RETURN(const std::string digest, TextField(object, "sha256"));
  ASSIGN_OR_RETURN(entry.digest, ParseDigest(digest));
  ASSIGN_OR_RETURN(entry.tenant, TextField(object, "tenant"));
  if (entry.tenant.size() > kMaxTenantBytes) {
    return absl::InvalidArgumentError(
        StrCat("tenant has ", entry.tenant.size(), " bytes, must have at most ", kMaxTenantBytes));
  }
  ASSIGN_OR_RETURN(const std::string role, TextField(object, "role"));
  ASSIGN_OR_RETURN(entry.role, ParseRole(role));
  ASSIGN_OR_RETURN(const std::string expires, TextField(object, "expires"));
  ASSIGN_OR_RETURN(entry.expires_s, ParseExpiry(expires));
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<ApiKeyEntry>> ParseApiKeys(std::string_view text) {
  std::vector<ApiKeyEntry> entries;
  absl::flat_hash_set<std::string> ids;
  absl::flat_hash_set<std::string> digests;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    absl::StatusOr<ApiKeyEntry> entry = ParseEntry(line);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          StrCat("line ", number, ": ", std::string(entry.status().message())));
    }
    if (entries.size() == kMaxApiKeys) {
      return absl::InvalidArgumentError(
          StrCat("line ", number, ": there are more than ", kMaxApiKeys, " keys"));
    }
    if (!ids.insert(entry->id).second) {
      return absl::InvalidArgumentError(
          StrCat("line ", number, ": id \"", Shown(entry->id), "\" occurs twice"));
    }
    if (!digests.emplace(entry->digest.begin(), entry->digest.end()).second) {
      return absl::InvalidArgumentError(
          StrCat("line ", number, ": the key of id \"", Shown(entry->id), "\" occurs twice"));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::string FormatApiKey(const ApiKeyEntry& entry) {
  const std::string digest(entry.digest.begin(), entry.digest.end());
  nlohmann::ordered_json object = {{"id", entry.id},
                                   {"sha256", absl::BytesToHexString(digest)},
                                   {"tenant", entry.tenant},
                                   {"role", std::string(CallerRoleName(entry.role))}};
  if (entry.expires_s != kNeverExpires) {
    object["expires"] = absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(entry.expires_s),
                                         absl::UTCTimeZone());
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> ReadApiKeyText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat("--api-keys: ", path, " cannot be read"));
  std::string text(kMaxApiKeyFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= kMaxApiKeyFileBytes) return text;
  return absl::InvalidArgumentError(
      StrCat("--api-keys: ", path, " has more than ", kMaxApiKeyFileBytes, " bytes"));
}

absl::Status AppendApiKey(const std::string& path, const ApiKeyEntry& entry) {
  std::string line = FormatApiKey(entry);
  std::string text;
  if (StampOf(path).bytes >= 0) {
    ASSIGN_OR_RETURN(text, ReadApiKeyText(path));
  }
  if (!text.empty() && !text.ends_with('\n')) line.insert(0, "\n");
  if (text.size() + line.size() > kMaxApiKeyFileBytes) {
    return absl::InvalidArgumentError(StrCat("--api-keys: ", path, " would have more than ",
                                             kMaxApiKeyFileBytes, " bytes with the new key"));
  }
  if (const auto entries = ParseApiKeys(text + line); !entries.ok()) {
    return absl::InvalidArgumentError(StrCat(
        "--api-keys: ", path, ", with the new key: ", std::string(entries.status().message())));
  }
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.get() < 0) return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
  const ssize_t written = write(file.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size()) && fsync(file.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
}

KeyDigest DigestOfKey(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<std::string> DrawApiKey() {
  std::array<unsigned char, kRandomBytes> bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return absl::InternalError("the system has no random bits for a key");
  }
  std::string text = absl::WebSafeBase64Escape(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  while (text.ends_with('=')) text.pop_back();
  return "bk-" + text;
}

}  // namespace baton
