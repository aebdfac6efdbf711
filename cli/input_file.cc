#include "cli/input_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/str_cat.h"

namespace baton {
namespace {

absl::Status CannotOpen(const std::string& path, int error) {
  return absl::InvalidArgumentError(StrCat("cannot read ", path, ": ", std::strerror(error)));
}

}  // namespace

void InputFile::Close::operator()(std::FILE* file) const {
  if (file != stdin) std::fclose(file);
}

InputFile::InputFile(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {
  struct stat info = {};
  if (file != nullptr && fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode)) {
    begin_ = ftello(file);
  }
}

void InputFile::Rewind() {
  if (fseeko(file_.get(), begin_, SEEK_SET) != 0) Failed().IgnoreError();
  bytes_read_ = 0;
}

InputFile InputFile::StandardInput() { return {stdin, "standard input"}; }

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return CannotOpen(path, errno);
  InputFile input(file, path);
  struct stat info = {};
  if (fstat(fileno(file), &info) != 0) return CannotOpen(path, errno);
  if (S_ISDIR(info.st_mode)) return CannotOpen(path, EISDIR);
  return input;
}

absl::Status InputFile::Failed() {
  status_ = absl::UnavailableError(StrCat("cannot read ", name_, ": ", std::strerror(errno)));
  return status_;
}

LineRead InputFile::ReadLine(size_t max_bytes, std::string& line) {
  line.clear();
  if (!status_.ok()) return LineRead::kFailed;
  bool too_long = false;
  line_ended_ = false;
  for (int byte = getc_unlocked(file_.get()); byte != '\n'; byte = getc_unlocked(file_.get())) {
    if (byte == EOF) {
      if (std::ferror(file_.get()) != 0) {
        line.clear();
        Failed().IgnoreError();
        return LineRead::kFailed;
      }
      if (line.empty()) return LineRead::kEnd;
      return too_long ? LineRead::kTooLong : LineRead::kLine;
    }
    ++bytes_read_;
    if (line.size() < max_bytes) {
      line.push_back(static_cast<char>(byte));
    } else {
      too_long = true;
    }
  }
  ++bytes_read_;
  line_ended_ = true;
  return too_long ? LineRead::kTooLong : LineRead::kLine;
}

absl::StatusOr<std::string> InputFile::ReadAll(size_t max_bytes) {
  if (!status_.ok()) return status_;
  std::string text;
  char buffer[16 << 10];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file_.get())) {
    if (count > max_bytes - text.size()) {
      return absl::InvalidArgumentError(StrCat(name_, " has more than ", max_bytes, " bytes"));
    }
    text.append(buffer, count);
  }
  if (std::ferror(file_.get()) != 0) return Failed();
  return text;
}

}  // namespace baton
