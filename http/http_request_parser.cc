#include "http/http_request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "http/chunk_line.h"

namespace baton {
namespace {

namespace beast_http = boost::beast::http;
using BeastError = boost::beast::error_code;
using BeastText = boost::beast::string_view;

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr size_t kMaxHeaders = 100;

std::string ToString(BeastText text) { return std::string(text.data(), text.size()); }

bool IsToken(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kMarks.find(c) != std::string_view::npos;
}

HttpProblem ProblemOf(const BeastError& error) {
  if (error == beast_http::error::bad_version) {
    return {.status = 505, .message = "the protocol is neither HTTP/1.0 nor HTTP/1.1"};
  }
  return {.status = 400, .message = absl::StrCat("this is not an HTTP request: ", error.message())};
}

}  // namespace

// Copies what Beast's parser finds into the request.
class HttpRequestParser::Beast final : public beast_http::basic_parser<true> {
 public:
  Beast(HttpRequestParser* owner, size_t max_header_bytes) : owner_(*owner) {
    eager(true);
    // The owner has its own limits, which answer with a status.
    header_limit(static_cast<std::uint32_t>(std::min<size_t>(
        max_header_bytes + kEndOfHead.size(), std::numeric_limits<std::uint32_t>::max())));
    body_limit(boost::none);
  }

  bool too_large() const { return too_large_; }
  // Bytes of the present chunk that are still to come.
  std::uint64_t chunk_left() const { return chunk_left_; }

 private:
  void on_request_impl(beast_http::verb, BeastText method, BeastText target, int version,
                       BeastError& error) override {
    HttpRequest& request = owner_.request_;
    request.method = ToString(method);
    owner_.version_1_0_ = version == 10;
    std::string path = ToString(target);
    // The absolute form, "http://host/path", is for proxies. Every server must take it.
    if (const size_t scheme = path.find("://"); !path.starts_with('/') && scheme < path.size()) {
      const size_t slash = path.find('/', scheme + 3);
      path = slash == std::string::npos ? "/" : path.substr(slash);
    }
    if (!path.starts_with('/') && path != "*") error = beast_http::error::bad_target;
    const size_t question = path.find('?');
    if (question != std::string::npos) {
      request.query = path.substr(question + 1);
      path.resize(question);
    }
    request.path = std::move(path);
  }
  void on_response_impl(int, BeastText, int, BeastError&) override {}
  void on_field_impl(beast_http::field, BeastText name, BeastText value, BeastError&) override {
    if (owner_.state_ != State::kReadingHead) return;  // a trailer
    owner_.request_.headers.push_back({.name = ToString(name), .value = ToString(value)});
  }
  void on_header_impl(BeastError&) override {}
  void on_body_init_impl(boost::optional<std::uint64_t> const&, BeastError&) override {}
  std::size_t on_body_impl(BeastText body, BeastError& error) override {
    std::string& kept = owner_.request_.body;
    if (body.size() > owner_.max_body_bytes_ - kept.size()) {
      too_large_ = true;
      error = beast_http::error::body_limit;
      return 0;
    }
    kept.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t size, BeastText, BeastError& error) override {
    chunk_left_ = size;
    if (size <= owner_.max_body_bytes_ - owner_.request_.body.size()) return;
    too_large_ = true;
    error = beast_http::error::body_limit;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastText body, BeastError& error) override {
    chunk_left_ -= body.size();
    return on_body_impl(body, error);
  }
  void on_finish_impl(BeastError&) override {}

  HttpRequestParser& owner_;
  bool too_large_ = false;
  std::uint64_t chunk_left_ = 0;
};

HttpRequestParser::HttpRequestParser(size_t max_header_bytes)
    : max_header_bytes_(max_header_bytes),
      beast_(std::make_unique<Beast>(this, max_header_bytes)) {}

HttpRequestParser::~HttpRequestParser() = default;

size_t HttpRequestParser::Fail(HttpProblem problem) {
  state_ = State::kFailed;
  problem_ = std::move(problem);
  return 0;
}

size_t HttpRequestParser::Feed(std::string_view bytes) {
  switch (state_) {
    case State::kReadingHead:
      return FeedHead(bytes);
    case State::kReadingBody:
      return FeedBody(bytes);
    default:
      return 0;
  }
}

size_t HttpRequestParser::FeedHead(std::string_view bytes) {
  // Some clients send an empty line behind a body.
  size_t skipped = 0;
  while (searched_ == 0 && bytes.starts_with("\r\n")) {
    bytes.remove_prefix(2);
    skipped += 2;
  }
  if (bytes.empty() || bytes == "\r") return skipped;
  if (!IsToken(bytes.front())) {
    return Fail({.status = 400, .message = "the first byte cannot begin an HTTP request"});
  }
  const size_t from = searched_ < kEndOfHead.size() ? 0 : searched_ - kEndOfHead.size();
  const size_t end = bytes.find(kEndOfHead, from);
  const bool whole = end != std::string_view::npos;
  const size_t length = whole ? end + kEndOfHead.size() : bytes.size();
  if (const auto problem = CheckLines(bytes.substr(0, length))) return Fail(*problem);
  if (length > max_header_bytes_) {
    return Fail({.status = 431,
                 .message = absl::StrCat("the request line and headers have more than ",
                                         max_header_bytes_, " bytes, the limit")});
  }
  if (!whole) {
    searched_ = length;
    return skipped;
  }
  BeastError error;
  beast_->put(boost::asio::const_buffer(bytes.data(), length), error);
  if (error && error != beast_http::error::need_more) return Fail(ProblemOf(error));
  if (!beast_->is_header_done()) {
    return Fail({.status = 400, .message = "this is not an HTTP request"});
  }
  FinishHead();
  return state_ == State::kFailed ? 0 : skipped + length;
}

std::optional<HttpProblem> HttpRequestParser::CheckLines(std::string_view head) const {
  // Earlier bytes were checked by an earlier call.
  for (size_t i = searched_ == 0 ? 0 : searched_ - 1; i < head.size(); ++i) {
    const char c = head[i];
    const bool last = i + 1 == head.size();
    if (c == '\n' && (i == 0 || head[i - 1] != '\r')) {
      return HttpProblem{.status = 400, .message = "a line does not end with CR and LF"};
    }
    if (c == '\r' && !last && head[i + 1] != '\n') {
      return HttpProblem{.status = 400, .message = "a CR is not followed by LF"};
    }
    if (c == '\n' && !last && (head[i + 1] == ' ' || head[i + 1] == '\t')) {
      return HttpProblem{.status = 400, .message = "a header continues on a second line"};
    }
    if (c == '\0') return HttpProblem{.status = 400, .message = "a header contains a zero byte"};
  }
  return std::nullopt;
}

void HttpRequestParser::FinishHead() {
  int hosts = 0;
  int codings = 0;
  int lengths = 0;
  bool expects_other = false;
  for (const HttpHeader& header : request_.headers) {
    if (HttpNamesEqual(header.name, "host")) ++hosts;
    if (HttpNamesEqual(header.name, "content-length")) {
      // Beast also takes "5, 5".
      lengths += std::all_of(header.value.begin(), header.value.end(), absl::ascii_isdigit) ? 1 : 2;
    }
    if (HttpNamesEqual(header.name, "transfer-encoding")) {
      ++codings;
      if (!HttpNamesEqual(header.value, "chunked")) {
        Fail({.status = 501,
              .message = absl::StrCat("Transfer-Encoding is \"", header.value.substr(0, 100),
                                      "\"; only chunked is supported")});
        return;
      }
    }
    if (HttpNamesEqual(header.name, "expect")) {
      expects_continue_ = HttpNamesEqual(header.value, "100-continue");
      expects_other = !expects_continue_;
    }
  }
  const size_t headers = request_.headers.size();
  if (headers > kMaxHeaders) {
    Fail({.status = 431,
          .message = absl::StrCat("the request has ", headers, " headers; at most ", kMaxHeaders,
                                  " are allowed")});
  } else if (hosts > 1 || (hosts == 0 && !version_1_0_)) {
    Fail({.status = 400,
          .message = absl::StrCat("the request has ", hosts, " Host headers; it must have one")});
  } else if (codings > 0 && (lengths > 0 || version_1_0_ || codings > 1)) {
    Fail({.status = 400,
          .message = "Transfer-Encoding must stand once, without Content-Length, in HTTP/1.1"});
  } else if (lengths > 1) {
    Fail({.status = 400, .message = "the request must have one Content-Length with one number"});
  } else if (expects_other) {
    Fail({.status = 417, .message = "Expect must be 100-continue"});
  }
  if (state_ == State::kFailed) return;
  expects_continue_ = expects_continue_ && !version_1_0_;
  keep_alive_ = beast_->keep_alive();
  has_body_ = !beast_->is_done();
  state_ = State::kHead;
}

void HttpRequestParser::ExpectBody(size_t max_body_bytes) {
  CHECK(state_ == State::kHead);
  max_body_bytes_ = max_body_bytes;
  if (!has_body_) {
    state_ = State::kComplete;
    return;
  }
  const auto length = beast_->content_length();
  if (length.has_value() && *length > max_body_bytes) {
    Fail({.status = 413,
          .message = absl::StrCat("the body has ", *length, " bytes; at most ", max_body_bytes,
                                  " are allowed here")});
    return;
  }
  state_ = State::kReadingBody;
}

size_t HttpRequestParser::FeedBody(std::string_view bytes) {
  size_t used = 0;
  while (!beast_->is_done()) {
    const std::string_view rest = bytes.substr(used);
    size_t length = rest.size();
    if (beast_->chunk_left() > 0) {
      length = std::min<std::uint64_t>(length, beast_->chunk_left());
    } else if (beast_->chunked()) {
      const ChunkLine line = FindChunkLine(rest);
      if (line.too_long) return Fail({.status = 400, .message = ChunkLineProblem()});
      length = line.bytes;
    }
    if (length == 0) break;
    BeastError error;
    const size_t count = beast_->put(boost::asio::const_buffer(rest.data(), length), error);
    used += count;
    if (beast_->too_large()) {
      return Fail({.status = 413,
                   .message = absl::StrCat("the body has more than ", max_body_bytes_,
                                           " bytes, the most that are allowed here")});
    }
    if (error && error != beast_http::error::need_more) return Fail(ProblemOf(error));
    if (count == 0) return Fail({.status = 400, .message = std::string(kNoChunk)});
  }
  if (beast_->is_done()) state_ = State::kComplete;
  return used;
}

}  // namespace baton
