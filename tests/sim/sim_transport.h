// Simulated host of production's TransferNode and ConnectionSet. It uses the event queue where
// TcpTransport uses epoll and a thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/protocol/posted_transport.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"
#include "tests/sim/connection_set.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_stream.h"

namespace baton {

class SimTransport final : public PostedTransport, private ConnectionSet::Host {
 public:
  // Belongs to the incarnation that `node` runs now. Listens at `address` until that incarnation
  // dies.
  SimTransport(SimNode& node, SimStreams& streams, std::string address,
               const TransportOptions& options, Mutant mutant = Mutant::kNone);

  std::string address() const override { return address_; }

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

  absl::StatusOr<std::unique_ptr<ByteStream>> Connect(const std::string& address,
                                                      PeerId peer) override;
  void Watch(PeerId peer, ByteStream& stream, bool writing) override;

  void ApplyPosted(int64_t now_us);
  void PostRound();
  void Round();
  void SetTimer();

  SimNode& node_;
  SimStreams& streams_;
  const std::string address_;
  const TcpOptions tcp_;
  TransferNode transfers_;
  ConnectionSet connections_;
  std::map<PeerId, Readiness> ready_;
  std::vector<std::unique_ptr<SimSocket>> accepted_;
  bool round_posted_ = false;
  bool abandoned_ = false;
  int64_t timer_us_ = 0;  // by the node's clock; 0: no timer
};

}  // namespace baton
