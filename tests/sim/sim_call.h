// Simulated gRPC call between two processes. Messages arrive in order, then a status. Calls have
// cancellation and a deadline that both sides know. They end with UNAVAILABLE when the connection
// or the peer process is lost.
//
// Rules, as of gRPC's client and callback server:
//  1. The client gets its status exactly once, unless it died first. No message follows.
//  2. The server learns of a cancellation at most once, and never after it has finished.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tests/sim/sim_network.h"

namespace baton {

class SimCall final : public SimLink, public std::enable_shared_from_this<SimCall> {
 public:
  using Serve = std::function<void(const std::shared_ptr<SimCall>&)>;
  using Ended = std::function<void(absl::Status)>;

  // Starts a call from `client` to `server`. `deadline_us` is a time of the event queue; 0: none.
  // `serve` runs in the server's process when the call arrives there.
  static std::shared_ptr<SimCall> Start(SimNetwork& network, int32_t client, int32_t server,
                                        MessageKind kind, int64_t deadline_us, Serve serve,
                                        Ended ended);

  // For the client.
  void Cancel();

  // Both for the server. `deliver` runs in the client's process.
  void Send(MessageKind kind, std::function<void()> deliver);
  void Finish(absl::Status status);
  // Sets the cancellation callback. It runs in the server's process, and at once if the call was
  // already cancelled.
  void OnCalledOff(std::function<void()> called_off);
  // Returns the time until the deadline; 0 if there is none.
  int64_t MillisecondsLeft() const;

  void OnNodeDied(int32_t node) override;
  void OnReset() override;
  int32_t server() const override { return server_; }
  bool IsServedBy(int32_t node) const override { return node == server_ && !server_finished_; }

 private:
  SimCall(SimNetwork& network, int32_t client, int32_t server, MessageKind kind,
          int64_t deadline_us, Ended ended);

  void Request(const Serve& serve);
  void EndAtClient(const absl::Status& status);
  void CallOff();
  bool ServerLives() const;
  // Asks the judge, then sends. Returns false if a fault broke the connection.
  bool Transmit(MessageKind kind, bool to_server, std::function<void()> arrive);

  SimNetwork& network_;
  const int32_t client_;
  const int32_t server_;
  const MessageKind kind_;
  const int64_t deadline_us_;
  const uint64_t client_incarnation_;
  uint64_t server_incarnation_ = 0;  // 0: not reached yet
  Ended ended_;
  SimNetwork::Lane to_server_;
  SimNetwork::Lane to_client_;
  bool connection_lost_ = false;  // a request in flight must not reach a later incarnation
  bool client_ended_ = false;
  bool server_finished_ = false;
  bool called_off_ = false;
  std::function<void()> on_called_off_;
};

}  // namespace baton
