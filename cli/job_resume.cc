#include "cli/job_resume.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/jobs.h"
#include "common/choices.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "requests/json_text.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int kOutlineDepth = 2;  // response.status_code
constexpr int kHttpOk = 200;
constexpr uint32_t kAllChoices = ~uint32_t{0};
static_assert(kMaxChoices < 32);

// Returns different keys for the ids 5 and "5".
std::string KeyOf(const JobLabel& label) {
  return absl::StrCat(label.id_is_number ? "number " : "text ", label.id);
}

// Returns true if the result is an answer. A batch's answer has no error and a response with status
// 200.
bool IsAnswer(const Json& result) {
  if (FindField(result, "error") != nullptr) return false;
  if (!result.contains("custom_id")) return result.contains("finish_reason");
  const Json* const response = FindField(result, "response");
  if (response == nullptr || !response->is_object()) return false;
  const Json* const status = FindField(*response, "status_code");
  return status != nullptr && *status == kHttpOk;
}

}  // namespace

absl::Status AnsweredJobs::Add(std::string_view line, int64_t number) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonOutline(line, number, kOutlineDepth));
  const JsonPlace place(line, number);
  if (!json.is_object()) return place.Fault("a result must be a JSON object");
  const char* const name = json.contains("custom_id") ? "custom_id" : "id";
  const Json* const id = FindField(json, name);
  if (id == nullptr) return place.Fault("a result must have \"id\" or \"custom_id\"");
  JobLabel label;
  RETURN_IF_ERROR(ReadJobId(place.Member(name), *id, label));
  if (!IsAnswer(json)) return absl::OkStatus();
  uint32_t choice = kAllChoices;
  if (const Json* const index = FindField(json, "choice")) {
    if (!index->is_number_unsigned() || *index >= kMaxChoices) {
      return place.Member("choice").FaultOf(
          absl::StrCat("must be a whole number of 0 to ", kMaxChoices - 1));
    }
    choice = uint32_t{1} << index->get<uint32_t>();
  }
  choices_[KeyOf(label)] |= choice;
  return absl::OkStatus();
}

absl::StatusOr<AnsweredJobs> AnsweredJobs::Read(InputFile& results) {
  AnsweredJobs answered;
  std::string line;
  for (int64_t number = 1;; ++number) {
    const LineRead read = results.ReadLine(kMaxResultLineBytes, line);
    if (read == LineRead::kFailed) return results.status();
    if (read == LineRead::kEnd) return answered;
    if (!results.line_ended()) {
      answered.torn_ = true;
      return answered;
    }
    if (read == LineRead::kTooLong) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": it has more than ", kMaxResultLineBytes, " bytes"));
    }
    answered.whole_bytes_ = results.bytes_read();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    RETURN_IF_ERROR(answered.Add(line, number));
  }
}

bool AnsweredJobs::Has(const JobLabel& label, int32_t n) const {
  const auto found = choices_.find(KeyOf(label));
  const uint32_t wanted = (uint32_t{1} << n) - 1;
  return found != choices_.end() && (found->second & wanted) == wanted;
}

absl::Status PrepareToAppend(const AnsweredJobs& answered, const std::string& path, int output) {
  struct stat file = {};
  struct stat out = {};
  if (stat(path.c_str(), &file) != 0 || fstat(output, &out) != 0) return absl::OkStatus();
  if (file.st_dev != out.st_dev || file.st_ino != out.st_ino) return absl::OkStatus();
  if (!S_ISREG(out.st_mode)) return absl::OkStatus();
  if ((fcntl(output, F_GETFL) & O_APPEND) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("standard output overwrites ", path,
                                                   ", which --resume names: append to it (>>)"));
  }
  if (!answered.torn() || ftruncate(output, answered.whole_bytes()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot remove the incomplete last line of ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<int64_t> CountJobsToDo(InputFile& jobs, const Job& defaults,
                                      const AnsweredJobs* answered) {
  absl::flat_hash_map<std::string, int64_t> lines_by_id;
  std::string line;
  int64_t to_do = 0;
  for (int64_t number = 1;; ++number) {
    const LineRead read = jobs.ReadLine(kMaxJobLineBytes, line);
    if (read == LineRead::kFailed) return jobs.status();
    if (read == LineRead::kEnd) break;
    const bool too_long = read == LineRead::kTooLong;
    if (!too_long && line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++to_do;
    if (answered == nullptr || too_long) continue;
    const absl::StatusOr<Job> job = ParseJob(line, number, defaults);
    const JobLabel label = job.ok() ? JobLabel(*job) : LabelOfLine(line, number);
    const auto [first, is_new] = lines_by_id.emplace(KeyOf(label), number);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("lines ", first->second, " and ", number,
                                                     " both have the id ", Printable(label.id),
                                                     "; with --resume, ids must differ"));
    }
    if (job.ok() && answered->Has(label, job->n)) --to_do;
  }
  jobs.Rewind();
  return to_do;
}

}  // namespace baton
