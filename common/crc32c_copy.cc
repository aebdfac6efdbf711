#include "common/crc32c_copy.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstring>

#include "common/crc32c.h"

namespace baton {

uint32_t CopyCrc32cPlain(std::byte* to, std::span<const std::byte> from, CopyStores) {
  std::memcpy(to, from.data(), from.size());
  return ExtendCrc32cTable(0, std::span<const std::byte>(to, from.size()));
}

#if defined(__x86_64__)
void FinishStreaming() { _mm_sfence(); }
#else
void FinishStreaming() {}
uint32_t CopyCrc32cSse42(std::byte* to, std::span<const std::byte> from, CopyStores stores) {
  return CopyCrc32cPlain(to, from, stores);
}
uint32_t CopyCrc32cAvx512(std::byte* to, std::span<const std::byte> from, CopyStores stores) {
  return CopyCrc32cPlain(to, from, stores);
}
#endif

uint32_t CopyCrc32c(std::byte* to, std::span<const std::byte> from, CopyStores stores) {
  if (Crc32cAvx512Available()) return CopyCrc32cAvx512(to, from, stores);
  if (Crc32cHardwareAvailable()) return CopyCrc32cSse42(to, from, stores);
  return CopyCrc32cPlain(to, from, stores);
}

}  // namespace baton
