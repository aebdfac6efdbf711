// Writes small GGUF files for tests, valid and invalid ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

class GgufBuilder {
 public:
  uint32_t version = 3;
  std::string magic = "GGUF";
  int64_t extra_tensors = 0;  // added to the tensor count in the header
  int64_t extra_keys = 0;
  size_t alignment = 32;

  template <typename T>
  static std::string Raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string Text(std::string_view text) {
    return Raw<uint64_t>(text.size()) + std::string(text);
  }

  // Adds a key; `value` is the value's bytes in the file.
  GgufBuilder& Key(std::string_view key, GgufValueType type, const std::string& value) {
    keys_.push_back(Text(key) + Raw(type) + value);
    return *this;
  }
  GgufBuilder& String(std::string_view key, std::string_view text) {
    return Key(key, GgufValueType::kString, Text(text));
  }
  template <typename T>
  GgufBuilder& Scalar(std::string_view key, GgufValueType type, T value) {
    return Key(key, type, Raw(value));
  }
  GgufBuilder& Array(std::string_view key, GgufValueType element, uint64_t count,
                     const std::string& elements) {
    return Key(key, GgufValueType::kArray, Raw(element) + Raw(count) + elements);
  }

  // Adds a tensor's entry without its data.
  GgufBuilder& TensorInfo(std::string_view name, const std::vector<uint64_t>& dimensions,
                          uint32_t type, uint64_t offset) {
    std::string info = Text(name) + Raw<uint32_t>(dimensions.size());
    for (const uint64_t dimension : dimensions) info += Raw(dimension);
    infos_.push_back(info + Raw(type) + Raw(offset));
    return *this;
  }
  // Adds a tensor's entry and its data at the right offset.
  GgufBuilder& Tensor(std::string_view name, const std::vector<uint64_t>& dimensions, GgmlType type,
                      const std::string& data) {
    TensorInfo(name, dimensions, static_cast<uint32_t>(type), data_.size());
    data_ += data;
    Pad(data_);
    return *this;
  }
  GgufBuilder& Data(const std::string& data) {
    data_ += data;
    return *this;
  }

  std::string Build() const {
    std::string file = magic + Raw(version) + Raw<uint64_t>(infos_.size() + extra_tensors) +
                       Raw<uint64_t>(keys_.size() + extra_keys);
    for (const std::string& key : keys_) file += key;
    for (const std::string& info : infos_) file += info;
    if (!data_.empty()) Pad(file);
    return file + data_;
  }

 private:
  void Pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }

  std::vector<std::string> keys_;
  std::vector<std::string> infos_;
  std::string data_;
};

// Parses bytes, which must outlive the result.
inline absl::StatusOr<std::unique_ptr<GgufFile>> ParseGguf(std::string_view bytes) {
  return GgufFile::FromBytes(std::as_bytes(std::span(bytes)));
}

}  // namespace baton
