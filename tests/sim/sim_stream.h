// Simulated TCP between workers: streams in place of the sockets of production's connections.
//
// Bytes leave in small segments. Each segment copies the writer's bytes when it is sent, so a
// block's payload leaves and arrives over simulated time. A connection's window limits the bytes in
// flight. A fault may flip a bit of a segment or cut it short. TCP's promises hold otherwise
// (sim_network.h).
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/sim/sim_network.h"

namespace baton {

class SimConnection;

// One end of a connection: an ordered, non-blocking stream of bytes. It can break at any point. Its
// destructor closes it.
class SimSocket final {
 public:
  SimSocket(std::shared_ptr<SimConnection> connection, int end)
      : connection_(std::move(connection)), end_(end) {}
  SimSocket(const SimSocket&) = delete;
  SimSocket& operator=(const SimSocket&) = delete;
  ~SimSocket();

  // Returns the node of the other end.
  int32_t peer_node() const;
  // Returns the result of connecting. Valid once the stream has become writable for the first time.
  absl::Status ConnectResult();
  // Return the number of bytes moved; 0 if the call would block. Unavailable: the stream is broken,
  // or (Read) the peer closed it.
  absl::StatusOr<int64_t> Read(std::span<const iovec> buffers);
  absl::StatusOr<int64_t> Write(std::span<const iovec> buffers);

  // Sets the callback for readiness, which runs in the process of this end. `writing`: also report
  // room to write.
  void Watch(std::function<void(bool readable, bool writable)> ready, bool writing);

 private:
  const std::shared_ptr<SimConnection> connection_;
  const int end_;
};

class SimStreams {
 public:
  using Accept = std::function<void(std::unique_ptr<SimSocket>)>;

  SimStreams(SimNetwork& network, uint64_t seed) : network_(network), sizes_(seed, "streams") {}

  // Listens at `address` until the process dies. `accept` runs in its process.
  void Listen(const std::string& address, int32_t node, Accept accept);
  absl::StatusOr<std::unique_ptr<SimSocket>> Connect(const std::string& address, int32_t node);
  void NodeDied(int32_t node);

 private:
  struct Listener {
    int32_t node = 0;
    uint64_t incarnation = 0;
    Accept accept;
  };
  void Arrive(const std::string& address, const std::shared_ptr<SimConnection>& connection);

  SimNetwork& network_;
  SimRandom sizes_;
  std::map<std::string, int32_t> homes_;  // maps every address ever listened at to its node
  std::map<std::string, Listener> listeners_;
};

}  // namespace baton
