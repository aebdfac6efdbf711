#include "kvtransfer/shm/shm_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/sockets/unix_socket.h"

namespace baton {
namespace {

constexpr size_t kAheadBytes = 32 << 10;
// Frames are gathered for one write up to these limits: bytes of frames, and bytes of blocks read
// for checksums. The second limit lets the receiver copy a block while the sender computes the
// checksums of the next.
constexpr size_t kGatherFrameBytes = 16 << 10;
constexpr int64_t kGatherBlockBytes = 1 << 20;
// Transfers of at least this size are stored past the CPU's caches, because they do not fit into
// them.
constexpr int64_t kStreamingBytes = 16 << 20;
constexpr size_t kFiles = 2;  // descriptors sent with SharedPool

}  // namespace

ssize_t ShmConnection::ReadSome(std::span<iovec> buffers) {
  if (read_ == arrived_) {
    if (std::exchange(drained_, false)) {  // epoll reports newer input
      errno = EAGAIN;
      return -1;
    }
    ahead_.resize(kAheadBytes);
    // Plain recv makes the kernel discard descriptors that are not expected.
    const bool wants_files = !opened_by_us() && !peer_pool_;
    const ssize_t got = wants_files ? ReceiveWithFiles(fd(), ahead_, files_)
                                    : recv(fd(), ahead_.data(), ahead_.size(), 0);
    if (got > 0 && files_.size() > kFiles) {
      errno = EPROTO;
      return -1;
    }
    if (got <= 0) return got;
    read_ = 0;
    arrived_ = static_cast<size_t>(got);
    drained_ = arrived_ < kAheadBytes;
  }
  const size_t bytes = std::min(buffers[0].iov_len, arrived_ - read_);
  std::memcpy(buffers[0].iov_base, ahead_.data() + read_, bytes);
  read_ += bytes;
  return static_cast<ssize_t>(bytes);
}

ssize_t ShmConnection::WriteSome(std::span<iovec> buffers) {
  if (!files_to_send_) return SendWithFiles(fd(), buffers, {});
  const int files[kFiles] = {lent_.pool_fd(), lent_.generations_fd()};
  const ssize_t sent = SendWithFiles(fd(), buffers, files);
  if (sent > 0) files_to_send_ = false;
  return sent;
}

absl::Status ShmConnection::OnAccepted() {
  files_to_send_ = true;
  return Send(lent_.Describe());
}

absl::Status ShmConnection::OnPayloadFrame(Frame frame, int64_t now_us) {
  if (const auto* block = std::get_if<SharedBlockFrame>(&frame)) {
    return OnSharedBlock(*block, now_us);
  }
  if (const auto* pool = std::get_if<SharedPoolFrame>(&frame)) return OnSharedPool(*pool);
  return Unexpected(frame);
}

absl::Status ShmConnection::OnSharedPool(const SharedPoolFrame& frame) {
  if (peer_pool_ || files_.size() != kFiles) {
    return absl::InvalidArgumentError(absl::StrCat("SharedPool: ", files_.size(),
                                                   " descriptors came with it, ", kFiles,
                                                   " are required, once per connection"));
  }
  const std::vector<FileDescriptor> files = std::exchange(files_, {});
  ASSIGN_OR_RETURN(peer_pool_, PeerPool::Map(node_.layout(), sender_geometry(), frame,
                                             files[0].get(), files[1].get()));
  return absl::OkStatus();
}

absl::Status ShmConnection::OnSharedBlock(const SharedBlockFrame& frame, int64_t now_us) {
  if (!peer_pool_) return absl::InvalidArgumentError("SharedBlock before SharedPool");
  const std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), frame.block);
  if (!placement) return absl::OkStatus();  // ended here; an Abort tells the sender
  const CopyStores stores =
      placement->transfer_bytes >= kStreamingBytes ? CopyStores::kStreaming : CopyStores::kCached;
  std::optional<PoolLease> lease =
      node_.pool().Acquire(PoolAccess::kLand, placement->parts, frame.block.layers);
  CHECK(lease && *lease->Ready());  // shared memory requires a pool with an export
  const absl::Status copied = peer_pool_->Copy(frame, lease->bytes(), stores);
  if (copied.ok()) lease->Store();
  Moved(frame.block.payload_bytes);
  if (copied.ok()) node_.moved().Received(KvMedium::kShm, frame.block.payload_bytes);
  node_.receiver().OnBlockLanded(*placement, frame.block.payload_bytes, copied, Now(now_us));
  return absl::OkStatus();
}

absl::Status ShmConnection::QueueBlocks(int64_t now_us) {
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
