// Finds the jobs that a file of results answers, which `--resume FILE` leaves out.
//
// A file of results has Baton's lines or those of batches. A job does not count as answered if it
// failed or if some of its choices are missing. A last line without a newline is torn, because its
// program ended in the middle; it does not count.
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
  // Returns InvalidArgument, with line and column, for a line that is not a result.
  static absl::StatusOr<AnsweredJobs> Read(InputFile& results);

  // Returns true if all `n` choices of the job are answered.
  bool Has(const JobLabel& label, int32_t n) const;

  // Number of bytes of the file's complete lines, and true if a torn line follows.
  int64_t whole_bytes() const { return whole_bytes_; }
  bool torn() const { return torn_; }

 private:
  absl::Status Add(std::string_view line, int64_t number);

  // Maps the key of an id to a bit for each choice. All bits: the job had one choice or is a
  // batch's.
  absl::flat_hash_map<std::string, uint32_t> choices_;
  int64_t whole_bytes_ = 0;
  bool torn_ = false;
};

// If `output` is the file `path`, prepares it for more results: cuts off the torn line.
// InvalidArgument: it is that file, but is not open for appending.
absl::Status PrepareToAppend(const AnsweredJobs& answered, const std::string& path, int output);

// Returns the number of jobs to do: lines that are not blank, without those that `answered` has.
// Rewinds `jobs` at the end. With `answered`, returns InvalidArgument if two lines have the same
// id. `answered` may be null. REQUIRES: jobs.CanRewind().
absl::StatusOr<int64_t> CountJobsToDo(InputFile& jobs, const Job& defaults,
                                      const AnsweredJobs* answered);

}  // namespace baton
