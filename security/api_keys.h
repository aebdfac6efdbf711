// The keys of --api-keys. Refresh reads the file again when it has changed. If the new content is
// wrong, the keys stay as they were, and the log says why.
//
// A key is found by comparing its SHA-256 with every entry's, always all of them and in constant
// time. So the time of a refusal says nothing about the keys.
//
// Thread safety: Refresh from one thread. The other functions from any; they do no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/api_key_file.h"
#include "security/caller.h"
#include "security/file_stamp.h"

namespace baton {

class ApiKeys {
 public:
  // Unix time in seconds; tests pass one of their own.
  using WallClock = std::function<int64_t()>;

  // NotFound: the file cannot be read. InvalidArgument: as ParseApiKeys, with the file's name.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Open(const std::string& path,
                                                       WallClock now_s = nullptr);

  // Looks at the file, at most once a second. Call it several times a second.
  void Refresh();

  // Absent: there is no such key, or it has expired.
  std::optional<Caller> Find(std::string_view key) const;
  // As Find, of a request's header "Authorization: Bearer KEY". Null: there is no such header.
  std::optional<Caller> FindBearer(const std::string* authorization) const;

 private:
  using Entries = std::vector<ApiKeyEntry>;

  ApiKeys(std::string path, WallClock now_s) : path_(std::move(path)), now_s_(std::move(now_s)) {}
  absl::StatusOr<std::shared_ptr<const Entries>> ReadFile() const;
  std::shared_ptr<const Entries> Newest() const;

  const std::string path_;
  const WallClock now_s_;
  FileStamp stamp_;
  int64_t looked_s_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<const Entries> entries_;  // guarded by mutex_
};

}  // namespace baton
