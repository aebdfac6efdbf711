#include "common/crc32c_copy.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstring>

#include "common/crc32c.h"

namespace baton {

uint32_t CopyCrc32cPlain(std::byte* to, std::span<const std::byte> from, CopyStores, uint32_t crc) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());  // an empty span may be null
  return ExtendCrc32cTable(crc, std::span<const std::byte>(to, from.size()));
}

#if defined(__x86_64__)
void FinishStreaming() { _mm_sfence(); }
#else
void FinishStreaming() {}
uint32_t CopyCrc32cSse42(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc) {
  return CopyCrc32cPlain(to, from, stores, crc);
}
uint32_t CopyCrc32cAvx512(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                          uint32_t crc) {
  return CopyCrc32cPlain(to, from, stores, crc);
}
#endif

uint32_t CopyCrc32c(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                    uint32_t crc) {
  if (Crc32cAvx512Available()) return CopyCrc32cAvx512(to, from, stores, crc);
  if (Crc32cHardwareAvailable()) return CopyCrc32cSse42(to, from, stores, crc);
  return CopyCrc32cPlain(to, from, stores, crc);
}

}  // namespace baton
