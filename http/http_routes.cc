#include "http/http_routes.h"

#include "common/str_cat.h"

namespace baton {
namespace {

bool Serves(const HttpRoute& route, std::string_view path) {
  if (route.path == path) return !route.path.ends_with('/') || route.path == "/";
  return route.path.ends_with('/') && route.path != "/" && path.starts_with(route.path);
}

bool ServesMethod(const HttpRoute& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

// The media type without its parameters: "text/html; charset=utf-8" → "text/html".
std::string_view MediaType(std::string_view content_type) {
  return HttpTrim(content_type.substr(0, content_type.find(';')));
}

// A start of a client's text for an error message.
std::string_view Shown(std::string_view text) { return text.substr(0, 200); }

}  // namespace

std::string HttpRoutes::Allowed(std::string_view path) const {
  std::string methods;
  for (const HttpRoute& route : routes_) {
    if (!Serves(route, path)) continue;
    const std::string listed = route.method == "GET" ? "GET, HEAD" : route.method;
    methods += (methods.empty() ? "" : ", ") + listed;
  }
  return methods;
}

HttpRoutes::Found HttpRoutes::Find(const HttpRequest& request) const {
  for (const HttpRoute& route : routes_) {
    if (!Serves(route, request.path) || !ServesMethod(route, request.method)) continue;
    const std::string* type = request.Header("content-type");
    if (type != nullptr && !route.content_type.empty() &&
        !HttpNamesEqual(MediaType(*type), route.content_type)) {
      return {.route = nullptr,
              .problem = {.status = 415,
                          .message = StrCat(
                              "Content-Type is \"", Shown(*type),
                              "\"; this path needs the header Content-Type: ", route.content_type)},
              .allow = ""};
    }
    const std::string* coding = request.Header("content-encoding");
    if (coding != nullptr && !route.content_type.empty() && !HttpNamesEqual(*coding, "identity")) {
      return {.route = nullptr,
              .problem = {.status = 415,
                          .message = StrCat("Content-Encoding is \"", Shown(*coding),
                                            "\"; this path takes bodies without a coding")},
              .allow = ""};
    }
    return {.route = &route, .problem = {}, .allow = ""};
  }
  std::string allow = Allowed(request.path);
  if (allow.empty()) {
    return {
        .route = nullptr,
        .problem = {.status = 404, .message = StrCat("there is nothing at ", Shown(request.path))},
        .allow = ""};
  }
  return {.route = nullptr,
          .problem = {.status = 405,
                      .message = StrCat("the method is ", Shown(request.method), "; ",
                                        Shown(request.path), " takes ", allow)},
          .allow = std::move(allow)};
}

}  // namespace baton
