// List of a program's settings. Each setting has a name, a default, a range and a help sentence. It
// is declared once; the help, the checks and the printed values at start all use that declaration.
//
// A SettingList refers to the fields that it sets; they must outlive it. common/command_line.h adds
// settings to a command line.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace baton {

struct Setting {
  std::string name;                  // "block-size"
  std::string help;                  // one sentence
  std::string range;                 // "1 to 128"; empty for free text
  std::string default_value;         // as text
  std::string type = "TEXT";         // what the help calls a value: INT, FILE, HOST:PORT
  bool is_flag = false;              // "--name" alone means true
  std::vector<std::string> choices;  // values, where only these are valid
  std::function<absl::Status(std::string_view)>
      set;  // InvalidArgument names setting, value and range
  std::function<std::string()> get;
};

// Returns the setting's help for a command line: sentences with its range or choices, and its
// default.
std::string SettingHelp(const Setting& setting);

class SettingList {
 public:
  // The field's value at the time of the call becomes the default.
  void Add(std::string name, int32_t* field, int32_t minimum, int32_t maximum, std::string help);
  void Add(std::string name, int64_t* field, int64_t minimum, int64_t maximum, std::string help);
  void Add(std::string name, double* field, double minimum, double maximum, std::string help);
  void Add(std::string name, bool* field, std::string help);  // true/false, on/off, 1/0
  void Add(std::string name, std::string* field, std::string help, std::string type = "TEXT");
  void Add(std::string name, std::string* field, size_t max_bytes, std::string help,
           std::string type = "TEXT");
  template <typename Enum>
  void AddChoice(const std::string& name, Enum* field,
                 std::vector<std::pair<std::string, Enum>> choices, const std::string& help) {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    AddNamed(
        name, std::move(names), [field, choices](size_t index) { *field = choices[index].second; },
        [field, choices] {
          for (const auto& choice : choices) {
            if (choice.second == *field) return choice.first;
          }
          return std::string();
        },
        help);
  }

  const std::vector<Setting>& settings() const { return settings_; }
  absl::Status Set(std::string_view name, std::string_view value);
  // Returns a line "name = value" for each setting that does not have its default; the line names
  // the default too. A process prints these lines at start.
  std::string EffectiveValues() const;
  // As EffectiveValues, for every setting.
  std::string AllValues() const;

 private:
  void AddNamed(std::string name, std::vector<std::string> names,
                std::function<void(size_t)> choose, std::function<std::string()> get,
                std::string help);
  std::vector<Setting> settings_;
};

}  // namespace baton
