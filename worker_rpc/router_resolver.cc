#include "worker_rpc/router_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  std::vector<std::string> out;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      out.emplace_back(text);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

RouterResolver::RouterResolver(RouterAddresses addresses, Found found, Resolve resolve,
                               int64_t interval_ms)
    : addresses_(std::move(addresses)),
      troubles_(addresses_.names().size()),
      found_(std::move(found)),
      resolve_(std::move(resolve)),
      interval_ms_(interval_ms),
      thread_([this] { Run(); }) {}

RouterResolver::~RouterResolver() {
  Stop();
  thread_.join();
}

void RouterResolver::Stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void RouterResolver::Run() {
  do {
    ResolveAll();
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    found_(addresses_.All());
  } while (!Pause());
}

void RouterResolver::ResolveAll() {
  for (size_t i = 0; i < addresses_.names().size(); ++i) {
    const absl::StatusOr<std::vector<std::string>> hosts = resolve_(addresses_.names()[i]);
    addresses_.OnResolved(i, hosts);
    std::string trouble(hosts.status().message());
    if (trouble == troubles_[i]) continue;
    LOG_IF(WARNING, !trouble.empty()) << trouble << "; the worker keeps the routers that it knows";
    troubles_[i] = std::move(trouble);
  }
}

bool RouterResolver::Pause() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(interval_ms_),
                           [this] { return stopping_; });
}

}  // namespace baton
