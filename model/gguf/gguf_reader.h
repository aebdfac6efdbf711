// Reads a GGUF model file (versions 2 and 3, little-endian), trusting nothing in it.
//
// Source of the format: docs/gguf.md of the ggml project. The file is mapped and parsed once: every
// count, length, offset, type and product of dimensions is checked against the file's size before
// anything depends on it, so a damaged file yields a status that names the field (DataLoss: the
// file ends too early; InvalidArgument: a value that cannot be right), in bounded memory. Metadata
// and tensors are views of the mapping.
//
// Invariants of an open file: keys are unique and not empty; tensor names are unique, 1 to 64
// bytes; a tensor has 1 to 4 dimensions, none zero, and a known type; its row is a whole number of
// blocks; its data is aligned (relative to the start of the file), inside the file, and shares no
// byte with another tensor's.
//
// Thread safety: immutable; read from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/gguf/gguf_metadata.h"
#include "model/gguf/gguf_types.h"
#include "model/mapped_file.h"

namespace baton {

inline constexpr uint32_t kGgufMaxDimensions = 4;
// Far above any real file; with them, parsing takes at most some 25 MiB whatever the file says.
inline constexpr uint64_t kGgufMaxKeys = 65536;
inline constexpr uint64_t kGgufMaxTensors = 65536;
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr uint64_t kGgufMaxTensorNameBytes = 64;

struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  uint32_t dimension_count = 1;
  // Fastest-moving first, as in the file: a matrix of `rows` outputs and `cols` inputs is
  // {cols, rows}. Unused dimensions are 1.
  std::array<uint64_t, kGgufMaxDimensions> dimensions = {1, 1, 1, 1};
  uint64_t values = 0;              // product of the dimensions
  uint64_t offset = 0;              // of the data, from the start of the file
  std::span<const std::byte> data;  // values / block values * block bytes

  std::string ShapeString() const;  // "[576, 192]"
};

class GgufFile : public GgufMetadata {
 public:
  // Maps and parses. Errors carry the path.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // Parses bytes that outlive the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> FromBytes(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }  // bytes
  uint64_t file_bytes() const { return bytes_.size(); }
  std::span<const GgufTensor> tensors() const { return tensors_; }  // in the file's order
  // Null when absent.
  const GgufTensor* FindTensor(std::string_view name) const;
  // The tensor's bytes were used and may leave memory; they can be read again.
  void Release(const GgufTensor& tensor) const {
    if (mapping_ != nullptr) mapping_->Release(tensor.data);
  }

 private:
  class Parser;

  GgufFile() = default;

  std::unique_ptr<MappedFile> mapping_;  // null for FromBytes
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> tensor_index_;
};

}  // namespace baton
