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
// Transfers of at least this size are stored past the CPU's caches, because they do not fit into
// them.
constexpr int64_t kStreamingBytes = 16 << 20;
constexpr size_t kFiles = 2;  // descriptors sent with SharedPool or SharedSlots

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
  const int files[kFiles] = {lent_.fd(), lent_.generations_fd()};
  const ssize_t sent = SendWithFiles(fd(), buffers, files);
  if (sent > 0) files_to_send_ = false;
  return sent;
}

absl::Status ShmConnection::OnAccepted() {
  files_to_send_ = true;
  return Send(Describe());
}

absl::Status ShmConnection::OnPayloadFrame(Frame frame, int64_t now_us) {
  if (auto* block = std::get_if<SharedBlockFrame>(&frame)) {
    return OnSharedBlock(std::move(*block), now_us);
  }
  if (const auto* pool = std::get_if<SharedPoolFrame>(&frame)) return OnSharedFile(*pool);
  if (const auto* slots = std::get_if<SharedSlotsFrame>(&frame)) return OnSharedFile(*slots);
  return Unexpected(frame);
}

template <typename F>
absl::Status ShmConnection::OnSharedFile(const F& frame) {
  if (peer_pool_ || files_.size() != kFiles) {
    return absl::InvalidArgumentError(absl::StrCat(FrameName(frame), ": ", files_.size(),
                                                   " descriptors came with it, ", kFiles,
                                                   " are required, once per connection"));
  }
  const std::vector<FileDescriptor> files = std::exchange(files_, {});
  ASSIGN_OR_RETURN(peer_pool_, PeerPool::Map(node_.layout(), sender_geometry(), frame,
                                             files[0].get(), files[1].get()));
  return absl::OkStatus();
}

absl::Status ShmConnection::OnSharedBlock(SharedBlockFrame frame, int64_t now_us) {
  if (!peer_pool_) return absl::InvalidArgumentError("SharedBlock before the sender's file");
  std::optional<BlockPlacement> placement = node_.receiver().OnBlock(peer(), frame.block);
  if (!placement) return Taken();  // ended here; an Abort tells the sender
  LeaseRequest request(PoolAccess::kLand, placement->parts, frame.block.layers);
  landing_.emplace(Landing{.frame = std::move(frame),
                           .placement = *std::move(placement),
                           .request = std::move(request),
                           .storing = std::nullopt});
  return ContinueLanding(now_us);
}

absl::Status ShmConnection::ResumeReading(int64_t now_us) {
  return landing_ ? ContinueLanding(now_us) : absl::OkStatus();
}

absl::Status ShmConnection::ContinueLanding(int64_t now_us) {
  if (!landing_->storing) {
    if (!node_.receiver().IsLive(landing_->placement)) {
      landing_.reset();
      return Taken();
    }
    const absl::StatusOr<bool> ready = landing_->request.Ask(node_.pool());
    if (ready.ok() && !*ready) return absl::OkStatus();
    const absl::Status copied = ready.ok() ? CopyBlock(landing_->request.Take()) : ready.status();
    if (!copied.ok()) EndLanding(copied, now_us);
    RETURN_IF_ERROR(Taken());
    if (!landing_) return absl::OkStatus();
  }
  const absl::StatusOr<bool> stored = landing_->storing->Ready();
  if (!stored.ok() || *stored) EndLanding(stored.status(), now_us);
  return absl::OkStatus();
}

absl::Status ShmConnection::CopyBlock(PoolLease lease) {
  const CopyStores stores = landing_->placement.transfer_bytes >= kStreamingBytes
                                ? CopyStores::kStreaming
                                : CopyStores::kCached;
  Moved(landing_->frame.block.payload_bytes);
  RETURN_IF_ERROR(peer_pool_->Copy(landing_->frame, lease.bytes(), stores));
  lease.Store();
  landing_->storing = std::move(lease);
  return absl::OkStatus();
}

void ShmConnection::EndLanding(const absl::Status& landed, int64_t now_us) {
  const Landing landing = *std::exchange(landing_, std::nullopt);
  const int64_t bytes = landing.frame.block.payload_bytes;
  if (landed.ok()) node_.moved().Received(KvMedium::kShm, bytes);
  node_.receiver().OnBlockLanded(landing.placement, bytes, landed, Now(now_us));
}

absl::Status ShmConnection::Taken() {
  return peer_pool_->slots() ? Send(SharedTakenFrame{++taken_}) : absl::OkStatus();
}

PoolWait ShmConnection::waits_for_pool() const {
  if (!landing_) return PoolWait::kNothing;
  return landing_->storing ? PoolWait::kCopy : landing_->request.waits_for();
}

// A block that waits for a lease touches no pool block yet.
void ShmConnection::ReleaseEndedTransfers() {
  if (landing_ && landing_->storing && !node_.receiver().IsLive(landing_->placement)) {
    landing_.reset();
  }
}

}  // namespace baton
