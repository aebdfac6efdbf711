#include "common/command_line_help.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/wrapped_text.h"

namespace baton {
namespace {

// Returns a sentence such as " Not with --chat, --jobs.", or "" without options.
std::string Together(const char* begin, const std::set<CLI::Option*>& options) {
  std::set<std::string> names;
  for (const CLI::Option* option : options) names.insert(option->get_name());
  return names.empty() ? "" : absl::StrCat(begin, " with ", absl::StrJoin(names, ", "), ".");
}

}  // namespace

bool IsFlag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

void AddSentence(CLI::Option& option, const std::string& sentence) {
  const std::string help = option.get_description();
  option.description(absl::StrCat(help, help.empty() || help.ends_with('.') ? "" : ".",
                                  help.empty() ? "" : " ", sentence));
}

std::string FullHelp(const CLI::Option& option) {
  std::string out = option.get_description();
  if (!out.empty() && !out.ends_with('.')) out += '.';
  const bool has_default = !IsFlag(option) && option.get_expected_min() > 0;
  if (has_default && !option.get_default_str().empty()) {
    absl::StrAppend(&out, " Default: ", option.get_default_str(), ".");
  }
  if (option.get_required()) absl::StrAppend(&out, " Required.");
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) {
    absl::StrAppend(&out, " Repeatable.");
  }
  absl::StrAppend(&out, Together(" Only", option.get_needs()));
  return absl::StrCat(out, Together(" Not", option.get_excludes()));
}

std::string HelpHint(const CLI::App& app) {
  std::string path;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    path = absl::StrCat(at->get_name(), " ", path);
  }
  return absl::StrCat(" (see ", path, "--help)");
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  constexpr size_t kColumn = 30;
  constexpr size_t kWidth = 100;
  // CLI11 writes "--cache,--no-cache{false}".
  const std::string names = option->get_name(is_positional, /*all_options=*/!is_positional);
  std::string out = absl::StrCat("  ", absl::StrReplaceAll(names, {{"{false}", ""}}));
  if (!is_positional && !IsFlag(*option)) {
    const bool optional = option->get_expected_min() == 0;
    absl::StrAppend(&out, optional ? "[=" : " ", option->get_type_name(), optional ? "]" : "");
  }
  out += out.size() < kColumn ? std::string(kColumn - out.size(), ' ')
                              : absl::StrCat("\n", std::string(kColumn, ' '));
  return absl::StrCat(out, WrappedText(FullHelp(*option), kWidth - kColumn, kColumn), "\n");
}

}  // namespace baton
