#include "common/settings.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/nearest_name.h"

namespace baton {
namespace {

// Debian's absl::string_view is not std::string_view.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status BadValue(const std::string& name, std::string_view value, const std::string& range) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": is ", View(Shown(value)), "; must be ", range));
}

absl::Status BadChoice(const std::string& name, std::string_view value,
                       const std::vector<std::string>& choices) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": ", UnknownChoice(value, choices)));
}

template <typename Integer>
Setting MakeInteger(std::string name, Integer* field, Integer minimum, Integer maximum,
                    std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.type = "INT";
  setting.range = absl::StrCat(minimum, " to ", maximum);
  setting.get = [field] { return absl::StrCat(*field); };
  setting.default_value = setting.get();
  setting.set = [field, minimum, maximum, name = setting.name,
                 range = setting.range](std::string_view text) -> absl::Status {
    Integer value = 0;
    if (!absl::SimpleAtoi(View(text), &value) || value < minimum || value > maximum) {
      return BadValue(name, text, range);
    }
    *field = value;
    return absl::OkStatus();
  };
  return setting;
}

// Returns "name = value", with the default if the value differs from it.
std::string Line(const Setting& setting) {
  const std::string value = setting.get();
  std::string out = absl::StrCat(setting.name, " = ", value);
  if (value != setting.default_value) {
    absl::StrAppend(&out, "  (default ",
                    setting.default_value.empty() ? "empty" : setting.default_value, ")");
  }
  out += '\n';
  return out;
}

}  // namespace

void SettingList::Add(std::string name, int32_t* field, int32_t minimum, int32_t maximum,
                      std::string help) {
  settings_.push_back(MakeInteger(std::move(name), field, minimum, maximum, std::move(help)));
}

void SettingList::Add(std::string name, int64_t* field, int64_t minimum, int64_t maximum,
                      std::string help) {
  settings_.push_back(MakeInteger(std::move(name), field, minimum, maximum, std::move(help)));
}

void SettingList::Add(std::string name, double* field, double minimum, double maximum,
                      std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.type = "FLOAT";
  setting.range = absl::StrCat(minimum, " to ", maximum);
  setting.get = [field] { return absl::StrCat(*field); };
  setting.default_value = setting.get();
  setting.set = [field, minimum, maximum, name = setting.name,
                 range = setting.range](std::string_view text) -> absl::Status {
    double value = 0;
    if (!absl::SimpleAtod(View(text), &value) || !(value >= minimum && value <= maximum)) {
      return BadValue(name, text, range);
    }
    *field = value;
    return absl::OkStatus();
  };
  settings_.push_back(std::move(setting));
}

void SettingList::Add(std::string name, bool* field, std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.range = "true or false";
  setting.is_flag = true;
  setting.get = [field] { return std::string(*field ? "true" : "false"); };
  setting.default_value = setting.get();
  setting.set = [field, name = setting.name,
                 range = setting.range](std::string_view text) -> absl::Status {
    if (text == "true" || text == "on" || text == "1") {
      *field = true;
    } else if (text == "false" || text == "off" || text == "0") {
      *field = false;
    } else {
      return BadValue(name, text, range);
    }
    return absl::OkStatus();
  };
  settings_.push_back(std::move(setting));
}

void SettingList::Add(std::string name, std::string* field, std::string help, std::string type) {
  Setting setting;
  setting.type = std::move(type);
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.get = [field] { return *field; };
  setting.default_value = setting.get();
  setting.set = [field](std::string_view text) {
    *field = std::string(text);
    return absl::OkStatus();
  };
  settings_.push_back(std::move(setting));
}

void SettingList::Add(std::string name, std::string* field, size_t max_bytes, std::string help,
                      std::string type) {
  Add(std::move(name), field, std::move(help), std::move(type));
  Setting& setting = settings_.back();
  setting.range = absl::StrCat("at most ", max_bytes, " bytes");
  setting.set = [set = std::move(setting.set), max_bytes,
                 name = setting.name](std::string_view text) -> absl::Status {
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, " has ", text.size(), " bytes; at most ", max_bytes, " are allowed"));
    }
    return set(text);
  };
}

void SettingList::AddNamed(std::string name, std::vector<std::string> names,
                           std::function<void(size_t)> choose, std::function<std::string()> get,
                           std::string help) {
  Setting setting;
  setting.name = std::move(name);
  setting.help = std::move(help);
  setting.type = "NAME";
  setting.range = absl::StrJoin(names, ", ");
  setting.choices = names;
  setting.get = std::move(get);
  setting.default_value = setting.get();
  setting.set = [choose = std::move(choose), names = std::move(names),
                 name = setting.name](std::string_view text) -> absl::Status {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) return BadChoice(name, text, names);
    choose(static_cast<size_t>(found - names.begin()));
    return absl::OkStatus();
  };
  settings_.push_back(std::move(setting));
}

absl::Status SettingList::Set(std::string_view name, std::string_view value) {
  for (const Setting& setting : settings_) {
    if (setting.name == name) return setting.set(value);
  }
  return absl::NotFoundError(absl::StrCat("there is no setting --", View(name)));
}

std::string SettingList::EffectiveValues() const {
  std::string out;
  for (const Setting& setting : settings_) {
    if (setting.get() != setting.default_value) out += Line(setting);
  }
  return out;
}

std::string SettingHelp(const Setting& setting) {
  std::string help = setting.help;
  if (!help.empty()) help[0] = absl::ascii_toupper(static_cast<unsigned char>(help[0]));
  if (!help.ends_with('.')) help += '.';
  if (!setting.range.empty() && !setting.is_flag) {
    absl::StrAppend(&help, setting.choices.empty() ? " Range: " : " One of: ", setting.range, ".");
  }
  if (!setting.default_value.empty()) {
    absl::StrAppend(&help, " Default: ", setting.default_value, ".");
  }
  return help;
}

std::string SettingList::AllValues() const {
  std::string out;
  for (const Setting& setting : settings_) out += Line(setting);
  return out;
}

}  // namespace baton
