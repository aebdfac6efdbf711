// Socket options of an HTTP server's connections.
//
// Thread safety: functions may be called from any thread.
#pragma once

#include <cstdint>

#include "common/file_descriptor.h"

namespace baton {

// Sends small pieces at once. Finds dead peers within about `peer_timeout_ms`: an idle connection
// is probed, and unconfirmed data waits no longer. Bounds the kernel's memory for unread answers,
// so that a client that does not read is noticed early.
void SetHttpSocketOptions(const FileDescriptor& socket, int64_t peer_timeout_ms);

}  // namespace baton
