#pragma once

#include "kvtransfer/sockets/tcp_options.h"

namespace baton {

// For tests that do not test timeouts. No pause of the machine or of a scripted peer exceeds these.
inline constexpr TcpOptions kPatient{
    .handshake_timeout_ms = 60'000, .frame_timeout_ms = 60'000, .silence_timeout_ms = 60'000};

}  // namespace baton
