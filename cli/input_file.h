// Input of a command: a file that the command line names, or standard input. Neither is trusted: a
// line beyond the limit is skipped and never stored. A read failure is distinguished from the end.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

enum class LineRead : uint8_t { kLine, kTooLong, kEnd, kFailed };

class InputFile {
 public:
  // Opens the file. InvalidArgument names the path and the reason: not found, a directory, …
  static absl::StatusOr<InputFile> Open(const std::string& path);
  static InputFile StandardInput();
  // `name` is for messages. The destructor closes `file`, except standard input.
  InputFile(std::FILE* file, std::string name);

  // Reads to the next newline, which is not part of `line`, or to the end of the input. kTooLong:
  // the line had more than `max_bytes`, and `line` holds its first `max_bytes`. kFailed: status()
  // says why; a line that had begun is lost.
  LineRead ReadLine(size_t max_bytes, std::string& line);
  // Returns true if a newline ended the last line of ReadLine, and false if the input ended there.
  bool line_ended() const { return line_ended_; }
  // Number of bytes that ReadLine has read, with newlines.
  int64_t bytes_read() const { return bytes_read_; }

  // Returns true if the input can be read again: a regular file, not a pipe or a terminal.
  bool CanRewind() const { return begin_ >= 0; }
  // Continues from the position at which this was created. REQUIRES: CanRewind().
  void Rewind();

  // Returns the rest of the input. InvalidArgument if it has more than `max_bytes`; otherwise the
  // error of status().
  absl::StatusOr<std::string> ReadAll(size_t max_bytes);

  // Returns Unavailable, with name and reason, after a read failure.
  const absl::Status& status() const { return status_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const;  // leaves standard input open
  };

  absl::Status Failed();

  std::unique_ptr<std::FILE, Close> file_;
  std::string name_;
  int64_t begin_ = -1;  // position where reading began; negative: the input cannot be rewound
  bool line_ended_ = false;
  int64_t bytes_read_ = 0;
  absl::Status status_;
};

}  // namespace baton
