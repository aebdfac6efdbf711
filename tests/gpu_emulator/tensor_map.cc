#include "tests/gpu_emulator/tensor_map.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution_rules.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint64_t kTensorMapMark = 0x5441434f4e4d4150;

struct EncodedMap {
  uint64_t mark;
  const void* address;
  uint8_t element_bytes;
  uint8_t rank;
  uint8_t swizzle;
  uint32_t box[kMostTileRank];
  uint64_t sizes[kMostTileRank];
  uint64_t stride_bytes[kMostTileRank - 1];
};
static_assert(sizeof(EncodedMap) <= sizeof(TensorMap));
static_assert(std::is_trivially_copyable_v<EncodedMap>);

absl::Status Refused(const char* what, uint64_t value, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat("tensor map: ", what, " is ", value, ", ", rule));
}

}  // namespace

uint32_t SwizzleBytes(SharedSwizzle swizzle) { return 16u << static_cast<int>(swizzle); }

uint32_t Swizzled(uint32_t address, SharedSwizzle swizzle) {
  const uint32_t mask = (1u << static_cast<int>(swizzle)) - 1;  // 0, 1, 3 or 7
  return address ^ ((address >> 7 & mask) << 4);
}

absl::StatusOr<TensorMap> EncodeTensorMap(const TiledTensor& tensor) {
  constexpr uint64_t kMostSize = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
  constexpr uint32_t kMostBox = 256;
  constexpr uint64_t kMostSharedBytes = MostSharedBytes(TensorCore::kHopper);
  if (tensor.rank < 1 || tensor.rank > kMostTileRank) {
    return Refused("the rank", static_cast<uint64_t>(tensor.rank), "not in [1, 5]");
  }
  if (reinterpret_cast<uintptr_t>(tensor.address) % 16 != 0) {
    return Refused("the address", reinterpret_cast<uintptr_t>(tensor.address), "no multiple of 16");
  }
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.sizes[i] < 1 || tensor.sizes[i] > kMostSize) {
      return Refused("a size", tensor.sizes[i], "not in [1, 2^32]");
    }
    if (tensor.box[i] < 1 || tensor.box[i] > kMostBox) {
      return Refused("a side of the box", tensor.box[i], "not in [1, 256]");
    }
    const uint64_t stride = tensor.stride_bytes[i];
    if (i > 0 && (stride == 0 || stride % 16 != 0 || stride >= kMostStride)) {
      return Refused("a stride", stride, "no positive multiple of 16 below 2^40");
    }
  }
  uint64_t box_bytes = tensor.element_bytes;
  for (int i = 0; i < tensor.rank; ++i) box_bytes *= tensor.box[i];
  if (box_bytes > kMostSharedBytes) {
    return Refused("the box's size", box_bytes, "more bytes than a block's shared memory has");
  }
  const uint32_t row_bytes = tensor.box[0] * tensor.element_bytes;
  if (row_bytes % 16 != 0) return Refused("the box's row", row_bytes, "no multiple of 16 bytes");
  if (tensor.swizzle != SharedSwizzle::kNone && row_bytes > SwizzleBytes(tensor.swizzle)) {
    return Refused("the box's row", row_bytes, "longer than the swizzle");
  }
  EncodedMap encoded = {};
  encoded.mark = kTensorMapMark;
  encoded.address = tensor.address;
  encoded.element_bytes = static_cast<uint8_t>(tensor.element_bytes);
  encoded.rank = static_cast<uint8_t>(tensor.rank);
  encoded.swizzle = static_cast<uint8_t>(tensor.swizzle);
  for (int i = 0; i < tensor.rank; ++i) {
    encoded.box[i] = tensor.box[i];
    encoded.sizes[i] = tensor.sizes[i];
    if (i > 0) encoded.stride_bytes[i - 1] = tensor.stride_bytes[i];
  }
  TensorMap map = {};
  std::memcpy(&map, &encoded, sizeof(encoded));
  return map;
}

bool DecodeTensorMap(const TensorMap& map, TiledTensor& tensor) {
  EncodedMap encoded;
  std::memcpy(&encoded, &map, sizeof(encoded));
  if (encoded.mark != kTensorMapMark) return false;
  tensor.address = encoded.address;
  tensor.element_bytes = encoded.element_bytes;
  tensor.rank = encoded.rank;
  tensor.swizzle = static_cast<SharedSwizzle>(encoded.swizzle);
  for (int i = 0; i < tensor.rank; ++i) {
    tensor.box[i] = encoded.box[i];
    tensor.sizes[i] = encoded.sizes[i];
    tensor.stride_bytes[i] = i > 0 ? encoded.stride_bytes[i - 1] : encoded.element_bytes;
  }
  return true;
}

}  // namespace baton::gpu_emulator
