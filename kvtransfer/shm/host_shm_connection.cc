#include "kvtransfer/shm/host_shm_connection.h"

#include <algorithm>
#include <optional>

#include "common/status_macros.h"

namespace baton {

absl::Status HostShmConnection::QueueBlocks(int64_t now_us) {
  const int64_t most = std::min(kGatherBlockBytes, left_in_turn());
  for (int64_t looked_at = 0; looked_at < most && writer_.queued_bytes() < kGatherFrameBytes;) {
    const std::optional<BlockDispatch> next = node_.sender().NextBlock(peer());
    if (!next) break;
    RETURN_IF_ERROR(Send(lent_.Lend(*next, node_.checksums())));
    node_.sender().OnBlockSent(*next, now_us);
    node_.moved().Sent(KvMedium::kShm, next->frame.payload_bytes);
    looked_at += next->frame.payload_bytes;
    Moved(next->frame.payload_bytes);  // computing checksums took time of this turn
  }
  return absl::OkStatus();
}

}  // namespace baton
