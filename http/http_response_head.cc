#include "http/http_response_head.h"

#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "common/str_cat.h"

namespace baton {
namespace {

void AppendHeader(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) {
    out.push_back(absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c);
  }
  out.append("\r\n");
}

bool HasNoBody(int status) { return status < 200 || status == 204 || status == 304; }

HttpBodyFraming BodyFraming(int status, std::optional<size_t> length, const HttpFraming& framing) {
  if (framing.head_only || HasNoBody(status)) return HttpBodyFraming::kNone;
  if (length.has_value()) return HttpBodyFraming::kLength;
  return framing.version_1_0 ? HttpBodyFraming::kClose : HttpBodyFraming::kChunked;
}

}  // namespace

HttpHead MakeHttpHead(const HttpResponse& response, std::optional<size_t> length,
                      const HttpFraming& framing) {
  HttpHead head;
  head.body = BodyFraming(response.status, length, framing);
  const bool draining = framing.draining != nullptr && framing.draining->load();
  head.keep_alive = framing.keep_alive && !draining && head.body != HttpBodyFraming::kClose;

  std::string& out = head.text;
  out = StrCat("HTTP/1.1 ", response.status, " ", HttpReason(response.status), "\r\n");
  AppendHeader(out, "Date", HttpDate());
  if (!response.content_type.empty()) AppendHeader(out, "Content-Type", response.content_type);
  if (!HasNoBody(response.status)) {
    if (length.has_value()) {
      AppendHeader(out, "Content-Length", StrCat(*length));
    } else if (!framing.version_1_0) {
      AppendHeader(out, "Transfer-Encoding", "chunked");
    }
  }
  if (!framing.request_id.empty()) AppendHeader(out, "x-request-id", framing.request_id);
  for (const HttpHeader& header : framing.extra_headers) {
    AppendHeader(out, header.name, header.value);
  }
  for (const HttpHeader& header : response.headers) AppendHeader(out, header.name, header.value);
  if (!head.keep_alive) {
    AppendHeader(out, "Connection", "close");
  } else if (framing.version_1_0) {
    AppendHeader(out, "Connection", "keep-alive");
  }
  out.append("\r\n");
  return head;
}

std::string HttpChunk(std::string_view piece) {
  return StrCat(absl::Hex(piece.size()), "\r\n", piece, "\r\n");
}

std::string HttpDate() {
  const std::time_t now = std::time(nullptr);
  // Answers come much more often than seconds pass.
  thread_local std::time_t written = -1;
  thread_local std::string text;
  if (now != written) {
    std::tm utc = {};
    gmtime_r(&now, &utc);
    // The names of strftime would follow the locale.
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    text = absl::StrFormat("%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                           kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                           utc.tm_sec);
    written = now;
  }
  return text;
}

}  // namespace baton
