// TCP between simulated workers: sockets that production's ConnectionSet reads and writes.
//
// Bytes leave in segments of a few at a time, straight from where the writer has them at that
// moment, so a block's payload departs and lands over simulated time. A connection's window bounds
// what is under way. A segment may be flipped or cut short by a fault; TCP's own promises hold
// otherwise (sim_network.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/sim/byte_stream.h"
#include "tests/sim/sim_network.h"

namespace baton {

class SimConnection;

// One end of a connection.
class SimSocket final : public ByteStream {
 public:
  SimSocket(std::shared_ptr<SimConnection> connection, int end)
      : connection_(std::move(connection)), end_(end) {}
  ~SimSocket() override;

  absl::Status ConnectResult() override;
  absl::StatusOr<int64_t> Read(std::span<const iovec> buffers) override;
  absl::StatusOr<int64_t> Write(std::span<const iovec> buffers) override;

  // Who is told of readiness (in its process), and whether it waits for room to write.
  void Watch(std::function<void(bool readable, bool writable)> ready, bool writing);

 private:
  const std::shared_ptr<SimConnection> connection_;
  const int end_;
};

class SimStreams {
 public:
  using Accept = std::function<void(std::unique_ptr<SimSocket>)>;

  SimStreams(SimNetwork& network, uint64_t seed) : network_(network), sizes_(seed, "streams") {}

  // A process listens until it dies. `accept` runs in its process.
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
  std::map<std::string, int32_t> homes_;  // node of every address that was ever listened at
  std::map<std::string, Listener> listeners_;
};

}  // namespace baton
