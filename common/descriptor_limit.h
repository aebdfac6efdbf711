// How many files and sockets this process may have open at once.
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <cstdint>

namespace baton {

// Raises the soft limit to the hard one, which needs no privilege; returns what holds then.
int64_t RaiseDescriptorLimit();

}  // namespace baton
