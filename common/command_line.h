// Parses the command line of a program: options, settings, and commands with options of their own.
//
//   CommandLine line("Serves models.");
//   CommandLine& serve = line.AddCommand("serve", "Serve one");
//   serve.Add("--port", &port, "Port to listen on").Range(1, 65535).ShowDefault();
//   serve.OnRun([&] { return Serve(port); });
//   return line.Run(argc, argv);
//
// CLI11 does the parsing. This header does not include CLI11, because that takes many seconds to
// compile. Every help text ends with the exit codes of common/exit_code.h. An error is one line on
// standard error that names the option and its value; the program then ends with kExitUsage. For an
// unknown name, the error suggests the nearest known one.
//
// An option that is missing on the command line can take its value from two other sources:
//   --config FILE   an option of the program: a TOML file, as CLI11 reads it ("kv-blocks = 64"). It
//                   may set any option; options of a command stand under its name ("[up]").
//   BATON_KV_BLOCKS an environment variable: for settings, and options with FromEnvironment()
// The command line overrides the file, and the file overrides the variable.
//
// Fields must outlive the parse. A field keeps its value if its option is not given. Names are
// written with their dashes ("--port"). Adding a name twice to one command is a bug.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/command_description.h"
#include "common/config_file_message.h"
#include "common/settings.h"

namespace CLI {
class App;
class Error;
class Option;
}  // namespace CLI

namespace baton {

// "baton 0.1.0".
std::string ProgramVersion();
// Sources of option values other than the command line. Part of every help.
inline constexpr char kSourcesHelp[] =
    "--config FILE reads options from a TOML file, for example kv-blocks = 64. Options of a "
    "command of `baton` stand below its name: [run], then kv-blocks = 64. Environment variables "
    "can also set options: BATON_KV_BLOCKS sets --kv-blocks. They can set every setting, a "
    "worker's --router, and of `baton` commands --model, --router, --tls-… and --api-key-file. The "
    "command line overrides the file; the file overrides the variables.";

// Help of the flag --check, which every server program has.
inline constexpr char kCheckFlagHelp[] =
    "Check the command line, the files that it names and that its addresses are free; print every "
    "setting's value and end";

class CommandLine {
 public:
  // Handle of an option. Copies refer to the same option, which lives as long as its CommandLine.
  class Option {
   public:
    // Shows the option under this heading of the help.
    Option& Group(const std::string& name);
    // Sets what the help and the man page call the value: FILE, FOLDER, HOST:PORT, NAME. Without
    // this: TEXT, INT, UINT or FLOAT.
    Option& Value(const std::string& name);
    Option& Required();
    // Refuses a command line that has this option without `other`.
    Option& Needs(const Option& other);
    // Refuses a command line that has both options. The order of the two does not matter.
    Option& Excludes(const Option& other);
    // For a number: the values allowed, both ends included. The help shows them. Any other text is
    // a usage error that names the value and the range. Every number of a command for users has a
    // range.
    Option& Range(int minimum, int maximum) { return Range(int64_t{minimum}, int64_t{maximum}); }
    Option& Range(int64_t minimum, int64_t maximum);
    Option& Range(double minimum, double maximum);
    Option& OneOf(const std::vector<std::string>& values);
    // For text, or each text of a list: must be HOST:PORT to connect to (common/host_port.h).
    Option& IsHostPort();
    // Must be HOST:PORT to listen at. Port 0 picks a free port.
    Option& IsListenAddress();
    // Reads the environment variable BATON_NAME if the option is not given. As with every source,
    // the value is checked, and a wrong value is a usage error.
    Option& FromEnvironment();
    // Shows the field's present value as the default in the help.
    Option& ShowDefault();
    // Lets the option stand without a value, which means `value`. A value follows a blank or "=".
    Option& OptionalValue(const std::string& value);
    // For a list: takes one value each time that the option is named. Without this, it takes all
    // values up to the next option.
    Option& TakesOne();

   private:
    friend class CommandLine;
    Option(CLI::Option* option, CommandLine* owner) : option_(option), owner_(owner) {}
    CLI::Option* option_;  // never null
    CommandLine* owner_;   // never null
  };

  // An error's message follows the option's name, as in "--seed: is x; must be …".
  using Parser = std::function<absl::Status(const std::string& text)>;

  // `name` is the program's name in the help. Empty: argv[0].
  explicit CommandLine(const std::string& description, const std::string& name = "");

  // Adds a command. From then on, the line must name one of this CommandLine's commands, unless
  // OnRun was called before. The reference is valid as long as this.
  CommandLine& AddCommand(const std::string& name, const std::string& description);

  // T is std::string, int32_t, int64_t, uint64_t, float or double. It may also be a vector of
  // std::string or int32_t; its option can be repeated. A uint64_t takes no sign.
  template <typename T>
  Option Add(const std::string& name, T* field, const std::string& help);
  // T is std::string, int32_t or uint64_t. The field stays empty if the option is not given.
  template <typename T>
  Option Add(const std::string& name, std::optional<T>* field, const std::string& help);
  // Sets the field to true if the flag is given.
  Option AddFlag(const std::string& name, bool* field, const std::string& help);
  // Passes the text to `parse` as given. AddParsedList makes an option that can be repeated and
  // passes each text.
  Option AddParsed(const std::string& name, Parser parse, const std::string& help);
  Option AddParsedList(const std::string& name, Parser parse, const std::string& help);
  // Adds an option "--name VALUE" for each setting; for flags "--name" and "--no-name". With
  // --show-settings the program checks its command line, prints the value of every setting and
  // ends. `settings` must outlive the parse.
  void AddSettings(const SettingList& settings, const std::string& group);
  // Lets --show-settings also print `text()`, which must end with a line break.
  void ShowWithSettings(std::function<std::string()> text);
  // Adds a flag with which the program only checks its command line, prints `text()` and ends.
  void AddPrintFlag(const std::string& name, const std::string& help,
                    std::function<std::string()> text);

  // For a command that starts other programs, which read variables of their own: no variable is
  // called mistyped or without effect.
  void PassVariablesOn() { passes_variables_on_ = true; }
  // Adds text to this command's help, after its options.
  void AddHelpText(const std::string& text);
  // Returns true if the parsed line, a file or a variable gave this command's option `name` a
  // value.
  bool IsGiven(const std::string& name) const;
  // Describes this command and all commands below it.
  CommandDescription Describe() const;

  // Sets the function that Run() calls if the line names this command, and none of its commands. It
  // returns the exit code. REQUIRES: set for every command without commands of its own.
  void OnRun(std::function<int()> run) { run_ = std::move(run); }
  // For a program with commands: parses, runs the named command and returns its exit code.
  int Run(int argc, const char* const* argv);
  // For a program without commands. Returns nullopt if the program shall run. Otherwise returns its
  // exit code, because the line is wrong or asks only for the help, the version or the settings.
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  explicit CommandLine(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  // Returns the command that the parsed line names.
  const CommandLine& Named() const;
  OptionDescription DescribeOption(const CLI::Option& option) const;
  // Lets this command and the commands named in `arguments` read their options from environment
  // variables. Other commands must not read them: a wrong value there would refuse this line.
  void BindEnvironment(std::span<const char* const> arguments);
  void ForgetEnvironment();
  // Replaces CLI11's message by one line with the reason at its end. A reader of a log may see only
  // that end.
  std::string ErrorMessage(const CLI::Error& error) const;
  // Returns " (from the environment variable BATON_X)" or " (from the file X)" if the message is
  // about a value from there. `arguments`: the line. `file`: of --config. Returns "" otherwise.
  std::string SourceOfError(const std::string& message, std::span<const std::string> arguments,
                            const std::string& file) const;
  // Returns what a file may name at its top, or below the name of a command.
  FileNames NamesOf(const std::string& command) const;
  // Adds the variables that this command and the commands below it can read.
  void AddVariables(std::vector<std::string>& names) const;
  // Warns on standard error of variables that are almost one that the named command reads.
  void WarnOfVariables() const;
  // "there is no option --topp; did you mean --top-p?"
  std::string UnknownArgument(const std::string& argument) const;

  std::shared_ptr<CLI::App> app_;  // shared with its commands, which are part of it
  std::vector<std::unique_ptr<CommandLine>> commands_;
  std::vector<CLI::Option*> from_environment_;
  std::vector<std::pair<CLI::Option*, std::function<std::string()>>> print_flags_;
  std::vector<std::function<std::string()>> shown_settings_;        // printed by --show-settings
  std::map<const CLI::Option*, std::vector<std::string>> choices_;  // of options that have some
  std::string epilogue_;
  bool passes_variables_on_ = false;
  std::function<int()> run_;
};

}  // namespace baton
