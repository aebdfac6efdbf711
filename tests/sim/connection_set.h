// The connections of one TransferNode, and what a round over them does in which order.
//
// Senders open one connection for each receiver's address; receivers accept. The host owns streams
// and time: it reports accepted streams and readiness, then ends the round. The order within a
// round is that of SocketTransport, and has to follow it.
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
    // Begins to connect to the receiver at `address`; readiness will be reported under `peer`.
    virtual absl::StatusOr<std::unique_ptr<ByteStream>> Connect(const std::string& address,
                                                                PeerId peer) = 0;
    // From now on this stream is watched for reading, and for writing if `writing`.
    virtual void Watch(PeerId peer, ByteStream& stream, bool writing) = 0;
  };

  // Everything outlives this.
  ConnectionSet(TransferNode& node, const TcpOptions& options, Host& host,
                Mutant mutant = Mutant::kNone)
      : node_(node), options_(options), host_(host), mutant_(mutant) {}

  // A sender connected. Closed at once when there are too many.
  void Accept(std::unique_ptr<ByteStream> stream, int64_t now_us);
  // Readiness of a stream; ignored for one that is gone.
  void OnReady(PeerId peer, bool readable, bool writable, int64_t now_us);
  // Timers, new links, frames and blocks; then lets go of blocks whose transfers have ended.
  // Returns what the engine is to hear: only now nobody touches those blocks any more.
  std::vector<TransferEvent> EndRound(int64_t now_us);

  // When a round is due at the latest; INT64_MAX: never. At once while the pool is waited for.
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
  int32_t accepted_ = 0;  // of connections_
  uint64_t next_peer_ = 1;
};

}  // namespace baton
