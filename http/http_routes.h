// Which handler serves a request: table of methods and paths.
//
// Thread safety: immutable after the last Add.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_exchange.h"
#include "http/http_message.h"

namespace baton {

// Runs on an I/O thread that other connections wait for, so it must not block. It may keep the
// exchange and answer later.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;

struct HttpRoute {
  std::string method;  // a GET also serves HEAD
  // A path that ends in '/' serves every longer path that begins so; any other path only itself.
  std::string path;
  HttpHandler handler;
  size_t max_body_bytes = 0;
  // Refuses bodies of another type, or with a content coding, with status 415; a request without
  // type is accepted. Empty: takes any.
  std::string content_type = {};
};

class HttpRoutes {
 public:
  void Add(HttpRoute route) { routes_.push_back(std::move(route)); }

  struct Found {
    const HttpRoute* route = nullptr;  // null: the problem says why
    HttpProblem problem;               // 404, 405 or 415
    std::string allow;                 // methods for the Allow header, with 405
  };
  // Looks at method, path and headers.
  Found Find(const HttpRequest& request) const;
  const std::vector<HttpRoute>& All() const { return routes_; }
  // Methods of a path, as in an Allow header; empty: no such path.
  std::string Allowed(std::string_view path) const;

 private:
  std::vector<HttpRoute> routes_;
};

}  // namespace baton
