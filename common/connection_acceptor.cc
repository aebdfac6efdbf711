#include "common/connection_acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

// Descriptors reserved for other uses of the process: channels to workers, transfers, files.
constexpr int64_t kMostKeptBack = 1024;
// Upper limit even if the process may open more: each connection also needs buffers.
constexpr int64_t kMostDescriptors = 1 << 16;
constexpr int32_t kMostStrangers = 1024;

constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(100);
constexpr auto kLongestTurn = std::chrono::minutes(1);
constexpr int kAcceptedInATurn = 64;
constexpr auto kLogInterval = std::chrono::seconds(30);

// A TLS record (RFC 8446, 5.1): type, version, length. A connection begins with a handshake record.
// One that begins otherwise is passed on: the server refuses it.
constexpr int32_t kTlsHeaderBytes = 5;
constexpr uint8_t kTlsHandshake = 22;
constexpr int32_t kMostTlsRecordBytes = 1 << 14;

// Returns how many bytes a TLS connection must have sent, as far as its first bytes tell.
int32_t BytesOfBeginning(std::span<const uint8_t> first) {
  if (first[0] != kTlsHandshake) return 1;
  if (std::ssize(first) < kTlsHeaderBytes) return kTlsHeaderBytes;
  return kTlsHeaderBytes + std::min(first[3] << 8 | first[4], kMostTlsRecordBytes);
}

}  // namespace

AcceptorLimits LimitsForDescriptors(int64_t limit, bool tls) {
  const int64_t kept_back = std::min(kMostKeptBack, limit / 4);
  const int64_t most = std::min(limit - kept_back, kMostDescriptors);
  const int64_t strangers = std::clamp<int64_t>(most / 4, 1, kMostStrangers);
  // At the limit a new connection displaces an older stranger, so its descriptor may lie above
  // max_descriptors. Leave room for that.
  return {.max_descriptors = static_cast<int32_t>(most - strangers),
          .max_strangers = static_cast<int32_t>(strangers),
          .tls = tls};
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<FileDescriptor> listeners, std::string address,
                                       const AcceptorLimits& limits, Take take)
    : listeners_(std::move(listeners)),
      address_(std::move(address)),
      limits_(limits),
      take_(std::move(take)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      logged_at_(SteadyClock::now() - kLogInterval) {
  CHECK(stop_.get() >= 0) << "eventfd: " << std::strerror(errno);
  thread_ = std::thread([this] { Run(); });
}

ConnectionAcceptor::~ConnectionAcceptor() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ConnectionAcceptor::Run() {
  while (Turn()) {
  }
}

bool ConnectionAcceptor::Turn() {
  const auto now = SteadyClock::now();
  const bool paused = now < paused_until_;
  auto until = paused ? paused_until_ : now + kLongestTurn;
  if (!strangers_.empty()) {
    until = std::min(until, strangers_.front().since + limits_.stranger_patience);
  }
  std::vector<pollfd> entries = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (const FileDescriptor& listener : listeners_) {
    entries.push_back({.fd = paused ? -1 : listener.get(), .events = POLLIN, .revents = 0});
  }
  for (const Stranger& stranger : strangers_) {
    entries.push_back({.fd = stranger.socket.get(), .events = POLLIN, .revents = 0});
  }
  const auto wait = std::max(SteadyClock::duration(0), until - now);
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  if (poll(entries.data(), entries.size(), static_cast<int>(wait_ms)) <= 0) entries.assign(1, {});
  if (entries[0].revents != 0) return false;
  const size_t first_stranger = 1 + listeners_.size();
  // First pass on the connections that have sent their beginning, so that none of them is displaced
  // by a new one.
  for (size_t i = first_stranger; i < entries.size(); ++i) {
    if (entries[i].revents != 0) HandOnOrClose(strangers_[i - first_stranger]);
  }
  const auto gone = [now = SteadyClock::now(), this](const Stranger& stranger) {
    return stranger.socket.get() < 0 || now - stranger.since >= limits_.stranger_patience;
  };
  std::erase_if(strangers_, gone);
  for (size_t i = 1; i < std::min(first_stranger, entries.size()); ++i) {
    if (entries[i].revents != 0) AcceptFrom(listeners_[i - 1]);
  }
  return true;
}

void ConnectionAcceptor::HandOnOrClose(Stranger& stranger) {
  FileDescriptor spoke = std::exchange(stranger.socket, FileDescriptor());
  uint8_t first[kTlsHeaderBytes];
  ssize_t count = 0;
  int sent = 0;
  int32_t needed = 1;
  do {  // more may arrive between the two calls: then the header must be looked at
    count = recv(spoke.get(), first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    if (count <= 0 || ioctl(spoke.get(), FIONREAD, &sent) != 0) return;
    if (limits_.tls) needed = BytesOfBeginning({first, static_cast<size_t>(count)});
  } while (needed == kTlsHeaderBytes && count < kTlsHeaderBytes && sent >= kTlsHeaderBytes);
  const auto await = [&](int32_t bytes) {
    return setsockopt(spoke.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0;
  };
  if (sent >= needed) {
    if (stranger.awaited_bytes == 1 || await(1)) take_(std::move(spoke));
    return;
  }
  // With as many bytes awaited, poll reports fewer only at the connection's end.
  if (needed == stranger.awaited_bytes || !await(needed)) return;
  stranger.awaited_bytes = needed;
  stranger.socket = std::move(spoke);
}

void ConnectionAcceptor::AcceptFrom(const FileDescriptor& listener) {
  for (int i = 0; i < kAcceptedInATurn; ++i) {
    FileDescriptor accepted(
        accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.get() < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      LogFull(std::strerror(errno));
      if (!strangers_.empty()) strangers_.pop_front();
      paused_until_ = SteadyClock::now() + kPauseWithoutDescriptors;
      return;
    }
    const bool too_many = accepted.get() >= limits_.max_descriptors;
    if (too_many || std::ssize(strangers_) >= limits_.max_strangers) {
      LogFull(too_many ? "too many descriptors are open"
                       : "too many connections have not sent their beginning");
      if (strangers_.empty()) continue;  // closes the new connection
      strangers_.pop_front();
    }
    strangers_.push_back({.socket = std::move(accepted), .since = SteadyClock::now()});
  }
}

void ConnectionAcceptor::LogFull(const char* why) {
  ++closed_;
  const auto now = SteadyClock::now();
  if (now - logged_at_ < kLogInterval) return;
  logged_at_ = now;
  LOG(WARNING) << address_ << ": " << std::exchange(closed_, 0)
               << " connections closed or left waiting: " << why << " (at most "
               << limits_.max_descriptors << " descriptors, " << limits_.max_strangers
               << " connections that have not sent their beginning)";
}

}  // namespace baton
