// SHA-256 (FIPS 180-4), for keys whose collisions nobody may be able to make.
//
// Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace baton {

std::array<uint8_t, 32> Sha256(std::string_view bytes);

}  // namespace baton
