#include "common/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "common/command_line_help.h"
#include "common/command_line_message.h"
#include "common/config_file_message.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/nearest_name.h"
#include "common/wrapped_text.h"

namespace baton {
namespace {

// Throws CLI11's error if `status` is an error. `prefix` comes before the status's message.
void ThrowUnlessOk(const absl::Status& status, const std::string& prefix = "") {
  if (!status.ok()) throw CLI::ValidationError(absl::StrCat(prefix, status.message()));
}

// Parses a uint64_t. CLI11 would accept -1 and store 2^64-1.
uint64_t ParseUnsigned(const std::string& option_name, const std::string& text) {
  uint64_t value = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &value)) {
    throw CLI::ValidationError(option_name, absl::StrCat("is ", text, "; must be 0 to 2^64-1"));
  }
  return value;
}

// `field` is a uint64_t or an optional one.
template <typename Field>
CLI::Option* AddUnsigned(CLI::App& app, const std::string& name, Field* field,
                         const std::string& help) {
  const auto set = [field, name](const std::string& text) { *field = ParseUnsigned(name, text); };
  return app.add_option_function<std::string>(name, set, help)->type_name("UINT");
}

// Parses as CLI11 does for the field. Text that is not a number, and NaN, are outside every range.
template <typename Number>
CLI::Validator InRange(Number minimum, Number maximum) {
  const auto check = [minimum, maximum](std::string& text) -> std::string {
    Number value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= minimum && value <= maximum) return "";
    return absl::StrCat("is ", text.empty() ? "empty" : text, "; must be ", minimum, " to ",
                        maximum);
  };
  return {check, "", "range"};  // the option's help has the range
}

// "--kv-blocks" becomes "BATON_KV_BLOCKS".
std::string VariableName(const CLI::Option& option) {
  return absl::StrCat(
      "BATON_", absl::StrReplaceAll(absl::AsciiStrToUpper(option.get_single_name()), {{"-", "_"}}));
}

}  // namespace

std::string ProgramVersion() { return "baton " BATON_VERSION; }

CommandLine::Option& CommandLine::Option::Group(const std::string& name) {
  option_->group(name);
  return *this;
}

CommandLine::Option& CommandLine::Option::Value(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandLine::Option& CommandLine::Option::Required() {
  option_->required();
  return *this;
}

CommandLine::Option& CommandLine::Option::Needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

CommandLine::Option& CommandLine::Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

CommandLine::Option& CommandLine::Option::Range(int64_t minimum, int64_t maximum) {
  option_->check(InRange(minimum, maximum));
  AddSentence(*option_, absl::StrCat("Range: ", minimum, " to ", maximum, "."));
  return *this;
}

CommandLine::Option& CommandLine::Option::Range(double minimum, double maximum) {
  option_->check(InRange(minimum, maximum));
  AddSentence(*option_, absl::StrCat("Range: ", minimum, " to ", maximum, "."));
  return *this;
}

CommandLine::Option& CommandLine::Option::OneOf(const std::vector<std::string>& values) {
  option_->check([values](const std::string& text) {
    const bool known = std::ranges::find(values, text) != values.end();
    return known ? "" : UnknownChoice(text, values);
  });
  AddSentence(*option_, absl::StrCat("One of: ", absl::StrJoin(values, ", "), "."));
  owner_->choices_[option_] = values;
  return Value("NAME");
}

CommandLine::Option& CommandLine::Option::IsHostPort() {
  option_->check(
      [](const std::string& text) { return std::string(CheckHostPort(text).message()); });
  return Value("HOST:PORT");
}

CommandLine::Option& CommandLine::Option::IsListenAddress() {
  option_->check(
      [](const std::string& text) { return std::string(ParseHostPort(text).status().message()); });
  return Value("HOST:PORT");
}

CommandLine::Option& CommandLine::Option::FromEnvironment() {
  owner_->from_environment_.push_back(option_);
  return *this;
}

CommandLine::Option& CommandLine::Option::ShowDefault() {
  option_->capture_default_str();
  // CLI11 writes a list in brackets, which the command line does not accept.
  const std::string text = option_->get_default_str();
  if (text.starts_with('[') && text.ends_with(']')) {
    option_->default_str(text.substr(1, text.size() - 2));
  }
  return *this;
}

CommandLine::Option& CommandLine::Option::OptionalValue(const std::string& value) {
  option_->expected(0, 1)->default_str(value);
  return *this;
}

CommandLine::Option& CommandLine::Option::TakesOne() {
  option_->allow_extra_args(false);
  return *this;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {
  // Commands inherit these.
  app_->footer(absl::StrCat(WrappedText(kSourcesHelp, 100, 0), "\n\n", kExitCodeHelp));
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_version_flag("--version", ProgramVersion(), "Print the version and end");
  app_->set_config("--config", "", "TOML file with options")->type_name("FILE");
  app_->set_help_flag("-h,--help", "Print this help and end");
  app_->allow_config_extras(CLI::config_extras_mode::error);
}

CommandLine& CommandLine::AddCommand(const std::string& name, const std::string& description) {
  // Commands that are added later inherit this flag.
  if (app_->get_help_all_ptr() == nullptr) {
    app_->set_help_all_flag("--help-all", "Print the help of all commands and end");
  }
  app_->require_subcommand(run_ == nullptr ? 1 : 0, 1);
  const std::shared_ptr<CLI::App> command(app_, app_->add_subcommand(name, description));
  command->fallthrough();  // --config and --version may follow the command's name
  commands_.push_back(std::unique_ptr<CommandLine>(new CommandLine(command)));
  return *commands_.back();
}

template <typename T>
CommandLine::Option CommandLine::Add(const std::string& name, T* field, const std::string& help) {
  return {app_->add_option(name, *field, help), this};
}
template <>
CommandLine::Option CommandLine::Add(const std::string& name, uint64_t* field,
                                     const std::string& help) {
  CLI::Option* option = AddUnsigned(*app_, name, field, help);
  option->default_function([field] { return absl::StrCat(*field); });
  return {option, this};
}
template CommandLine::Option CommandLine::Add(const std::string&, std::string*, const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, int32_t*, const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, int64_t*, const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, float*, const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, double*, const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, std::vector<std::string>*,
                                              const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, std::vector<int32_t>*,
                                              const std::string&);

template <typename T>
CommandLine::Option CommandLine::Add(const std::string& name, std::optional<T>* field,
                                     const std::string& help) {
  return {app_->add_option_function<T>(
              name, [field](const T& value) { *field = value; }, help),
          this};
}
template <>
CommandLine::Option CommandLine::Add(const std::string& name, std::optional<uint64_t>* field,
                                     const std::string& help) {
  return {AddUnsigned(*app_, name, field, help), this};
}
template CommandLine::Option CommandLine::Add(const std::string&, std::optional<std::string>*,
                                              const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, std::optional<int32_t>*,
                                              const std::string&);

CommandLine::Option CommandLine::AddFlag(const std::string& name, bool* field,
                                         const std::string& help) {
  return {app_->add_flag(name, *field, help), this};
}

CommandLine::Option CommandLine::AddParsed(const std::string& name, Parser parse,
                                           const std::string& help) {
  const auto set = [name, parse = std::move(parse)](const std::string& text) {
    ThrowUnlessOk(parse(text), name + ": ");
  };
  return {app_->add_option_function<std::string>(name, set, help), this};
}

CommandLine::Option CommandLine::AddParsedList(const std::string& name, Parser parse,
                                               const std::string& help) {
  const auto set = [name, parse = std::move(parse)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) ThrowUnlessOk(parse(text), name + ": ");
  };
  return {app_->add_option_function<std::vector<std::string>>(name, set, help), this};
}

void CommandLine::AddSettings(const SettingList& settings, const std::string& group) {
  for (const Setting& setting : settings.settings()) {
    const std::string help = SettingHelp(setting);
    const std::string name = "--" + setting.name;
    // The status's message names the setting.
    const auto set = [apply = setting.set](const std::string& text) { ThrowUnlessOk(apply(text)); };
    CLI::Option* option = nullptr;
    if (setting.is_flag) {
      option = app_->add_flag_function(
          name + ",!--no-" + setting.name,
          [set](int64_t count) { set(count > 0 ? "true" : "false"); }, help);
    } else {
      option = app_->add_option_function<std::string>(name, set, help)->type_name(setting.type);
    }
    option->group(group);
    if (!setting.choices.empty()) choices_[option] = setting.choices;
    from_environment_.push_back(option);
  }
  ShowWithSettings([&settings] { return settings.AllValues(); });
}

void CommandLine::ShowWithSettings(std::function<std::string()> text) {
  shown_settings_.push_back(std::move(text));
  if (shown_settings_.size() > 1) return;
  AddPrintFlag("--show-settings", "Check the command line, print every setting's value and end",
               [this] {
                 return absl::StrJoin(shown_settings_, "",
                                      [](std::string* out, const auto& shown) { *out += shown(); });
               });
}

void CommandLine::AddPrintFlag(const std::string& name, const std::string& help,
                               std::function<std::string()> text) {
  print_flags_.emplace_back(app_->add_flag(name, help), std::move(text));
}

void CommandLine::AddHelpText(const std::string& text) {
  epilogue_ = epilogue_.empty() ? text : absl::StrCat(text, "\n\n", epilogue_);
  app_->footer(absl::StrCat(text, "\n\n", app_->get_footer()));
}

bool CommandLine::IsGiven(const std::string& name) const {
  return app_->get_option_no_throw(name) != nullptr && app_->get_option(name)->count() > 0;
}

OptionDescription CommandLine::DescribeOption(const CLI::Option& option) const {
  OptionDescription out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (option.get_positional()) out.positional = option.get_name(/*positional=*/true);
  if (!IsFlag(option)) {
    out.value = option.get_type_name();
    out.value_is_optional = option.get_expected_min() == 0;
    out.repeatable = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  }
  if (const auto at = choices_.find(&option); at != choices_.end()) out.choices = at->second;
  out.help = FullHelp(option);
  out.group = option.get_group();
  return out;
}

CommandDescription CommandLine::Describe() const {
  CommandDescription out;
  for (const CLI::App* at = app_.get(); at != nullptr; at = at->get_parent()) {
    out.path.insert(out.path.begin(), at->get_name());
  }
  out.description = app_->get_description();
  out.epilogue = epilogue_;
  for (const CLI::Option* option : app_->get_options()) {
    if (!option->get_group().empty()) out.options.push_back(DescribeOption(*option));
  }
  for (const auto& command : commands_) out.commands.push_back(command->Describe());
  return out;
}

std::optional<int> CommandLine::Parse(int argc, const char* const* argv) {
  ForgetEnvironment();
  BindEnvironment(std::span(argv, argc).subspan(1));
  const std::vector<std::string> arguments = WithEmptyValues(std::span(argv, argc));
  std::vector<const char*> split;
  for (const std::string& argument : arguments) split.push_back(argument.c_str());
  if (app_->get_name().empty() && argc > 0) app_->name(argv[0]);  // as the parse below would
  if (const std::string missing = OptionAsValue(*app_, arguments); !missing.empty()) {
    std::cerr << missing << std::endl;
    return kExitUsage;
  }
  try {
    app_->parse(static_cast<int>(split.size()), split.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      const CLI::Option& config = *app_->get_config_ptr();
      const std::string file = config.count() > 0 ? config.as<std::string>() : "";
      std::cerr << ErrorMessage(error) << Named().SourceOfError(error.what(), arguments, file)
                << HelpHint(*Named().app_) << std::endl;
      return kExitUsage;
    }
    app_->exit(error);                                      // prints the help or the version
    return std::cout.flush() ? kExitSuccess : kExitFailed;  // the output may not have been written
  }
  WarnOfVariables();
  for (const auto& [option, text] : Named().print_flags_) {
    if (option->count() > 0) return (std::cout << text()).flush() ? kExitSuccess : kExitFailed;
  }
  return std::nullopt;
}

void CommandLine::ForgetEnvironment() {
  for (CLI::Option* option : from_environment_) option->envname("");
  for (const auto& command : commands_) command->ForgetEnvironment();
}

void CommandLine::BindEnvironment(std::span<const char* const> arguments) {
  for (CLI::Option* option : from_environment_) option->envname(VariableName(*option));
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const auto& command : commands_) {
      if (command->app_->get_name() != arguments[i]) continue;
      return command->BindEnvironment(arguments.subspan(i + 1));
    }
  }
}

std::string CommandLine::SourceOfError(const std::string& message,
                                       std::span<const std::string> arguments,
                                       const std::string& file) const {
  for (const CLI::Option* option : from_environment_) {
    const std::string variable = VariableName(*option);
    const char* const value = std::getenv(variable.c_str());
    const bool from_variable =
        value != nullptr && option->results() == std::vector<std::string>{value};
    if (from_variable && message.starts_with(absl::StrCat("--", option->get_single_name(), ":"))) {
      return absl::StrCat(" (from the environment variable ", variable, ")");
    }
  }
  const std::string name = message.substr(0, message.find(':'));
  const bool is_option = name.starts_with("--") && name.find(' ') == std::string::npos;
  const bool on_line = std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument.substr(0, argument.find('=')) == name;
  });
  return !is_option || on_line || file.empty() ? "" : absl::StrCat(" (from the file ", file, ")");
}

void CommandLine::AddVariables(std::vector<std::string>& names) const {
  for (const CLI::Option* option : from_environment_) names.push_back(VariableName(*option));
  for (const auto& command : commands_) command->AddVariables(names);
}

void CommandLine::WarnOfVariables() const {
  if (Named().passes_variables_on_) return;
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    names.push_back(std::string(*entry).substr(0, std::string(*entry).find('=')));
  }
  std::vector<std::string> known, read, of_options;
  AddVariables(known);
  for (const CLI::Option* option : Named().from_environment_) read.push_back(VariableName(*option));
  for (const CLI::Option* option : Named().app_->get_options()) {
    if (!option->get_lnames().empty()) of_options.push_back(VariableName(*option));
  }
  for (const std::string& warning :
       WarningsOfVariables({.names = names, .known = known, .read = read, .options = of_options})) {
    std::cerr << warning << std::endl;
  }
}

std::string CommandLine::ErrorMessage(const CLI::Error& error) const {
  // Reports an unknown name first, because it can be why another argument is missing.
  const std::vector<std::string> unknown = app_->remaining(/*recurse=*/true);
  const CommandLine& named = Named();
  if (!unknown.empty()) return named.UnknownArgument(unknown.front());
  if (!named.commands_.empty() && error.get_name() == "RequiredError") {
    return absl::StrCat("name a command: ", absl::StrJoin(CommandNames(*named.app_), ", "));
  }
  if (error.get_name() != "ConfigError" && error.get_name() != "FileError") {
    return PlainMessage(error.what());
  }
  return ConfigFileMessage(app_->get_config_ptr()->as<std::string>(), error.what(),
                           [this](const std::string& command) { return NamesOf(command); });
}

FileNames CommandLine::NamesOf(const std::string& command) const {
  FileNames names = {.options = OptionNames(*app_), .commands = CommandNames(*app_)};
  for (const auto& one : commands_) {
    if (one->app_->get_name() == command) return one->NamesOf("");
  }
  return names;
}

std::string CommandLine::UnknownArgument(const std::string& argument) const {
  const bool is_option = argument.starts_with("-");
  const std::string name = argument.substr(0, argument.find('='));
  if (!is_option && commands_.empty()) {
    return absl::StrCat("the argument \"", argument, "\" was not expected");
  }
  return is_option ? UnknownName("option", name, OptionNames(*app_))
                   : UnknownName("command", name, CommandNames(*app_));
}

int CommandLine::Run(int argc, const char* const* argv) {
  if (const std::optional<int> ended = Parse(argc, argv)) return *ended;
  const CommandLine& named = Named();
  CHECK(named.run_ != nullptr) << named.app_->get_name() << " has no function for OnRun";
  return named.run_();
}

const CommandLine& CommandLine::Named() const {
  for (const std::unique_ptr<CommandLine>& command : commands_) {
    if (command->app_->parsed()) return command->Named();
  }
  return *this;
}

}  // namespace baton
