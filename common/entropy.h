// Random bits from the operating system, for values that must be hard to guess: ids, epochs, seeds.
// Only edges draw them; pure code receives the drawn values.
//
// Thread safety: from any thread.
#pragma once

#include <cstdint>

namespace baton {

uint64_t EntropyBits();

}  // namespace baton
