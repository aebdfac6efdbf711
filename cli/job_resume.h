// What `--resume FILE` leaves out: the jobs that a file of results has answered.
//
// A file of results has Baton's lines or those of batches. A job counts as answered when all its
// choices are there. A failed job does not count. A last line without a newline does not count
// either: it was torn when its program ended.
//
// Thread safety: AnsweredJobs is immutable after Read. The functions belong to one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/input_file.h"
#include "cli/jobs.h"

namespace baton {

inline constexpr size_t kMaxResultLineBytes = size_t{256} << 20;

class AnsweredJobs {
 public:
  // InvalidArgument, with line and column: a line that is not a result.
  static absl::StatusOr<AnsweredJobs> Read(InputFile& results);

  // `n`: the choices that the job asks for.
  bool Has(const JobLabel& label, int32_t n) const;

  // Bytes of the file's whole lines, and whether a torn one follows.
  int64_t whole_bytes() const { return whole_bytes_; }
  bool torn() const { return torn_; }

 private:
  absl::Status Add(std::string_view line, int64_t number);

  // Key of an id → a bit for each choice; all bits: the job asked for one alone, or is a batch's.
  absl::flat_hash_map<std::string, uint32_t> choices_;
  int64_t whole_bytes_ = 0;
  bool torn_ = false;
};

// Makes `output` fit to take more results behind those of the file `path`, where it is that file:
// cuts off the torn line. InvalidArgument: it is that file, but is not open for appending.
absl::Status PrepareToAppend(const AnsweredJobs& answered, const std::string& path, int output);

// The jobs that are to be done: lines that are not blank, without those that `answered` has.
// Rewinds `jobs` in the end. With `answered`, InvalidArgument for an id that two lines have.
// `answered` may be null. REQUIRES: jobs.CanRewind().
absl::StatusOr<int64_t> CountJobsToDo(InputFile& jobs, const Job& defaults,
                                      const AnsweredJobs* answered);

}  // namespace baton
