// Reads one number of a KV pool as f32, as stored: an int8 number without its scale.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>

#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/host_device.h"
#include "kernels/paged_kv.h"

namespace baton {

BATON_HOST_DEVICE inline float StoredNumber(const KvLayerView& kv, int64_t offset) {
  switch (kv.type) {
    case KvType::kF32:
      return static_cast<const float*>(kv.base)[offset];
    case KvType::kF16:
      return F16ToF32(static_cast<const uint16_t*>(kv.base)[offset]);
    case KvType::kBF16:
      return BF16ToF32(static_cast<const uint16_t*>(kv.base)[offset]);
    case KvType::kFp8:
      return Fp8ToF32(static_cast<const uint8_t*>(kv.base)[offset]);
    case KvType::kInt8:
      return static_cast<const int8_t*>(kv.base)[offset];
  }
  return 0;
}

}  // namespace baton
