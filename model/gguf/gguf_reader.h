// Reads a GGUF model file (versions 2 and 3, little-endian). The file is not trusted.
//
// Source of the format: docs/gguf.md of the ggml project. The file is mapped and parsed once. Every
// count, length, offset, type and product of dimensions is checked against the file's size before
// it is used. So a damaged file gives a status that names the field, in bounded memory: DataLoss if
// the file ends too early, InvalidArgument for an impossible value. Metadata and tensors are views
// of the mapping.
//
// Invariants of an open file:
// 1. Keys are unique and not empty.
// 2. Tensor names are unique and have 1 to 64 bytes.
// 3. A tensor has a known type and 1 to 4 dimensions, none of them zero. Its row is a whole number
//    of blocks.
// 4. A tensor's data is aligned relative to the start of the file, lies inside the file, and shares
//    no byte with another tensor's data.
//
// Thread safety: immutable; safe to read from any thread.
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
// Limits far above any real file. With them, parsing takes at most about 25 MiB for any file.
inline constexpr uint64_t kGgufMaxKeys = 65536;
inline constexpr uint64_t kGgufMaxTensors = 65536;
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr uint64_t kGgufMaxTensorNameBytes = 64;

struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  uint32_t dimension_count = 1;
  // Fastest-moving dimension first, as in the file. A matrix with `rows` outputs and `cols` inputs
  // is {cols, rows}. Unused dimensions are 1.
  std::array<uint64_t, kGgufMaxDimensions> dimensions = {1, 1, 1, 1};
  uint64_t values = 0;              // product of the dimensions
  uint64_t offset = 0;              // of the data, in bytes from the start of the file
  std::span<const std::byte> data;  // values / block values * block bytes

  std::string ShapeString() const;  // "[576, 192]"
};

class GgufFile : public GgufMetadata {
 public:
  // Maps and parses a file. Errors contain the path.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // Parses `bytes`. REQUIRES: they outlive the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> FromBytes(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }  // bytes
  uint64_t file_bytes() const { return bytes_.size(); }
  std::span<const GgufTensor> tensors() const { return tensors_; }  // in the file's order
  // Null if absent.
  const GgufTensor* FindTensor(std::string_view name) const;
  // Tells the system that the tensor's bytes may leave memory. They can be read again.
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
