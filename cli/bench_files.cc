#include "cli/bench_files.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/outcome.h"
#include "common/status_macros.h"
#include "loadtest/html_report.h"
#include "loadtest/load_report.h"

namespace baton {

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  if (path.empty()) return OutputFile(path, nullptr);
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return OutputFile(path, file);
}

void OutputFile::Write(std::string_view text) {
  if (file_ != nullptr) std::fwrite(text.data(), 1, text.size(), file_.get());
}

absl::Status OutputFile::Close() {
  if (file_ == nullptr) return absl::OkStatus();
  const absl::Status written = CheckWritten(file_.get());
  file_.reset();
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat(path_, ": ", std::string(written.message())));
}

absl::StatusOr<BenchFiles> BenchFiles::Create(const std::string& json, const std::string& html,
                                              const std::string& records) {
  ASSIGN_OR_RETURN(OutputFile json_file, OutputFile::Create(json));
  ASSIGN_OR_RETURN(OutputFile html_file, OutputFile::Create(html));
  ASSIGN_OR_RETURN(OutputFile records_file, OutputFile::Create(records));
  return BenchFiles{.json = std::move(json_file),
                    .html = std::move(html_file),
                    .records = std::move(records_file)};
}

absl::Status BenchFiles::Write(const LoadResult& result, const LoadSummary& summary) {
  if (json.exists()) json.Write(absl::StrCat(JsonText(ReportJson(result, summary)), "\n"));
  if (html.exists()) html.Write(HtmlReport(result, summary));
  for (const RequestRecord& record : result.records) {
    if (!records.exists()) break;
    records.Write(absl::StrCat(JsonText(RecordJson(record)), "\n"));
  }
  RETURN_IF_ERROR(json.Close());
  RETURN_IF_ERROR(html.Close());
  return records.Close();
}

}  // namespace baton
