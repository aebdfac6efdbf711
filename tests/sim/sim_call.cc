#include "tests/sim/sim_call.h"

#include <algorithm>

namespace baton {

SimCall::SimCall(SimNetwork& network, int32_t client, int32_t server, MessageKind kind,
                 int64_t deadline_us, Ended ended)
    : network_(network),
      client_(client),
      server_(server),
      kind_(kind),
      deadline_us_(deadline_us),
      client_incarnation_(network.node(client).incarnation()),
      ended_(std::move(ended)) {}

std::shared_ptr<SimCall> SimCall::Start(SimNetwork& network, int32_t client, int32_t server,
                                        MessageKind kind, int64_t deadline_us, Serve serve,
                                        Ended ended) {
  std::shared_ptr<SimCall> call(
      new SimCall(network, client, server, kind, deadline_us, std::move(ended)));
  network.AddLink(client, server, call);
  if (deadline_us > 0) {
    network.queue().At(deadline_us, [call] {
      call->EndAtClient(absl::DeadlineExceededError("Deadline Exceeded"));
      call->CallOff();
    });
  }
  const bool passed =
      call->Transmit(kind, /*to_server=*/true, [call, serve] { call->Request(serve); });
  if (!passed) call->EndAtClient(absl::UnavailableError("connection reset"));
  return call;
}

void SimCall::Request(const Serve& serve) {
  SimNode& server = network_.node(server_);
  if (client_ended_ || connection_lost_) return;
  if (!server.up()) {
    network_.Deliver(to_client_, server_, client_, 0, [call = shared_from_this()] {
      call->EndAtClient(absl::UnavailableError("connection refused"));
    });
    return;
  }
  server_incarnation_ = server.incarnation();
  server.Post(0, [call = shared_from_this(), serve] { serve(call); });
}

bool SimCall::ServerLives() const {
  const SimNode& server = network_.node(server_);
  return server_incarnation_ != 0 && server.incarnation() == server_incarnation_;
}

bool SimCall::Transmit(MessageKind kind, bool to_server, std::function<void()> arrive) {
  const int32_t from = to_server ? client_ : server_;
  const int32_t to = to_server ? server_ : client_;
  const Verdict verdict = network_.Judge(kind, from, to);
  if (verdict.action == Verdict::Action::kReset) {
    network_.queue().In(0, [call = shared_from_this()] { call->OnReset(); });
    return false;
  }
  SimNetwork::Lane& lane = to_server ? to_server_ : to_client_;
  if (verdict.action == Verdict::Action::kDuplicate) {
    network_.Deliver(lane, from, to, verdict.delay_us, arrive);
  }
  network_.Deliver(lane, from, to, verdict.delay_us, std::move(arrive));
  return true;
}

void SimCall::EndAtClient(const absl::Status& status) {
  if (client_ended_) return;
  client_ended_ = true;
  SimNode& client = network_.node(client_);
  if (client.incarnation() != client_incarnation_) {
    ended_ = nullptr;
    return;
  }
  // Releases the callback, because it may own this call.
  client.Post(0, [ended = std::exchange(ended_, nullptr), status] { ended(status); });
}

void SimCall::CallOff() {
  if (server_finished_ || called_off_ || !ServerLives()) return;
  called_off_ = true;
  network_.node(server_).Post(0, [call = shared_from_this()] {
    const auto called_off = std::exchange(call->on_called_off_, nullptr);
    if (called_off && !call->server_finished_) called_off();
  });
}

void SimCall::Cancel() {
  if (client_ended_) return;
  EndAtClient(absl::CancelledError("CANCELLED"));
  Transmit(kind_, /*to_server=*/true, [call = shared_from_this()] { call->CallOff(); });
}

void SimCall::Send(MessageKind kind, std::function<void()> deliver) {
  if (server_finished_ || called_off_) return;
  Transmit(kind, /*to_server=*/false, [call = shared_from_this(), deliver = std::move(deliver)] {
    SimNode& client = call->network_.node(call->client_);
    if (call->client_ended_ || client.incarnation() != call->client_incarnation_) return;
    client.Post(0, [call, deliver] {
      // If a cancel or the deadline ends the call before this event runs, `ended` runs after it.
      deliver();
    });
  });
}

void SimCall::Finish(absl::Status status) {
  if (server_finished_) return;
  server_finished_ = true;
  on_called_off_ = nullptr;
  if (called_off_) return;
  Transmit(kind_, /*to_server=*/false,
           [call = shared_from_this(), status = std::move(status)] { call->EndAtClient(status); });
}

void SimCall::OnCalledOff(std::function<void()> called_off) {
  if (server_finished_) return;
  if (called_off_) return called_off();
  on_called_off_ = std::move(called_off);
}

int64_t SimCall::MillisecondsLeft() const {
  if (deadline_us_ == 0) return 0;
  return std::max<int64_t>(1, (deadline_us_ - network_.queue().now_us()) / 1000);
}

void SimCall::OnNodeDied(int32_t node) {
  if (node == client_) {
    ended_ = nullptr;
    client_ended_ = true;
    network_.Deliver(to_server_, client_, server_, 0,
                     [call = shared_from_this()] { call->CallOff(); });
  } else {
    connection_lost_ = true;
    on_called_off_ = nullptr;
    network_.Deliver(to_client_, server_, client_, 0, [call = shared_from_this()] {
      call->EndAtClient(absl::UnavailableError("Socket closed"));
    });
  }
}

void SimCall::OnReset() {
  connection_lost_ = true;
  EndAtClient(absl::UnavailableError("Connection reset by peer"));
  CallOff();
}

}  // namespace baton
