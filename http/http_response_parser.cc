#include "http/http_response_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "http/chunk_line.h"

namespace baton {
namespace {

namespace beast_http = boost::beast::http;
using BeastError = boost::beast::error_code;
using BeastText = boost::beast::string_view;

constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr int kMaxInterimAnswers = 100;

}  // namespace

class HttpResponseParser::Beast final : public beast_http::basic_parser<false> {
 public:
  explicit Beast(const std::function<void(std::string_view)>* on_body) : on_body_(*on_body) {
    eager(true);
    header_limit(kMaxHeadBytes);
    body_limit(boost::none);
  }

  int status() const { return status_; }
  // Bytes of the present chunk that are still to come.
  std::uint64_t chunk_left() const { return chunk_left_; }

 private:
  void on_request_impl(beast_http::verb, BeastText, BeastText, int, BeastError&) override {}
  void on_response_impl(int status, BeastText, int, BeastError&) override { status_ = status; }
  void on_field_impl(beast_http::field, BeastText, BeastText, BeastError&) override {}
  void on_header_impl(BeastError&) override {}
  void on_body_init_impl(boost::optional<std::uint64_t> const&, BeastError&) override {}
  std::size_t on_body_impl(BeastText body, BeastError&) override {
    on_body_(std::string_view(body.data(), body.size()));
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t size, BeastText, BeastError&) override {
    chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastText body, BeastError& error) override {
    chunk_left_ -= body.size();
    return on_body_impl(body, error);
  }
  void on_finish_impl(BeastError&) override {}

  const std::function<void(std::string_view)>& on_body_;
  int status_ = 0;
  std::uint64_t chunk_left_ = 0;
};

HttpResponseParser::HttpResponseParser(std::function<void(std::string_view)> on_body)
    : on_body_(std::move(on_body)), beast_(std::make_unique<Beast>(&on_body_)) {}

HttpResponseParser::~HttpResponseParser() = default;

bool HttpResponseParser::complete() const { return problem_.empty() && beast_->is_done(); }
int HttpResponseParser::status() const { return beast_->is_header_done() ? beast_->status() : 0; }
bool HttpResponseParser::keep_alive() const { return beast_->keep_alive(); }

size_t HttpResponseParser::Feed(std::string_view bytes) {
  size_t used = 0;
  while (problem_.empty() && !beast_->is_done()) {
    const std::string_view rest = bytes.substr(used);
    if (!beast_->is_header_done()) {
      const size_t end = rest.find(kHeadEnd);
      const size_t length = end == std::string_view::npos ? rest.size() : end + kHeadEnd.size();
      if (length > kMaxHeadBytes) {
        problem_ = absl::StrCat("the head of the answer has more than ", kMaxHeadBytes,
                                " bytes, the limit");
      }
      if (end == std::string_view::npos || !problem_.empty()) break;
      FeedHead(rest.substr(0, length));
      used += length;
      continue;
    }
    size_t length = rest.size();
    if (beast_->chunk_left() > 0) {
      length = std::min<std::uint64_t>(length, beast_->chunk_left());
    } else if (beast_->chunked()) {
      const ChunkLine line = FindChunkLine(rest);
      if (line.too_long) problem_ = ChunkLineProblem();
      length = line.bytes;
    }
    if (length == 0) break;
    BeastError error;
    const size_t count = beast_->put(boost::asio::const_buffer(rest.data(), length), error);
    used += count;
    if (error && error != beast_http::error::need_more) {
      problem_ = error.message();
    } else if (count == 0) {
      problem_ = kNoChunk;
    }
  }
  return used;
}

void HttpResponseParser::FeedHead(std::string_view head) {
  BeastError error;
  beast_->put(boost::asio::const_buffer(head.data(), head.size()), error);
  if (error && error != beast_http::error::need_more) {
    problem_ = absl::StrCat("this is not an HTTP answer: ", error.message());
  } else if (!beast_->is_header_done()) {
    problem_ = "this is not an HTTP answer";
  } else if (beast_->status() == 101) {
    problem_ = "the server switches to another protocol";
  } else if (beast_->status() / 100 == 1) {
    beast_ = std::make_unique<Beast>(&on_body_);
    if (++interim_answers_ > kMaxInterimAnswers) {
      problem_ = absl::StrCat("more than ", kMaxInterimAnswers, " interim answers, the limit");
    }
  }
}

void HttpResponseParser::FeedEnd() {
  if (!problem_.empty() || beast_->is_done()) return;
  BeastError error;
  if (beast_->is_header_done()) beast_->put_eof(error);
  if (error || !beast_->is_done()) problem_ = "the server closed the connection too early";
}

}  // namespace baton
