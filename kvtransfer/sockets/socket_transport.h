// KV transport over sockets. One I/O thread with epoll runs rounds over the connections
// (connection_rounds.h). They use TCP, Unix sockets beside shared memory, or both.
//
// With shared memory and a pool in host memory, the engine's thread itself executes a post if its
// frames and blocks are small (RoundHere). It does so only if it gets round_mutex_ without waiting.
// It writes what the socket accepts at once and leaves everything else to the I/O thread. So a post
// never blocks, and a small request needs one thread hand-over less.
//
// After using shared memory, the I/O thread polls for a moment before it sleeps. A peer on the same
// host often answers, or sends its next request, sooner than a sleeping thread could be woken. The
// thread yields between polls, so it does not hold a CPU that others need.
//
// Thread safety: as KvTransport. CreateSocketTransport creates it. round_mutex_ guards the state of
// the rounds. Only the I/O thread blocks on it; the engine's thread only tries to lock it.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/file_descriptor.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/protocol/posted_transport.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/shm/shared_pool.h"
#include "kvtransfer/sockets/connection_rounds.h"
#include "kvtransfer/sockets/stream_connection.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/sockets/transfer_tls.h"
#include "kvtransfer/transport.h"

namespace baton {

// Sockets and memory that a SocketTransport owns.
struct SocketParts {
  std::string address;
  FileDescriptor tcp_listener;        // unset: no TCP
  FileDescriptor shm_listener;        // unset: no shared memory
  std::optional<LentBlocks> lent;     // for shm_listener, if the pool is in host memory
  std::optional<LentFile> slots;      // for shm_listener, if it is not
  std::unique_ptr<NcclRuntime> nccl;  // not started yet; null: no NCCL
  std::unique_ptr<TransferTls> tls;   // of connections over TCP; null: they are not encrypted
  FileDescriptor epoll;               // watches the listeners and `wake`
  FileDescriptor wake;
};

// Key of an epoll event: one of these, or a peer id, which is at least
// ConnectionRounds::kFirstPeer.
inline constexpr uint64_t kWakeKey = 0;
inline constexpr uint64_t kTcpListenKey = 1;
inline constexpr uint64_t kShmListenKey = 2;

class SocketTransport final : public PostedTransport, private ConnectionRounds::Host {
 public:
  SocketTransport(const TransportOptions& options, const TcpOptions& tcp, SocketParts parts);
  ~SocketTransport() override;

  std::string address() const override { return parts_.address; }
  std::vector<TransferEvent> Poll() override;
  MovedKvBytes::Totals moved_bytes() const override { return rounds_.node().moved().Read(); }

 protected:
  int64_t NowUs() const override { return clock_.NowUs(); }
  absl::Status CheckAddress(const std::string& address) const override;
  void WakeIoThread() override;
  void WakeForStart() override;

 private:
  // ---- ConnectionRounds::Host ----
  absl::StatusOr<std::vector<std::string>> WaysTo(const std::string& address) const override;
  absl::StatusOr<std::unique_ptr<StreamConnection>> Connect(const std::string& way,
                                                            ConnectionParts parts) override;
  void Watch(StreamConnection& connection) override;
  void OnClosed(PeerId peer) override { nccl_connections_.erase(peer); }
  void DeliverReadiness(int64_t now_us) override;
  void DeliverPayloadReports(int64_t now_us) override;
  void TakePosted(std::vector<TransferCommand>& commands) override { TakeCommands(commands); }
  void QueueEvents(std::vector<TransferEvent> events) override;
  void WakeEngine() override { PostedTransport::WakeEngine(); }

  void Wake();
  void Run();
  void Round();
  // Executes the posted commands on the engine's thread. Returns false if the I/O thread must do (a
  // part of) the work.
  bool RoundHere();
  // True if RoundHere may be tried. A pool in host memory has leases that are ready at once.
  bool PostsHere() const { return parts_.lent.has_value() && parts_.nccl == nullptr; }
  bool WriteHere(StreamConnection& connection, int64_t now_us);
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptSome(uint64_t key, int64_t now_us);
  std::unique_ptr<StreamConnection> MakeConnection(bool shm, ConnectionParts parts);
  void WatchListeners(bool on);
  bool TakesShm() const { return parts_.shm_listener.get() >= 0; }
  // Sleeps until something happens, and sets ready_.
  void Wait();
  int64_t NextWakeUs(int64_t now_us) const;

  const TcpOptions tcp_;
  SocketParts parts_;  // round_mutex_ guards `lent`, `slots` and `nccl`
  // Engine thread only.
  bool unsaid_ = false;               // a transfer was started and is not executed yet
  mutable std::string good_address_;  // address of the last valid post; avoids checking it again
  const SystemClock clock_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> posted_ = false;    // there is work that the I/O thread has not seen
  std::atomic<bool> sleeping_ = false;  // the I/O thread sleeps and must be woken

  std::atomic<int64_t> look_until_us_ = 0;   // until then Wait polls without sleeping
  std::atomic<int64_t> sleep_until_us_ = 0;  // when the I/O thread wakes if nothing happens

  std::mutex round_mutex_;
  // Guarded by round_mutex_.
  ConnectionRounds rounds_;
  std::map<PeerId, NcclConnection*> nccl_connections_;  // the NCCL ones among the connections
  int64_t accept_again_us_ = 0;                         // 0: the listeners are watched
  int64_t rounds_waiting_ = 0;                          // consecutive rounds that waited for a copy

  // I/O thread only.
  std::array<epoll_event, 64> events_;
  std::span<const epoll_event> ready_;  // those of events_ that the next round delivers

  std::thread thread_;
};

}  // namespace baton
