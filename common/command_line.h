// The command line of a program: options, settings, and commands with their own.
//
//   CommandLine line("Serves models.");
//   CommandLine& serve = line.AddCommand("serve", "Serve one");
//   serve.Add("--port", &port, "Port to listen on").Range(1, 65535).ShowDefault();
//   serve.OnRun([&] { return Serve(port); });
//   return line.Run(argc, argv);
//
// CLI11 parses. This header does not include it: it takes many seconds to compile. Every help text
// ends with the exit codes of common/exit_code.h; an error names option and value in one line on
// standard error and ends the program with kExitUsage. For a name that is not known it suggests the
// nearest one.
//
// An option that is not on the line can have its value from elsewhere:
//   --config FILE   of the program: any option, as CLI11 reads TOML ("kv-blocks = 64"); those of a
//                   command under its name ("[up]")
//   BATON_KV_BLOCKS an environment variable: settings, and options with FromEnvironment()
// The line goes before the file, the file before the variable.
//
// Fields must outlive the parse. They keep their values where their options are not given. Names
// are written with their dashes ("--port"); a name given twice in one command is a bug.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/settings.h"

namespace CLI {
class App;
class Error;
class Option;
}  // namespace CLI

namespace baton {

class CommandLine {
 public:
  // A handle: copies mean the same option, which lives as long as its CommandLine.
  class Option {
   public:
    // Under this heading of the help.
    Option& Group(const std::string& name);
    Option& Required();
    // Only together with `other`.
    Option& Needs(const Option& other);
    // Never together with `other`, in whichever order.
    Option& Excludes(const Option& other);
    // Of a number: what may be given, both ends included, as the help shows it. Any other text is a
    // usage error that names both. Every number of a command that people use has one.
    Option& Range(int minimum, int maximum);
    Option& Range(int64_t minimum, int64_t maximum);
    Option& Range(double minimum, double maximum);
    Option& OneOf(const std::vector<std::string>& values);
    // Of text, or of each text of a list: HOST:PORT to connect to (common/host_port.h).
    Option& IsHostPort();
    // HOST:PORT to listen at, where port 0 picks a free one.
    Option& IsListenAddress();
    // Read from the variable BATON_NAME where the option is not given. As with every source, the
    // value is checked, and a wrong one is a usage error.
    Option& FromEnvironment();
    // The help shows the field's value of now.
    Option& ShowDefault();
    // Of a list: one value for each time the option is named. Else it takes all up to the next one.
    Option& TakesOne();

   private:
    friend class CommandLine;
    Option(CLI::Option* option, CommandLine* owner) : option_(option), owner_(owner) {}
    CLI::Option* option_;  // never null
    CommandLine* owner_;   // never null
  };

  // The message of a status that is not OK follows the option's name: "--seed: is x, must be …".
  using Parser = std::function<absl::Status(const std::string& text)>;

  // `name` is what the help calls the program; argv[0] when empty.
  explicit CommandLine(const std::string& description, const std::string& name = "");

  // A command of this one, which from then on cannot be run without naming one of its commands.
  // Lives as long as this.
  CommandLine& AddCommand(const std::string& name, const std::string& description);

  // T: std::string, int32_t, int64_t, uint64_t, float or double; or a vector of std::string or
  // int32_t, whose option can be repeated. A uint64_t takes no sign.
  template <typename T>
  Option Add(const std::string& name, T* field, const std::string& help);
  // T: std::string, int32_t, uint64_t. Absent where the option is not given.
  template <typename T>
  Option Add(const std::string& name, std::optional<T>* field, const std::string& help);
  // True when named.
  Option AddFlag(const std::string& name, bool* field, const std::string& help);
  // `parse` sees the text as given; with AddParsedList, which can be repeated, each of the texts.
  Option AddParsed(const std::string& name, Parser parse, const std::string& help);
  Option AddParsedList(const std::string& name, Parser parse, const std::string& help);
  // "--name VALUE" each; for flags "--name" and "--no-name". With --show-settings the program then
  // checks its line, prints every setting's value and ends. `settings` must outlive the parse.
  void AddSettings(const SettingList& settings, const std::string& group);

  // Text of this command's help, behind its options.
  void AddHelpText(const std::string& text);

  // What Run() runs where this command is the one named; returns the exit code. Set for every
  // command that has none below it, and for none else.
  void OnRun(std::function<int()> run) { run_ = std::move(run); }
  // Of a program with commands: parses, runs what is named, returns the exit code.
  int Run(int argc, const char* const* argv);
  // Of one without commands. Returns nothing if the program shall run, else its exit code: the line
  // is wrong, or asks for the help, the version or the settings alone.
  std::optional<int> Parse(int argc, const char* const* argv);

 private:
  explicit CommandLine(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  // The command that the parsed line names.
  const CommandLine& Named() const;
  // Lets this command and the ones that `arguments` name read their options from variables. Other
  // commands read none: their wrong values must not refuse this line.
  void BindEnvironment(std::span<const char* const> arguments);
  void ForgetEnvironment();
  // Replaces CLI11's message by one line. The reason stands at its end: readers of a log may see
  // that alone.
  std::string ErrorMessage(const CLI::Error& error) const;
  // "there is no option --topp; did you mean --top-p?"
  std::string UnknownArgument(const std::string& argument) const;

  std::shared_ptr<CLI::App> app_;  // shared with the commands below, which are part of it
  std::vector<std::unique_ptr<CommandLine>> commands_;
  std::vector<CLI::Option*> from_environment_;
  std::vector<const SettingList*> settings_;
  bool show_settings_ = false;
  std::function<int()> run_;
};

}  // namespace baton
