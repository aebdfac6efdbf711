// Writer and reader for the fields of a frame's body, little-endian. FieldReader trusts no input
// (transfer_frame.h).
//
// Thread safety: each object belongs to one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {

// Numbers are copied as they are in memory.
static_assert(std::endian::native == std::endian::little);

class FieldWriter {
 public:
  template <typename T>
  void Number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  std::string& out() { return out_; }

 private:
  std::string out_;
};

// Reads fields in order. After the first error, every field reads as zero; status() names the field
// that failed.
class FieldReader {
 public:
  FieldReader(const char* frame, std::span<const std::byte> bytes) : frame_(frame), bytes_(bytes) {}

  template <typename T>
  void Number(std::string_view field, T& value) {
    value = 0;
    if (!Need(field, sizeof(T))) return;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
  }
  // Reads a count or index in [0, limit].
  void Count(std::string_view field, int64_t limit, int32_t& value) {
    Number(field, value);
    if (status_.ok() && (value < 0 || value > limit)) {
      Fail(absl::StrFormat("%s %d is outside [0, %d]", field, value, limit));
      value = 0;
    }
  }
  void Flag(std::string_view field, bool& value) {
    uint8_t byte;
    Number(field, byte);
    if (byte > 1) Fail(absl::StrFormat("%s is %d, not 0 or 1", field, byte));
    value = byte == 1;
  }
  void Text(std::string_view field, size_t limit, std::string& value) {
    uint32_t size;
    Number(field, size);
    if (status_.ok() && size > limit) {
      Fail(absl::StrFormat("%s has %d bytes, the limit is %d", field, size, limit));
    }
    if (!Need(field, size)) return;
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(frame_, ": ", what));
  }
  void SkipRest() { at_ = bytes_.size(); }
  // True if all bytes are read. Fields that an older peer does not write are then absent.
  bool at_end() const { return at_ == bytes_.size(); }
  absl::Status Finish() {
    if (status_.ok() && at_ != bytes_.size()) {
      Fail(absl::StrFormat("%d bytes follow the last field", bytes_.size() - at_));
    }
    return status_;
  }
  bool ok() const { return status_.ok(); }

 private:
  bool Need(std::string_view field, size_t bytes) {
    if (status_.ok() && bytes_.size() - at_ < bytes) {
      Fail(absl::StrFormat("%s needs %d bytes, %d are left", field, bytes, bytes_.size() - at_));
    }
    return status_.ok();
  }

  const char* frame_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace baton
