// Requests and answers of HTTP/1.1, as handlers see them.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string id;      // the client's x-request-id, if HttpIdIsSane; otherwise drawn by the server
  std::string method;  // upper case: "GET"
  std::string path;    // as sent, not decoded: "/v1/models/a%2Fb"
  std::string query;   // behind the '?'; empty if there is none
  std::vector<HttpHeader> headers;  // in their order
  std::string body;

  // Returns the value of the first header with this name, in any case; nullptr if there is none.
  const std::string* Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type;         // empty: no such header
  std::vector<HttpHeader> headers;  // the server adds framing, date, request id and CORS itself
  std::string body;
};

// An error that the server finds by itself, before a handler runs.
struct HttpProblem {
  int status = 400;
  std::string message;  // a sentence with the value and the limit
};

// Compares names without regard to the case of ASCII letters.
bool HttpNamesEqual(std::string_view left, std::string_view right);

// Removes spaces and tabs at both ends.
std::string_view HttpTrim(std::string_view text);

// Decodes "%2F" and the like. Absent: a percent sign without two hexadecimal digits.
std::optional<std::string> PercentDecode(std::string_view text);

// Returns true for 1 to 128 letters, digits and "-_.:/+=@". Other ids could not be copied into
// headers and logs.
bool HttpIdIsSane(std::string_view id);

// Returns true if a header's value contains this element in its comma-separated list, in any case.
bool HttpListHas(std::string_view value, std::string_view element);

// The reason phrase of a status: "Not Found".
std::string_view HttpReason(int status);

}  // namespace baton
