// CRC32C (Castagnoli, reflected polynomial 0x82F63B78, as in RFC 3720): what proves that a KV piece
// or a frame arrived whole.
//
// Crc32c picks the fastest version that the processor has at run time; the table version is their
// plain twin and gives the same values on every machine.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

// The CRC of `data`. Crc32c of nothing is 0.
uint32_t Crc32c(std::span<const std::byte> data);
uint32_t Crc32c(std::string_view data);

// The CRC of a‖data, given the CRC of a: ExtendCrc32c(Crc32c(a), b) == Crc32c(ab).
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
