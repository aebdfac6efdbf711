#include "common/crc32c.h"

#include <array>

namespace baton {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t ExtendCrc32cTable(uint32_t crc, std::span<const std::byte> data) {
  crc = ~crc;
  for (const std::byte byte : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

#if defined(__x86_64__)
bool Crc32cHardwareAvailable() {
  static const bool available =
      __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
  return available;
}
bool Crc32cAvx512Available() {
  static const bool available =
      Crc32cHardwareAvailable() && __builtin_cpu_supports("avx512f") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return available;
}
#else
bool Crc32cHardwareAvailable() { return false; }
bool Crc32cAvx512Available() { return false; }
uint32_t ExtendCrc32cAvx512(uint32_t crc, std::span<const std::byte> data) {
  return ExtendCrc32cTable(crc, data);
}
uint32_t ExtendCrc32cHardware(uint32_t crc, std::span<const std::byte> data) {
  return ExtendCrc32cTable(crc, data);
}
#endif

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data) {
  if (Crc32cAvx512Available()) return ExtendCrc32cAvx512(crc, data);
  return Crc32cHardwareAvailable() ? ExtendCrc32cHardware(crc, data) : ExtendCrc32cTable(crc, data);
}

uint32_t Crc32c(std::span<const std::byte> data) { return ExtendCrc32c(0, data); }

uint32_t Crc32c(std::string_view data) {
  return Crc32c(std::as_bytes(std::span(data.data(), data.size())));
}

}  // namespace baton
