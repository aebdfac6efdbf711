#include "tests/sim/sim_client.h"

#include <utility>

namespace baton {

void SimClients::Say(const std::optional<Violation>& violation) {
  if (violation) environment_.violation(*violation);
}

void SimClients::Schedule(const ScenarioRequest& request, const Excuses& excuses) {
  auto client = std::make_shared<Client>(request, excuses, environment_);
  clients_[request.request.number] = client;
  environment_.node->Post(request.start_us - now_us(), [this, client] { Send(client); });
}

void SimClients::Send(const std::shared_ptr<Client>& client) {
  const ScenarioRequest& wanted = client->request;
  SimReader reader{.on_response =
                       [this, client](SimResponse response) {
                         client->inbox.push_back(std::move(response));
                         ReadOne(client);
                       },
                   .unread = client->unread,
                   .max_unread = wanted.max_unread};
  environment_.node->Note(wanted.request.number, "sends a prompt of %d tokens and asks for %d",
                          static_cast<int64_t>(wanted.request.prompt.size()),
                          *wanted.request.sampling.max_tokens);
  environment_.chunks->OnSent(wanted.request);
  client->call = SimCall::Start(
      *environment_.network, environment_.node->id(), environment_.router->node().id(),
      MessageKind::kCall, now_us() + wanted.deadline_us,
      [router = environment_.router, request = wanted.request,
       reader](const std::shared_ptr<SimCall>& call) { router->Generate(call, request, reader); },
      [this, client](absl::Status status) {
        client->status = std::move(status);
        // After its own deadline or cancellation, the client does not read the rest.
        if (absl::IsDeadlineExceeded(*client->status) || absl::IsCancelled(*client->status)) {
          client->inbox.clear();
        }
        ReadOne(client);
      });
  if (wanted.cancel_after_us > 0) {
    environment_.node->Post(wanted.cancel_after_us, [client] {
      if (client->call != nullptr) client->call->Cancel();
    });
  }
}

void SimClients::ReadOne(const std::shared_ptr<Client>& client) {
  if (client->reading) return;
  if (client->inbox.empty()) {
    if (client->status) End(client);
    return;
  }
  client->reading = true;
  environment_.node->Post(client->request.read_us, [this, client] { Take(client); });
}

void SimClients::Take(const std::shared_ptr<Client>& client) {
  client->reading = false;
  if (!client->inbox.empty()) {
    const SimResponse response = std::move(client->inbox.front());
    client->inbox.pop_front();
    --*client->unread;
    ++client->messages;
    environment_.node->Note(client->request.request.number, "reads message %d", client->messages);
    Say(client->oracle.OnResponse(response));
    if (const auto* info = std::get_if<FinishInfo>(&response)) {
      const SimGenerateRequest& request = client->request.request;
      Say(environment_.chunks->OnFinish(request, *info,
                                        environment_.router->Retried(request.number)));
    }
    if (client->messages == client->request.cancel_after_messages) client->call->Cancel();
  }
  ReadOne(client);
}

void SimClients::End(const std::shared_ptr<Client>& client) {
  const absl::Status status = *std::exchange(client->status, std::nullopt);
  environment_.node->Note(client->request.request.number, "ends", 0, 0, status.ToString());
  const int64_t late_us = client->request.read_us * client->messages;
  Say(client->oracle.OnEnd(status, now_us(), late_us, client->excuses));
  client->call = nullptr;
  ++ended_;
  succeeded_ += client->oracle.succeeded() ? 1 : 0;
  last_end_us_ = now_us();
}

}  // namespace baton
