// Simulated host of production's ConnectionRounds. It uses simulated streams and the event queue
// where SocketTransport uses sockets, epoll and a thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/posted_transport.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/connection_rounds.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_stream.h"

namespace baton {

class SimTransport final : public PostedTransport, private ConnectionRounds::Host {
 public:
  // Belongs to the incarnation that `node` runs now. Listens at `address` until that incarnation
  // dies.
  SimTransport(SimNode& node, SimStreams& streams, std::string address,
               const TransportOptions& options, Mutant mutant = Mutant::kNone);

  std::string address() const override { return address_; }

  // A connection that is not open yet or has open transfers.
  struct Busy {
    int32_t peer_node = 0;
    int64_t since_us = 0;  // time of the queue: the end of the first round that left it so
  };
  std::vector<Busy> BusyConnections() const;

  // Runs the I/O thread's round in the middle of an engine step, if the thread was woken.
  void RunIfPosted();

  // Ends every transfer, so that the rest of the engine can be destroyed. Call it when the process
  // has died and none of its code runs again.
  void Abandon();

 protected:
  absl::Status CheckAddress(const std::string& address) const override;
  void WakeIoThread() override;

 private:
  struct Readiness {
    bool readable = false;
    bool writable = false;
  };

  // ---- ConnectionRounds::Host ----
  absl::StatusOr<std::vector<std::string>> WaysTo(const std::string& address) const override {
    return std::vector<std::string>{address};
  }
  absl::StatusOr<std::unique_ptr<StreamConnection>> Connect(const std::string& way,
                                                            ConnectionParts parts) override;
  void Watch(StreamConnection& connection) override;
  void OnClosed(PeerId peer) override { peers_.erase(peer); }
  void DeliverReadiness(int64_t now_us) override;
  void TakePosted(std::vector<TransferCommand>& commands) override { TakeCommands(commands); }
  void QueueEvents(std::vector<TransferEvent> events) override { Queue(std::move(events)); }
  void WakeEngine() override { PostedTransport::WakeEngine(); }

  struct Peer {
    int32_t node = 0;
    int64_t busy_since_us = -1;  // -1: open, without transfers
  };

  void PostRound();
  void Round();
  void SetTimer();
  void NoteBusyConnections();

  SimNode& node_;
  SimStreams& streams_;
  const std::string address_;
  const Mutant mutant_;
  const TcpOptions tcp_;
  ConnectionRounds rounds_;
  std::map<PeerId, Readiness> ready_;
  std::map<PeerId, Peer> peers_;  // of every connection
  std::vector<std::unique_ptr<SimSocket>> accepted_;
  bool round_posted_ = false;
  bool abandoned_ = false;
  int64_t timer_us_ = 0;  // by the queue's time; 0: no timer
};

}  // namespace baton
