// Limit on the files and sockets that this process may have open at once.
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <cstdint>

namespace baton {

// Raises the soft limit to the hard limit, which needs no privilege. Returns the resulting limit.
int64_t RaiseDescriptorLimit();

}  // namespace baton
