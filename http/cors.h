// Cross-origin resource sharing: which web pages may read a server's answers.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "http/http_message.h"

namespace baton {

// Headers that allow the page of `request` to read the answer. Empty if the request names no origin
// or another one. `allow_origins`: as HttpServerOptions.
std::vector<HttpHeader> CorsHeaders(std::string_view allow_origins, const HttpRequest& request);

// Returns true for a browser's question whether a page may send a request.
bool IsPreflight(const HttpRequest& request);

// Headers of the answer to a preflight, beside CorsHeaders. `methods`: of the path.
std::vector<HttpHeader> PreflightHeaders(std::string_view methods, const HttpRequest& request);

}  // namespace baton
