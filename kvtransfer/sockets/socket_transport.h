// KV transport over sockets. One I/O thread with epoll drives a TransferNode and its connections.
// They use TCP, Unix sockets beside shared memory, or both. A sender opens one connection for each
// receiver address; receivers accept.
//
// With shared memory, the engine's thread itself executes a post if its frames and blocks are small
// (RoundHere). It does so only if it gets round_mutex_ without waiting. It writes what the socket
// accepts at once and leaves everything else to the I/O thread. So a post never blocks, and a small
// request needs one thread hand-over less.
//
// After using shared memory, the I/O thread polls for a moment before it sleeps. A peer on the same
// host often answers, or sends its next request, sooner than a sleeping thread could be woken. The
// thread yields between polls, so it does not hold a CPU that others need.
//
// Thread safety: as KvTransport. CreateSocketTransport creates it. round_mutex_ guards the state of
// the rounds. Only the I/O thread blocks on it; the engine's thread only tries to lock it.
#pragma once

#include <sys/epoll.h>

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
#include "kvtransfer/sockets/stream_connection.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"

namespace baton {

// Sockets and memory that a SocketTransport owns.
struct SocketParts {
  std::string address;
  FileDescriptor tcp_listener;        // unset: no TCP
  FileDescriptor shm_listener;        // unset: no shared memory
  std::optional<LentBlocks> lent;     // set together with shm_listener
  std::unique_ptr<NcclRuntime> nccl;  // not started yet; null: no NCCL
  FileDescriptor epoll;               // watches the listeners and `wake`
  FileDescriptor wake;
};

// Key of an epoll event: one of these, or a peer id.
inline constexpr uint64_t kWakeKey = 0;
inline constexpr uint64_t kTcpListenKey = 1;
inline constexpr uint64_t kShmListenKey = 2;
inline constexpr uint64_t kFirstPeer = 3;

class SocketTransport final : public PostedTransport {
 public:
  SocketTransport(const TransportOptions& options, const TcpOptions& tcp, SocketParts parts);
  ~SocketTransport() override;

  std::string address() const override { return parts_.address; }
  std::vector<TransferEvent> Poll() override;

 protected:
  int64_t NowUs() const override { return clock_.NowUs(); }
  absl::Status CheckAddress(const std::string& address) const override;
  void WakeIoThread() override;
  void WakeForStart() override;

 private:
  void Wake();
  void Run();
  void Round(std::span<const epoll_event> ready);
  // Executes the posted commands on the engine's thread. Returns false if the I/O thread must do (a
  // part of) the work.
  bool RoundHere();
  // True if RoundHere may be tried. (Shared memory needs a pool with an export, so leases are ready
  // at once.)
  bool PostsHere() const { return TakesShm() && parts_.nccl == nullptr; }
  bool WriteHere(StreamConnection& connection, int64_t now_us);
  void QueueEvents();
  void ApplyPosted(int64_t now_us);
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptSome(uint64_t key, int64_t now_us);
  // Closes the oldest accepted connection that never named an expected transfer. Returns false if
  // there is none.
  bool CloseStranger();
  void OpenLinks(int64_t now_us);
  bool OpenLink(const std::string& address, std::span<const std::string> ways, int64_t now_us);
  StreamConnection& Add(bool shm, FileDescriptor socket, std::string address, int64_t now_us);
  void DeliverNcclReports(int64_t now_us);
  void RunTimers(int64_t now_us);
  // Returns the peers of the frames.
  std::vector<PeerId> SendFrames(int64_t now_us);
  void ReadOn(int64_t now_us);
  // Pumps the connections that this side opened, or those that it accepted.
  void PumpAll(bool opened_by_us, int64_t now_us);
  void Close(PeerId peer, const absl::Status& why);
  void Watch(StreamConnection& connection);
  void WatchListeners(bool on);
  bool TakesShm() const { return parts_.lent.has_value(); }
  int Wait(std::span<epoll_event> ready);
  int64_t NextWakeUs(int64_t now_us) const;
  // Returns what the connections and events wait for.
  PoolWait WaitsForPool() const;

  const TcpOptions tcp_;
  SocketParts parts_;  // round_mutex_ guards `lent` and `nccl`
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
  TransferNode node_;
  std::vector<TransferCommand> applied_;  // empty between rounds; keeps its capacity
  std::map<PeerId, std::unique_ptr<StreamConnection>> connections_;
  std::map<PeerId, NcclConnection*> nccl_connections_;  // the NCCL ones of connections_
  std::map<PeerId, std::vector<std::string>>
      other_ways_;        // to try if this connection does not open
  int32_t accepted_ = 0;  // accepted ones of connections_
  uint64_t next_peer_ = kFirstPeer;
  int64_t accept_again_us_ = 0;              // 0: the listeners are watched
  int64_t rounds_waiting_ = 0;               // consecutive rounds that waited for a copy
  PoolWait pool_wait_ = PoolWait::kNothing;  // result of the last round

  std::thread thread_;
};

}  // namespace baton
