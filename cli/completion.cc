#include "cli/completion.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace baton {
namespace {

constexpr size_t kMostHelpBytes = 72;

void ForEachCommand(const CommandDescription& command,
                    const std::function<void(const CommandDescription&)>& visit) {
  visit(command);
  for (const CommandDescription& below : command.commands) ForEachCommand(below, visit);
}

std::string PathOf(const CommandDescription& command) { return absl::StrJoin(command.path, " "); }

// "'baton run' 'baton inspect'": every command below the program, with `separator` between them.
std::string PathsBelow(const CommandDescription& program, const std::string& separator) {
  std::vector<std::string> paths;
  ForEachCommand(program, [&](const CommandDescription& command) {
    if (command.path.size() > 1) paths.push_back(absl::StrCat("'", PathOf(command), "'"));
  });
  return absl::StrJoin(paths, separator);
}

// The options of `command`, and those of the program that stand behind any command.
std::vector<OptionDescription> OptionsAt(const CommandDescription& program,
                                         const CommandDescription& command) {
  std::vector<OptionDescription> out;
  const auto add = [&out](const OptionDescription& option) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const OptionDescription& other) {
      return other.names == option.names;
    });
    if (!option.names.empty() && !known) out.push_back(option);
  };
  for (const OptionDescription& option : command.options) add(option);
  for (const OptionDescription& option : program.options) add(option);
  return out;
}

// The first part of the help, in one line.
std::string ShortHelp(std::string_view help) {
  help = help.substr(0, help.find('\n'));
  for (const std::string_view end : {". ", "; "}) help = help.substr(0, help.find(end));
  if (help.size() > kMostHelpBytes) {
    help = help.substr(0, help.rfind(' ', kMostHelpBytes));
  }
  while (help.ends_with('.') || help.ends_with(',')) help.remove_suffix(1);
  return std::string(help);
}

// Inside single quotes of bash and zsh.
std::string ShellQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// ---- bash ---------------------------------------------------------------------------------------

void AppendBashCommand(const CommandDescription& program, const CommandDescription& command,
                       std::string& out) {
  std::vector<std::string> names;
  std::vector<std::string> with_files;
  std::string choices;
  for (const OptionDescription& option : OptionsAt(program, command)) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    const std::string pattern = absl::StrJoin(option.names, "|");
    if (!option.choices.empty()) {
      absl::StrAppend(&choices, "        ", pattern,
                      ") values=", ShellQuoted(absl::StrJoin(option.choices, " ")), " ;;\n");
    } else if (!option.value.empty() && !option.value_is_optional) {
      with_files.push_back(pattern);
    }
  }
  std::vector<std::string> commands;
  for (const CommandDescription& below : command.commands) commands.push_back(below.path.back());
  absl::StrAppend(&out, "    '", PathOf(command), "')\n      options='", absl::StrJoin(names, " "),
                  "'\n      commands='", absl::StrJoin(commands, " "),
                  "'\n      case $previous in\n", choices);
  if (!with_files.empty()) {
    absl::StrAppend(&out, "        ", absl::StrJoin(with_files, "|"), ") files=1 ;;\n");
  }
  absl::StrAppend(&out, "      esac ;;\n");
}

constexpr char kBashBegin[] = R"(# Completion of baton for bash, made by `baton completion bash`.
_baton() {
  local current=${COMP_WORDS[COMP_CWORD]} previous='' at=baton word i
  ((COMP_CWORD > 0)) && previous=${COMP_WORDS[COMP_CWORD-1]}
  # bash gives "--option=value" as three words.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]] && ((COMP_CWORD > 1)); then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    case "$at $word" in
)";

constexpr char kBashEnd[] = R"(  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ -n $files ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
  elif [[ $current == -* || -z $commands ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  fi
}
complete -o filenames -o bashdefault -F _baton baton
)";

// ---- zsh ----------------------------------------------------------------------------------------

// A specification for _arguments. Brackets and colons have a meaning there.
std::string ZshSpecification(const OptionDescription& option, const std::string& name) {
  const std::string help = absl::StrReplaceAll(
      ShortHelp(option.help), {{"[", "("}, {"]", ")"}, {":", ","}, {"\\", "/"}, {"`", ""}});
  const std::string repeat = option.repeatable ? "*" : "";
  if (option.value.empty()) return absl::StrCat(repeat, name, "[", help, "]");
  const std::string values = option.choices.empty()
                                 ? std::string("_files")
                                 : absl::StrCat("(", absl::StrJoin(option.choices, " "), ")");
  return absl::StrCat(repeat, name, option.value_is_optional ? "=-" : "=", "[", help,
                      option.value_is_optional ? "]:: :" : "]: :", values);
}

void AppendZshCommand(const CommandDescription& program, const CommandDescription& command,
                      std::string& out) {
  absl::StrAppend(&out, "    ('", PathOf(command), "')\n");
  if (!command.commands.empty()) {
    absl::StrAppend(&out, "      commands=(\n");
    for (const CommandDescription& below : command.commands) {
      absl::StrAppend(
          &out, "        ",
          ShellQuoted(absl::StrCat(below.path.back(), ":", ShortHelp(below.description))), "\n");
    }
    absl::StrAppend(&out, "      )\n");
  }
  absl::StrAppend(&out, "      options=(\n");
  for (const OptionDescription& option : OptionsAt(program, command)) {
    for (const std::string& name : option.names) {
      absl::StrAppend(&out, "        ", ShellQuoted(ZshSpecification(option, name)), "\n");
    }
  }
  absl::StrAppend(&out, "      ) ;;\n");
}

constexpr char kZshBegin[] = R"(#compdef baton
# Completion of baton for zsh, made by `baton completion zsh`.
_baton() {
  local at=baton word
  local -a commands options
  for word in ${words[2,CURRENT-1]}; do
    case "$at $word" in
)";

constexpr char kZshEnd[] = R"(  esac
  if (( $#commands )) && [[ ${words[CURRENT]} != -* ]]; then
    _describe 'command' commands
  else
    _arguments $options '*: :_files'
  fi
}
if [[ $funcstack[1] == _baton ]]; then
  _baton "$@"
else
  compdef _baton baton
fi
)";

// ---- fish ---------------------------------------------------------------------------------------

// Inside single quotes of fish.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

void AppendFishCommand(const CommandDescription& program, const CommandDescription& command,
                       std::string& out) {
  const std::string begin =
      absl::StrCat("complete -c baton -n '__baton_at \"", PathOf(command), "\"'");
  for (const CommandDescription& below : command.commands) {
    absl::StrAppend(&out, begin, " -f -a ", below.path.back(), " -d ",
                    FishQuoted(ShortHelp(below.description)), "\n");
  }
  for (const OptionDescription& option : OptionsAt(program, command)) {
    for (const std::string& name : option.names) {
      const bool is_short = !name.starts_with("--");
      absl::StrAppend(&out, begin, is_short ? " -s " : " -l ", name.substr(is_short ? 1 : 2));
      if (!option.choices.empty()) {
        absl::StrAppend(&out, " -x -a ", FishQuoted(absl::StrJoin(option.choices, " ")));
      } else if (!option.value.empty() && !option.value_is_optional) {
        absl::StrAppend(&out, " -r");
      }
      absl::StrAppend(&out, " -d ", FishQuoted(ShortHelp(option.help)), "\n");
    }
  }
}

constexpr char kFishBegin[] = R"(# Completion of baton for fish, made by `baton completion fish`.
function __baton_at
    set -l at baton
    for word in (commandline -opc)[2..-1]
        switch "$at $word"
            case )";

constexpr char kFishEnd[] = R"(
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
)";

}  // namespace

std::string BashCompletion(const CommandDescription& program) {
  std::string out = kBashBegin;
  absl::StrAppend(&out, "      ", PathsBelow(program, "|"),
                  ") at=\"$at $word\" ;;\n    esac\n  done\n"
                  "  local options='' commands='' values='' files=''\n  case $at in\n");
  ForEachCommand(program, [&](const CommandDescription& command) {
    AppendBashCommand(program, command, out);
  });
  return out + kBashEnd;
}

std::string ZshCompletion(const CommandDescription& program) {
  std::string out = kZshBegin;
  absl::StrAppend(&out, "      (", PathsBelow(program, "|"),
                  ") at=\"$at $word\" ;;\n    esac\n  done\n  case $at in\n");
  ForEachCommand(
      program, [&](const CommandDescription& command) { AppendZshCommand(program, command, out); });
  return out + kZshEnd;
}

std::string FishCompletion(const CommandDescription& program) {
  std::string out = absl::StrCat(kFishBegin, PathsBelow(program, " "), kFishEnd);
  ForEachCommand(program, [&](const CommandDescription& command) {
    AppendFishCommand(program, command, out);
  });
  return out;
}

}  // namespace baton
