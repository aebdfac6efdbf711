// Incremental parser of an answer to a client (HTTP/1.1), built on Boost.Beast's parser. The body
// is passed on as it comes. Interim answers (status 1xx) are skipped.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace baton {

class HttpResponseParser {
 public:
  static constexpr size_t kMaxHeadBytes = size_t{64} << 10;

  explicit HttpResponseParser(std::function<void(std::string_view)> on_body);
  ~HttpResponseParser();

  // Returns the number of bytes used. The next call must begin with the unused ones. How the bytes
  // are split makes no difference.
  size_t Feed(std::string_view bytes);
  // The server has closed the connection, which ends an answer without a length.
  void FeedEnd();

  bool complete() const;
  // 0 before the whole head.
  int status() const;
  // True if another request may follow. REQUIRES: complete().
  bool keep_alive() const;
  // What is wrong with the answer. Empty if nothing is wrong so far.
  const std::string& problem() const { return problem_; }

 private:
  class Beast;

  void FeedHead(std::string_view head);

  const std::function<void(std::string_view)> on_body_;
  std::unique_ptr<Beast> beast_;
  int interim_answers_ = 0;
  std::string problem_;
};

}  // namespace baton
