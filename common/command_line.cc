#include "common/command_line.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/exit_code.h"
#include "common/host_port.h"

namespace baton {
namespace {

// `prefix`: before the status's message.
void ThrowUnlessOk(const absl::Status& status, const std::string& prefix = "") {
  if (!status.ok()) throw CLI::ValidationError(absl::StrCat(prefix, status.message()));
}

// CLI11 would take -1 for 2^64-1.
uint64_t ParseUnsigned(const std::string& option_name, const std::string& text) {
  uint64_t value = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &value)) {
    throw CLI::ValidationError(option_name, absl::StrCat("is ", text, ", must be 0 to 2^64-1"));
  }
  return value;
}

// `field`: uint64_t or an optional one.
template <typename Field>
CLI::Option* AddUnsigned(CLI::App& app, const std::string& name, Field* field,
                         const std::string& help) {
  const auto set = [field, name](const std::string& text) { *field = ParseUnsigned(name, text); };
  return app.add_option_function<std::string>(name, set, help)->type_name("UINT");
}

// Reads as CLI11 does for the field. NaN is in no range, and what is no number either.
template <typename Number>
CLI::Validator InRange(Number minimum, Number maximum) {
  const auto check = [minimum, maximum](std::string& text) -> std::string {
    Number value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= minimum && value <= maximum) return "";
    return absl::StrCat("is ", text, ", must be ", minimum, " to ", maximum);
  };
  return {check, absl::StrCat("[", minimum, ", ", maximum, "]"), "range"};
}

// One line, which ends with the reason: it may be the last one that is read of a log.
std::string FailureMessage(const CLI::App*, const CLI::Error& error) {
  return absl::StrCat(error.what(), " (see --help)\n");
}

}  // namespace

CommandLine::Option& CommandLine::Option::Group(const std::string& name) {
  option_->group(name);
  return *this;
}

CommandLine::Option& CommandLine::Option::Required() {
  option_->required();
  return *this;
}

CommandLine::Option& CommandLine::Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

CommandLine::Option& CommandLine::Option::Range(int minimum, int maximum) {
  return Range(int64_t{minimum}, int64_t{maximum});
}

CommandLine::Option& CommandLine::Option::Range(int64_t minimum, int64_t maximum) {
  option_->check(InRange(minimum, maximum));
  return *this;
}

CommandLine::Option& CommandLine::Option::Range(double minimum, double maximum) {
  option_->check(InRange(minimum, maximum));
  return *this;
}

CommandLine::Option& CommandLine::Option::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

CommandLine::Option& CommandLine::Option::IsHostPort() {
  option_->check(
      [](const std::string& text) { return std::string(CheckHostPort(text).message()); });
  return *this;
}

CommandLine::Option& CommandLine::Option::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

CommandLine::Option& CommandLine::Option::TakesOne() {
  option_->allow_extra_args(false);
  return *this;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {
  app_->footer(kExitCodeHelp);  // and of every command
  app_->failure_message(FailureMessage);
}

CommandLine& CommandLine::AddCommand(const std::string& name, const std::string& description) {
  // Inherited by commands that are added later.
  if (app_->get_help_all_ptr() == nullptr) {
    app_->set_help_all_flag("--help-all", "Help of all commands");
  }
  app_->require_subcommand(1);
  const std::shared_ptr<CLI::App> command(app_, app_->add_subcommand(name, description));
  commands_.push_back(std::unique_ptr<CommandLine>(new CommandLine(command)));
  return *commands_.back();
}

template <typename T>
CommandLine::Option CommandLine::Add(const std::string& name, T* field, const std::string& help) {
  return Option(app_->add_option(name, *field, help));
}
template <>
CommandLine::Option CommandLine::Add(const std::string& name, uint64_t* field,
                                     const std::string& help) {
  CLI::Option* option = AddUnsigned(*app_, name, field, help);
  option->default_function([field] { return absl::StrCat(*field); });
  return Option(option);
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
  return Option(app_->add_option_function<T>(
      name, [field](const T& value) { *field = value; }, help));
}
template <>
CommandLine::Option CommandLine::Add(const std::string& name, std::optional<uint64_t>* field,
                                     const std::string& help) {
  return Option(AddUnsigned(*app_, name, field, help));
}
template CommandLine::Option CommandLine::Add(const std::string&, std::optional<std::string>*,
                                              const std::string&);
template CommandLine::Option CommandLine::Add(const std::string&, std::optional<int32_t>*,
                                              const std::string&);

CommandLine::Option CommandLine::AddFlag(const std::string& name, bool* field,
                                         const std::string& help) {
  return Option(app_->add_flag(name, *field, help));
}

CommandLine::Option CommandLine::AddParsed(const std::string& name, Parser parse,
                                           const std::string& help) {
  const auto set = [name, parse = std::move(parse)](const std::string& text) {
    ThrowUnlessOk(parse(text), name + ": ");
  };
  return Option(app_->add_option_function<std::string>(name, set, help));
}

CommandLine::Option CommandLine::AddParsedList(const std::string& name, Parser parse,
                                               const std::string& help) {
  const auto set = [name, parse = std::move(parse)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) ThrowUnlessOk(parse(text), name + ": ");
  };
  return Option(app_->add_option_function<std::vector<std::string>>(name, set, help));
}

void CommandLine::AddSettings(const SettingList& settings, const std::string& group) {
  for (const Setting& setting : settings.settings()) {
    std::string help = setting.help;
    if (!help.ends_with('.')) help += '.';
    if (!setting.range.empty() && !setting.is_flag) {
      absl::StrAppend(&help, " Range: ", setting.range, ".");
    }
    if (!setting.default_value.empty()) {
      absl::StrAppend(&help, " Default: ", setting.default_value, ".");
    }
    const std::string name = "--" + setting.name;
    // Its messages name the setting.
    const auto set = [apply = setting.set](const std::string& text) { ThrowUnlessOk(apply(text)); };
    CLI::Option* option = nullptr;
    if (setting.is_flag) {
      option = app_->add_flag_function(
          name + ",!--no-" + setting.name,
          [set](int64_t count) { set(count > 0 ? "true" : "false"); }, help);
    } else {
      option = app_->add_option_function<std::string>(name, set, help);
    }
    option->group(group);
  }
}

std::optional<int> CommandLine::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app_->exit(error) != 0) return kExitUsage;
    return std::cout.flush() ? kExitSuccess : kExitFailed;  // the help may not have been written
  }
  return std::nullopt;
}

int CommandLine::Run(int argc, const char* const* argv) {
  if (const std::optional<int> ended = Parse(argc, argv)) return *ended;
  const CommandLine& named = Named();
  CHECK(named.run_ != nullptr) << named.app_->get_name() << " has nothing to run";
  return named.run_();
}

const CommandLine& CommandLine::Named() const {
  for (const std::unique_ptr<CommandLine>& command : commands_) {
    if (command->app_->parsed()) return command->Named();
  }
  return *this;
}

}  // namespace baton
