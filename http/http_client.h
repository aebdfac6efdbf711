// Small asynchronous HTTP/1.1 client for one server: streams the bodies of answers as they come,
// and reuses connections. This header includes no Boost header, because Boost's headers compile
// slowly. Beast only parses: its streams would add half a minute of compile time.
//
// Each running call has a connection of its own. One thread does all I/O and calls all handlers, so
// handlers must be short and must not block.
//
// Thread safety: from any thread, except the destructor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/host_port.h"
#include "security/tls_context.h"

namespace baton {

struct HttpCallEvents {
  // Bytes of the body, as they come. `status` is that of the answer.
  std::function<void(int status, std::string_view bytes)> on_body;
  // The last event; comes once. `error` is empty if the answer was complete. `status` is 0 if none
  // came.
  std::function<void(int status, const std::string& error)> on_end;
};

struct HttpClientOptions {
  std::shared_ptr<const TlsContext> tls = {};  // null: no encryption
  std::string api_key = {};                    // sent as "Authorization: Bearer"; empty: none
};

class HttpClient {
 public:
  // Connects when the first call begins. With TLS, the server's certificate must have its name.
  explicit HttpClient(const HostPort& server, HttpClientOptions options = {});
  // Cancels all calls and waits for the thread. No handler runs afterwards; calls that had not
  // ended get no more events.
  ~HttpClient();

  // Without a `body`, the method is GET, else POST with JSON. `timeout_ms` limits the whole call;
  // 0: no limit.
  void Start(const std::string& path, const std::string& body, int64_t timeout_ms,
             HttpCallEvents events);
  // Ends all calls that have been started with the error kHttpCancelled.
  void CancelAll();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr char kHttpCancelled[] = "cancelled";
inline constexpr char kHttpTimeout[] = "timeout";

}  // namespace baton
