#include "security/api_keys.h"

#include <openssl/crypto.h>

#include <ctime>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr std::string_view kBearer = "bearer ";

// Schemes are compared without regard to case (RFC 7235).
bool StartsWithBearer(std::string_view text) {
  if (text.size() < kBearer.size()) return false;
  for (size_t i = 0; i < kBearer.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != kBearer[i]) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Open(const std::string& path, WallClock now_s) {
  if (now_s == nullptr) now_s = [] { return static_cast<int64_t>(std::time(nullptr)); };
  std::unique_ptr<ApiKeys> keys(new ApiKeys(path, std::move(now_s)));
  keys->stamp_ = StampOf(path);
  keys->looked_s_ = keys->now_s_();
  ASSIGN_OR_RETURN(keys->entries_, keys->ReadFile());
  return keys;
}

absl::StatusOr<std::shared_ptr<const ApiKeys::Entries>> ApiKeys::ReadFile() const {
  ASSIGN_OR_RETURN(const std::string text, ReadApiKeyText(path_));
  absl::StatusOr<Entries> entries = ParseApiKeys(text);
  if (!entries.ok()) {
    return absl::InvalidArgumentError(
        StrCat("--api-keys: ", path_, ", ", std::string(entries.status().message())));
  }
  return std::make_shared<const Entries>(*std::move(entries));
}

std::shared_ptr<const ApiKeys::Entries> ApiKeys::Newest() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

void ApiKeys::Refresh() {
  const int64_t now_s = now_s_();
  if (now_s == looked_s_) return;
  looked_s_ = now_s;
  const FileStamp stamp = StampOf(path_);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  absl::StatusOr<std::shared_ptr<const Entries>> read = ReadFile();
  if (!read.ok()) {
    LOG(ERROR) << read.status().message() << ". The keys stay as they were";
    return;
  }
  LOG(INFO) << "--api-keys: read " << path_ << " again, it has " << (*read)->size() << " keys";
  std::lock_guard lock(mutex_);
  entries_ = *std::move(read);
}

std::optional<Caller> ApiKeys::Find(std::string_view key) const {
  if (key.empty() || key.size() > kMaxApiKeyBytes) return std::nullopt;
  const std::shared_ptr<const Entries> entries = Newest();
  const KeyDigest digest = DigestOfKey(key);
  const ApiKeyEntry* found = nullptr;
  for (const ApiKeyEntry& entry : *entries) {
    const bool equal = CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    found = equal ? &entry : found;
  }
  if (found == nullptr || found->expires_s <= now_s_()) return std::nullopt;
  return Caller{.roles = {found->role}, .tenant = found->tenant};
}

std::optional<Caller> ApiKeys::FindBearer(const std::string* authorization) const {
  if (authorization == nullptr || !StartsWithBearer(*authorization)) return std::nullopt;
  std::string_view key = std::string_view(*authorization).substr(kBearer.size());
  while (key.starts_with(' ')) key.remove_prefix(1);
  return Find(key);
}

}  // namespace baton
