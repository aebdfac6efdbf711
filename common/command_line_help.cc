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

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> WithEmptyValues(std::span<const char* const> arguments) {
  std::vector<std::string> out(arguments.begin(), arguments.end());
  for (size_t i = 1; i < out.size() && out[i] != "--"; ++i) {
    if (!out[i].starts_with("--") || out[i].find('=') != out[i].size() - 1) continue;
    out[i].pop_back();
    out.insert(out.begin() + static_cast<ptrdiff_t>(++i), "");
  }
  return out;
}

std::string OptionAsValue(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  const auto find = [&at](const std::string& argument) -> const CLI::Option* {
    const CLI::Option* found = nullptr;
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || name.size() == 2) return nullptr;
    for (const CLI::App* one = at; one != nullptr && found == nullptr; one = one->get_parent()) {
      found = one->get_option_no_throw(name);
    }
    return found;
  };
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::vector<const CLI::App*> named = at->get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == arguments[i]; });
    if (!named.empty()) {
      at = named.front();
      continue;
    }
    const CLI::Option* const option = find(arguments[i]);
    const bool needs_value = option != nullptr && !IsFlag(*option) &&
                             option->get_expected_min() > 0 &&
                             arguments[i].find('=') == std::string::npos;
    if (!needs_value || i + 1 == arguments.size()) continue;
    const std::string& next = arguments[++i];
    if (find(next) == nullptr) continue;
    return absl::StrCat(arguments[i - 1], ": needs a value; write ", arguments[i - 1], "=", next,
                        " if that is the value", HelpHint(*at));
  }
  return "";
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
