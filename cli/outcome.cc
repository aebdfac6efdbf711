#include "cli/outcome.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/printable_text.h"

namespace baton {
namespace {

constexpr size_t kMostErrorBytes = 8192;

}  // namespace

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s: %s\n",
               std::string(absl::StatusCodeToString(status.code())).c_str(),
               Printable(std::string(status.message()), kMostErrorBytes).c_str());
  return ExitCodeOf(status);
}

bool PrintResult(std::string_view text) {
  const bool failed_before = std::ferror(stdout) != 0;
  const bool taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && taken) return !failed_before;
  const char* const why = std::strerror(errno);
  if (!failed_before)
    ReportError(absl::UnavailableError(absl::StrCat("cannot write results: ", why)));
  return false;
}

absl::Status CheckWritten(std::FILE* output) {
  errno = 0;
  const bool failed_before = std::ferror(output) != 0;
  const bool fails = std::fflush(output) != 0;
  if (!failed_before && !fails) return absl::OkStatus();
  const char* const why = errno != 0 ? std::strerror(errno) : "a write failed before the end";
  return absl::UnavailableError(absl::StrCat("results are lost: ", why));
}

int EndCommand(int exit_code) {
  absl::Status written = CheckWritten(stdout);
  if (written.ok() && !std::cout.good()) written = absl::UnavailableError("results are lost");
  if (written.ok()) return exit_code;
  const int lost = ReportError(written);
  return exit_code == kExitSuccess ? lost : exit_code;
}

}  // namespace baton
