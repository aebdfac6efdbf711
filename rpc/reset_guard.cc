#include "rpc/reset_guard.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "common/check.h"
#include "common/file_descriptor.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// From one look to the next: a hundred times the processor time that a look takes, so looking costs
// 1 % of a core. In a storm, when a look waits for a processor, the pause must not be longer.
constexpr int64_t kPauseOfLooks = 100;
constexpr int64_t kLeastPauseUs = 5'000, kMostPauseUs = 200'000;
constexpr int kConnectionsEachLook = 100;
// More than a socket's buffer has. Linux takes nothing more in behind the shutdown.
constexpr int kMostReads = 4096;
// gRPC frees the calls of a closed connection within seconds. malloc keeps their memory, for each
// thread its own, so storms on one connection after another would take up more and more. To give
// it back stops other threads' allocations, for longer the more memory there is.
constexpr int64_t kTrimEveryUs = 250'000, kTrimForUs = 5'000'000, kPauseOfTrims = 20;

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Processor time of this thread.
int64_t CpuUs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

// Takes the text of a channelz function. An empty object if gRPC has no such thing any more.
Json Parsed(char* text) {
  const std::unique_ptr<char, decltype(&gpr_free)> owner(text, &gpr_free);
  Json json = Json::parse(text == nullptr ? "" : text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

// Channelz writes 64-bit numbers as text, and leaves out zeros.
int64_t NumberAt(const Json& object, const char* pointer) {
  const Json value = object.value(Json::json_pointer(pointer), Json());
  if (value.is_number_integer()) return value.get<int64_t>();
  int64_t number = 0;
  if (value.is_string()) (void)absl::SimpleAtoi(value.get<std::string>(), &number);
  return number;
}

// One end of a connection. IPv4 addresses as IPv6 maps them.
struct End {
  in6_addr address = {};
  int32_t port = 0;

  std::string host() const { return {reinterpret_cast<const char*>(&address), sizeof(address)}; }
  bool operator==(const End& other) const {
    return port == other.port && std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

End EndOf(std::string_view bytes, int64_t port) {
  End end{.port = static_cast<int32_t>(port)};
  if (bytes.size() == sizeof(end.address)) {
    std::memcpy(&end.address, bytes.data(), sizeof(end.address));
  } else if (bytes.size() == sizeof(in_addr)) {
    end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
    std::memcpy(end.address.s6_addr + 12, bytes.data(), sizeof(in_addr));
  }
  return end;
}

// `name`: getsockname or getpeername. nullopt: not a connection over IP.
std::optional<End> EndOf(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (name(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  if (storage.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return EndOf({reinterpret_cast<const char*>(&v4->sin_addr), sizeof(v4->sin_addr)},
                 ntohs(v4->sin_port));
  }
  if (storage.ss_family != AF_INET6) return std::nullopt;
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return EndOf({reinterpret_cast<const char*>(&v6->sin6_addr), sizeof(v6->sin6_addr)},
               ntohs(v6->sin6_port));
}

// From a channelz socket, at "/socket/remote/tcpip_address".
End EndOf(const Json& address) {
  std::string bytes;
  const Json text = address.value("ip_address", Json());
  if (text.is_string()) (void)absl::Base64Unescape(text.get<std::string>(), &bytes);
  return EndOf(bytes, NumberAt(address, "/port"));
}

// Shuts down this process's connection from `port` to `peer`, and drops what has arrived and was
// not read. Returns false if there is none.
bool ShutDown(int32_t port, const End& peer) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    int number = -1;
    if (!absl::SimpleAtoi(entry.path().filename().native(), &number)) continue;
    if (EndOf(number, &getpeername) != peer) continue;
    // gRPC could close the descriptor, and another file could get its number. A duplicate stays.
    const FileDescriptor socket(dup(number));
    const std::optional<End> local = EndOf(socket.get(), &getsockname);
    if (!local || local->port != port || EndOf(socket.get(), &getpeername) != peer) continue;
    if (shutdown(socket.get(), SHUT_RDWR) != 0) return false;
    // gRPC would still begin the calls that have arrived: thousands. It may read at the same time
    // and miss bytes, but then it can answer nothing any more.
    char bytes[16'384];
    for (int reads = 0; reads < kMostReads; ++reads) {
      if (recv(socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) break;
    }
    return true;
  }
  return false;
}

}  // namespace

ResetGuard::ResetGuard(int32_t port, std::string address, const ResetLimits& limits)
    : port_(port),
      address_(std::move(address)),
      budget_(limits),
      barred_us_(limits.barred_us),
      thread_([this] { Run(); }) {}

ResetGuard::~ResetGuard() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool ResetGuard::Admits(int socket) {
  const std::lock_guard lock(mutex_);
  if (barred_.empty()) return true;
  const std::optional<End> peer = EndOf(socket, &getpeername);
  const auto found = peer ? barred_.find(peer->host()) : barred_.end();
  return found == barred_.end() || found->second <= NowUs();
}

void ResetGuard::Run() {
  std::unique_lock lock(mutex_);
  int64_t pause_us = kLeastPauseUs;
  while (!wake_.wait_for(lock, std::chrono::microseconds(pause_us), [this] { return stopped_; })) {
    lock.unlock();
    const int64_t begun_us = NowUs();
    const int64_t begun_cpu_us = CpuUs();
    Look(begun_us);
    pause_us = std::clamp(kPauseOfLooks * (CpuUs() - begun_cpu_us), kLeastPauseUs, kMostPauseUs);
    if (begun_us >= next_trim_us_ && begun_us < last_storm_us_ + kTrimForUs) {
      const int64_t trim_us = NowUs();
      malloc_trim(0);
      const int64_t ended_us = NowUs();
      next_trim_us_ = ended_us + std::max(kTrimEveryUs, kPauseOfTrims * (ended_us - trim_us));
    }
    lock.lock();
  }
}

void ResetGuard::Look(int64_t now_us) {
  if (server_ == 0 && next_connection_ == 0) round_began_us_ = now_us;
  const Json servers = Parsed(grpc_channelz_get_servers(server_));
  for (const Json& server : servers.value("server", Json::array())) {
    const int64_t id = NumberAt(server, "/ref/serverId");
    if (id != server_) next_connection_ = 0;
    server_ = id;
    const Json sockets =
        Parsed(grpc_channelz_get_server_sockets(id, next_connection_, kConnectionsEachLook));
    for (const Json& socket : sockets.value("socketRef", Json::array())) {
      const int64_t connection = NumberAt(socket, "/socketId");
      LookAt(connection, now_us);
      next_connection_ = connection + 1;
    }
    if (!sockets.value("end", true)) return;  // the next look goes on here
  }
  server_ = next_connection_ = 0;
  budget_.ForgetSeenBefore(round_began_us_);
}

void ResetGuard::LookAt(int64_t connection, int64_t now_us) {
  const Json found = Parsed(grpc_channelz_get_socket(connection));
  const Json socket = found.value("socket", Json::object());
  const Json none = Json::object();
  const Json::json_pointer local("/local/tcpip_address"), remote("/remote/tcpip_address");
  if (NumberAt(socket.value(local, none), "/port") != port_) return;  // another server's
  const int64_t unanswered =
      NumberAt(socket, "/data/streamsStarted") - NumberAt(socket, "/data/streamsSucceeded");
  if (!budget_.IsExceeded(connection, unanswered, now_us)) return;
  const End peer = EndOf(socket.value(remote, none));
  if (!ShutDown(port_, peer)) return;
  last_storm_us_ = now_us;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(barred_, [&](const auto& entry) { return entry.second <= now_us; });
    barred_[peer.host()] = now_us + barred_us_;
  }
  LOG_EVERY_T(WARNING, 10) << address_ << ": closed a connection whose client began and reset "
                           << "calls too fast (" << unanswered
                           << " without an answer); such messages come at most every 10 s";
}

}  // namespace baton
