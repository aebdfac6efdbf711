// Connections of one TransferNode, and the order of work in a round over them.
//
// A sender opens one connection for each receiver's address; a receiver accepts connections. The
// host owns streams and time. It reports accepted streams and readiness, then ends the round. The
// order of work within a round must be the same as in SocketTransport.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"
#include "tests/sim/byte_stream.h"
#include "tests/sim/mutants.h"
#include "tests/sim/streamed_connection.h"

namespace baton {

class ConnectionSet {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // Begins to connect to the receiver at `address`. The host reports readiness under `peer`.
    virtual absl::StatusOr<std::unique_ptr<ByteStream>> Connect(const std::string& address,
                                                                PeerId peer) = 0;
    // Reports when the stream becomes readable and, if `writing`, when it becomes writable.
    virtual void Watch(PeerId peer, ByteStream& stream, bool writing) = 0;
  };

  // All references must outlive this.
  ConnectionSet(TransferNode& node, const TcpOptions& options, Host& host,
                Mutant mutant = Mutant::kNone)
      : node_(node), options_(options), host_(host), mutant_(mutant) {}

  // Accepts a sender's connection. Closes it at once if there are too many.
  void Accept(std::unique_ptr<ByteStream> stream, int64_t now_us);
  // Handles readiness of a stream. Ignores a stream that is already closed.
  void OnReady(PeerId peer, bool readable, bool writable, int64_t now_us);
  // Ends the round: continues reads, runs timers, opens links, and sends frames and blocks. Then it
  // releases the blocks of ended transfers. Returns the events for the engine: no connection
  // accesses the released blocks any more.
  std::vector<TransferEvent> EndRound(int64_t now_us);

  // Returns the latest time of the next round; INT64_MAX if none is needed. Returns `now_us` if
  // events or frames are pending, or while a connection waits for the pool.
  int64_t NextTimerUs(int64_t now_us) const;
  size_t size() const { return connections_.size(); }

 private:
  ConnectionParts Parts(PeerId peer, std::string address, int64_t now_us) const;
  void RunTimers(int64_t now_us);
  void ReadOn(int64_t now_us);
  void OpenLinks(int64_t now_us);
  void SendFrames(int64_t now_us);
  void PumpAll(int64_t now_us);
  void Close(PeerId peer, const absl::Status& why);
  void Watch(const StreamedConnection& connection);

  TransferNode& node_;
  const TcpOptions& options_;
  Host& host_;
  const Mutant mutant_;
  std::map<PeerId, std::unique_ptr<StreamedConnection>> connections_;
  int32_t accepted_ = 0;  // accepted ones in connections_
  uint64_t next_peer_ = 1;
};

}  // namespace baton
