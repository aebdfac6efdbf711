// KV transfers over sockets: one I/O thread with epoll drives a TransferNode and its connections,
// over TCP, over Unix sockets beside shared memory, or both. Senders open one connection for each
// receiver's address; receivers accept.
//
// With shared memory, a post whose frames and blocks are small is carried out on the engine's own
// thread (RoundHere): it takes what the I/O thread works on if that is not at work just then,
// writes what the socket takes at once, and leaves all else to the I/O thread. So a post never
// blocks, and a small request costs one hand-over less.
//
// After shared memory was in use the thread looks around for a moment before it sleeps: the answer
// of a peer on the same host, or its next request, is there sooner than a sleeper could be woken.
// It yields between looks, so a processor that others need is not held.
//
// Thread safety: as KvTransport; made by CreateSocketTransport. What belongs to the I/O thread
// belongs to who holds round_mutex_; nobody waits for it but the I/O thread.
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

// What a SocketTransport listens at, and what it lends from.
struct SocketParts {
  std::string address;
  FileDescriptor tcp_listener;        // none: no TCP
  FileDescriptor shm_listener;        // none: no shared memory
  std::optional<LentBlocks> lent;     // with shm_listener
  std::unique_ptr<NcclRuntime> nccl;  // not started; none: no NCCL
  FileDescriptor epoll;               // watches the listeners and `wake`
  FileDescriptor wake;
};

// What an epoll event is about: one of these, or a peer.
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
  // Carries out what was posted, on the engine's thread. False: the I/O thread has to see to it, or
  // to a part of it.
  bool RoundHere();
  // Whether that is tried at all. (A pool that is lent by shared memory has leases at once.)
  bool PostsHere() const { return TakesShm() && parts_.nccl == nullptr; }
  bool WriteHere(StreamConnection& connection, int64_t now_us);
  void QueueEvents();
  void ApplyPosted(int64_t now_us);
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptSome(uint64_t key, int64_t now_us);
  // Closes the oldest accepted connection of a stranger. False: there is none.
  bool CloseStranger();
  void OpenLinks(int64_t now_us);
  bool OpenLink(const std::string& address, std::span<const std::string> ways, int64_t now_us);
  StreamConnection& Add(bool shm, FileDescriptor socket, std::string address, int64_t now_us);
  void DeliverNcclReports(int64_t now_us);
  void RunTimers(int64_t now_us);
  // Returns whose they are.
  std::vector<PeerId> SendFrames(int64_t now_us);
  void ReadOn(int64_t now_us);
  // Of the connections that are so.
  void PumpAll(bool opened_by_us, int64_t now_us);
  void Close(PeerId peer, const absl::Status& why);
  void Watch(StreamConnection& connection);
  void WatchListeners(bool on);
  bool TakesShm() const { return parts_.lent.has_value(); }
  int Wait(std::span<epoll_event> ready);
  int64_t NextWakeUs(int64_t now_us) const;
  // What the pool keeps waiting, connections and events.
  PoolWait WaitsForPool() const;

  const TcpOptions tcp_;
  SocketParts parts_;  // `lent` and `nccl` are the I/O thread's
  // The engine thread's.
  bool unsaid_ = false;               // a transfer was started, and that not carried out
  mutable std::string good_address_;  // of the last post
  const SystemClock clock_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> posted_ = false;    // something happened that the I/O thread has not seen
  std::atomic<bool> sleeping_ = false;  // it must be woken to see it

  std::atomic<int64_t> look_until_us_ = 0;   // before sleeping
  std::atomic<int64_t> sleep_until_us_ = 0;  // the I/O thread, if nothing happens

  std::mutex round_mutex_;
  // Guarded by round_mutex_.
  TransferNode node_;
  std::vector<TransferCommand> applied_;  // empty; for its memory
  std::map<PeerId, std::unique_ptr<StreamConnection>> connections_;
  std::map<PeerId, NcclConnection*> nccl_connections_;     // of them
  std::map<PeerId, std::vector<std::string>> other_ways_;  // to try when this one does not open
  int32_t accepted_ = 0;                                   // of connections_
  uint64_t next_peer_ = kFirstPeer;
  int64_t accept_again_us_ = 0;              // 0: the listener is watched
  int64_t rounds_waiting_ = 0;               // for copies, one after the other
  PoolWait pool_wait_ = PoolWait::kNothing;  // at the end of the last round

  std::thread thread_;
};

}  // namespace baton
