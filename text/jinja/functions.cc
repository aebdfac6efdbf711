#include "text/jinja/functions.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/format.h"

namespace baton {
namespace {

using Result = absl::StatusOr<JinjaValue>;

constexpr std::array<std::string_view, 5> kFunctions = {"range", "namespace", "raise_exception",
                                                        "strftime_now", "dict"};
constexpr std::array<std::string_view, 3> kOtherFunctions = {"lipsum", "cycler", "joiner"};

Result Range(const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"start", "stop", "step"};
  if (!arguments.named.empty()) return JinjaError("range takes no named arguments");
  ASSIGN_OR_RETURN(const auto bound, BindJinjaArguments("range", arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(int64_t start, JinjaIntArgument("range", bound[0], 0));
  ASSIGN_OR_RETURN(int64_t stop, JinjaIntArgument("range", bound[1], 0));
  ASSIGN_OR_RETURN(const int64_t step, JinjaIntArgument("range", bound[2], 1));
  if (!bound[1].has_value()) std::swap(start, stop);
  if (step == 0) return JinjaError("range's step is 0");
  bool trusted = true;
  for (const auto& argument : bound) {
    trusted = trusted && (!argument.has_value() || argument->trusted_number());
  }
  std::vector<JinjaValue> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == meter.limits().max_sequence_items) {
      return JinjaLimitReached("range exceeds the limit of ", items.size(), " items");
    }
    items.push_back(JinjaValue::Int(i, trusted));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return NewSequence(JinjaSequence::Kind::kRange, std::move(items), meter);
}

Result Dict(const JinjaArguments& arguments, JinjaMeter& meter) {
  if (!arguments.positional.empty()) {
    return JinjaUnsupported("dict of a value is not supported");
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (const auto& [name, value] : arguments.named) {
    ASSIGN_OR_RETURN(JinjaValue key, NewString(JinjaString(name, true), meter));
    entries.emplace_back(std::move(key), value);
  }
  return NewDict(std::move(entries), meter);
}

Result RaiseException(const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"message"};
  ASSIGN_OR_RETURN(const auto bound,
                   BindJinjaArguments("raise_exception", arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(const JinjaString message, JinjaToString(*bound[0], meter));
  return JinjaError("the template refuses the conversation: ", message.bytes());
}

Result FormatNow(const JinjaArguments& arguments, const std::optional<std::tm>& now,
                 JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"format"};
  static constexpr std::string_view kConversions = "aAbBdHIjmMpSyY%";
  static constexpr size_t kMaxFormatBytes = 256;
  ASSIGN_OR_RETURN(const auto bound,
                   BindJinjaArguments("strftime_now", arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(const JinjaString format, JinjaStringArgument("strftime_now", bound[0], meter));
  if (!now.has_value()) return JinjaError("strftime_now was called but no time was provided");
  if (format.size() > kMaxFormatBytes) {
    return JinjaLimitReached("strftime_now's format has ", format.size(), " bytes; the limit is ",
                             kMaxFormatBytes);
  }
  const std::string& bytes = format.bytes();
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%') {
      text += bytes[i];
      continue;
    }
    ++i;
    if (i == bytes.size() || kConversions.find(bytes[i]) == std::string_view::npos) {
      return JinjaUnsupported("strftime_now's conversion '%", bytes.substr(i, 1),
                              "' is not supported");
    }
    const char conversion[] = {'%', bytes[i], '\0'};
    char buffer[64];
    text.append(buffer, std::strftime(buffer, sizeof(buffer), conversion, &*now));
  }
  return NewString(JinjaString(text, format.AllTrusted()), meter);
}

}  // namespace

JinjaFunctionSupport FindJinjaFunction(std::string_view name) {
  if (std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end()) {
    return JinjaFunctionSupport::kSupported;
  }
  return std::find(kOtherFunctions.begin(), kOtherFunctions.end(), name) != kOtherFunctions.end()
             ? JinjaFunctionSupport::kUnsupported
             : JinjaFunctionSupport::kNone;
}

absl::StatusOr<JinjaValue> CallJinjaFunction(std::string_view name, const JinjaArguments& arguments,
                                             const std::optional<std::tm>& now, JinjaMeter& meter) {
  if (name == "range") return Range(arguments, meter);
  if (name == "dict") return Dict(arguments, meter);
  if (name == "raise_exception") return RaiseException(arguments, meter);
  return FormatNow(arguments, now, meter);
}

}  // namespace baton
