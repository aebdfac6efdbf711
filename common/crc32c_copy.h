// Copying bytes and summing them in one pass: what a reader of another process's memory does, whose
// check must be of the bytes it stored and not of what the other side may have made of them since.
//
// Each version reads every source byte exactly once, stores it, and adds the value it stored to the
// CRC. Streaming stores leave the caches alone and are for copies larger than they are; they need a
// target on a 64-byte boundary (others are stored the ordinary way), and FinishStreaming before
// another thread is told of them.
//
// Thread safety: pure functions on caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

enum class CopyStores : uint8_t { kCached, kStreaming };

// Copies `from` to `to` (REQUIRES: no overlap) and returns the CRC32C of what was stored, behind
// what has the CRC `crc` (as ExtendCrc32c). Picks the fastest version that this processor has.
uint32_t CopyCrc32c(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                    uint32_t crc = 0);

// The versions, for tests and measurements. The plain one is memcpy and a table.
uint32_t CopyCrc32cPlain(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc = 0);
// SSE4.2 and PCLMULQDQ. REQUIRES: Crc32cHardwareAvailable() (common/crc32c.h).
uint32_t CopyCrc32cSse42(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc = 0);
// AVX-512 and VPCLMULQDQ. REQUIRES: Crc32cAvx512Available().
uint32_t CopyCrc32cAvx512(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                          uint32_t crc = 0);

// Orders streaming stores before everything that this thread stores from here on.
void FinishStreaming();

}  // namespace baton
