// Copies bytes and computes their CRC32C in one pass. A reader of another process's memory needs
// this, because that process may write there at any time. The CRC must cover the bytes that the
// reader stored.
//
// Each version reads every source byte exactly once, stores it, and adds the stored value to the
// CRC.
//
// Streaming stores bypass the caches; use them for copies larger than the caches. They need a
// target on a 64-byte boundary; other targets get ordinary stores. Call FinishStreaming() before
// telling another thread of the data.
//
// Thread safety: pure functions on the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

enum class CopyStores : uint8_t { kCached, kStreaming };

// Copies `from` to `to` and returns the CRC32C of the stored bytes, continuing from `crc` as
// ExtendCrc32c does. Picks the fastest version that this processor supports. REQUIRES: no overlap.
uint32_t CopyCrc32c(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                    uint32_t crc = 0);

// The versions, for tests and measurements. The plain one uses memcpy and a table.
uint32_t CopyCrc32cPlain(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc = 0);
// SSE4.2 and PCLMULQDQ. REQUIRES: Crc32cHardwareAvailable() (common/crc32c.h).
uint32_t CopyCrc32cSse42(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc = 0);
// AVX-512 and VPCLMULQDQ. REQUIRES: Crc32cAvx512Available().
uint32_t CopyCrc32cAvx512(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                          uint32_t crc = 0);

// Orders streaming stores before all later stores of this thread.
void FinishStreaming();

}  // namespace baton
