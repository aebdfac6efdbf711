// CRC32C checksums (Castagnoli, reflected polynomial 0x82F63B78, as in RFC 3720). They detect
// damage to a KV piece or a frame in transit.
//
// Crc32c() picks the fastest version that the processor supports at run time. Every version gives
// the same values as the portable table version.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

// Returns the CRC of `data`. The CRC of no bytes is 0.
uint32_t Crc32c(std::span<const std::byte> data);
uint32_t Crc32c(std::string_view data);

// Returns the CRC of a‖data, given the CRC of a: ExtendCrc32c(Crc32c(a), b) == Crc32c(ab).
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data);

// The implementations, for tests and measurements.
uint32_t ExtendCrc32cTable(uint32_t crc, std::span<const std::byte> data);
// SSE4.2 and PCLMULQDQ. REQUIRES: Crc32cHardwareAvailable().
uint32_t ExtendCrc32cHardware(uint32_t crc, std::span<const std::byte> data);
bool Crc32cHardwareAvailable();
// AVX-512 and VPCLMULQDQ. REQUIRES: Crc32cAvx512Available().
uint32_t ExtendCrc32cAvx512(uint32_t crc, std::span<const std::byte> data);
bool Crc32cAvx512Available();

}  // namespace baton
