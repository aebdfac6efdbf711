// Puts a SettingList on a CLI11 command line: "--name VALUE", and for flags "--name" and
// "--no-name". Included by mains only, so that nothing else depends on CLI11.
//
// Thread safety: belongs to one thread. The list and its fields must outlive the parse.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/settings.h"

namespace baton {

// A bad value ends the parse with CLI::ValidationError, whose text names setting, value and range.
inline void AddSettings(const SettingList& settings, const std::string& group, CLI::App& app) {
  for (const Setting& setting : settings.settings()) {
    std::string help = setting.help;
    if (!setting.range.empty() && !setting.is_flag)
      absl::StrAppend(&help, " Range: ", setting.range, ".");
    if (!setting.default_value.empty()) {
      absl::StrAppend(&help, " Default: ", setting.default_value, ".");
    }
    const std::string option_name = "--" + setting.name;
    const auto set = [apply = setting.set, option_name](const std::string& value) {
      if (absl::Status status = apply(value); !status.ok()) {
        throw CLI::ValidationError(option_name, std::string(status.message()));
      }
    };
    CLI::Option* option = nullptr;
    if (setting.is_flag) {
      option = app.add_flag_function(
          option_name + ",!--no-" + setting.name,
          [set](int64_t count) { set(count > 0 ? "true" : "false"); }, help);
    } else {
      option = app.add_option_function<std::string>(option_name, set, help);
    }
    option->group(group);
  }
}

}  // namespace baton
