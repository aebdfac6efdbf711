// Files of a load test: its reports and its records. They are opened before the test runs, so that
// a wrong path does not cost a run.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadtest/load_summary.h"

namespace baton {

// One file that is written as a whole.
class OutputFile {
 public:
  // An empty path is no file: everything succeeds and nothing is written. InvalidArgument names the
  // path and the reason.
  static absl::StatusOr<OutputFile> Create(const std::string& path);

  bool exists() const { return file_ != nullptr; }
  void Write(std::string_view text);
  // Closes the file. Unavailable if any text was not written, for example because a disk is full.
  absl::Status Close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  OutputFile(const std::string& path, std::FILE* file) : path_(path), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

struct BenchFiles {
  OutputFile json;
  OutputFile html;
  OutputFile records;

  static absl::StatusOr<BenchFiles> Create(const std::string& json, const std::string& html,
                                           const std::string& records);
  absl::Status Write(const LoadResult& result, const LoadSummary& summary);
};

}  // namespace baton
