#include "http/cors.h"

#include <string>

namespace baton {

std::vector<HttpHeader> CorsHeaders(std::string_view allow_origins, const HttpRequest& request) {
  const std::string* origin = request.Header("origin");
  if (origin == nullptr || allow_origins.empty()) return {};
  const bool all = HttpListHas(allow_origins, "*");
  if (!all && !HttpListHas(allow_origins, *origin)) return {{"Vary", "Origin"}};
  return {{"Access-Control-Allow-Origin", all ? "*" : *origin},
          {"Access-Control-Expose-Headers", "x-request-id, Retry-After, Baton-Ignored-Fields"},
          {"Vary", "Origin"}};
}

bool IsPreflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.Header("origin") != nullptr &&
         request.Header("access-control-request-method") != nullptr;
}

std::vector<HttpHeader> PreflightHeaders(std::string_view methods, const HttpRequest& request) {
  const std::string* headers = request.Header("access-control-request-headers");
  return {{"Access-Control-Allow-Methods", std::string(methods)},
          {"Access-Control-Allow-Headers",
           headers == nullptr ? "Authorization, Content-Type" : *headers},
          {"Access-Control-Max-Age", "600"}};
}

}  // namespace baton
