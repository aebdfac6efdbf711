#include "loadtest/azure_trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr char kAzureHeader[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

std::string_view WithoutReturn(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

absl::Status AzureFault(int64_t number, std::string_view field, std::string_view value,
                        std::string_view limit) {
  return absl::InvalidArgumentError(
      StrCat("line ", number, ": ", field, " is \"", Printable(value, 80), "\"; must be ", limit));
}

absl::StatusOr<int64_t> AzureTokens(const std::string& text, std::string_view field,
                                    int64_t minimum, int64_t number) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= minimum && value <= kMaxTracedTokens) return value;
  return AzureFault(number, field, text,
                    StrCat("a whole number from ", minimum, " to ", kMaxTracedTokens));
}

}  // namespace

absl::Status CheckAzureHeader(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (WithoutReturn(line) == kAzureHeader) return absl::OkStatus();
  return AzureFault(1, "the header", line, StrCat("\"", kAzureHeader, "\""));
}

absl::StatusOr<TracedRequest> ParseAzureLine(std::string_view line, int64_t number) {
  line = WithoutReturn(line);
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ',');
  if (fields.size() != 3) {
    return absl::InvalidArgumentError(
        StrCat("line ", number, ": has ", fields.size(), " fields, must have 3: ", kAzureHeader));
  }
  absl::Time time;
  std::string error;
  const bool has_time =
      absl::ParseTime("%Y-%m-%d %H:%M:%E*S", fields[0], absl::UTCTimeZone(), &time, &error) ||
      absl::ParseTime("%Y-%m-%d %H:%M:%E*S%Ez", fields[0], absl::UTCTimeZone(), &time, &error) ||
      absl::ParseTime(absl::RFC3339_full, fields[0], absl::UTCTimeZone(), &time, &error);
  if (!has_time || time < absl::UnixEpoch() || time > absl::FromUnixSeconds(int64_t{1} << 40)) {
    return AzureFault(number, "TIMESTAMP", fields[0],
                      "a time from 1970 on, as 2023-11-16 18:17:03.9799600");
  }
  ASSIGN_OR_RETURN(const int64_t prompt, AzureTokens(fields[1], "ContextTokens", 1, number));
  ASSIGN_OR_RETURN(const int64_t output, AzureTokens(fields[2], "GeneratedTokens", 0, number));
  return TracedRequest{.at_us = absl::ToUnixMicros(time),
                       .prompt_tokens = static_cast<int32_t>(prompt),
                       .output_tokens = static_cast<int32_t>(std::max<int64_t>(1, output)),
                       .hash_ids = {}};
}

}  // namespace baton
