// Random bits from the operating system: for what nobody may guess (ids, epochs, seeds). Only edges
// draw them; pure code is handed what was drawn.
//
// Thread safety: from any thread.
#pragma once

#include <cstdint>

namespace baton {

uint64_t EntropyBits();

}  // namespace baton
