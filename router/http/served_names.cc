#include "router/http/served_names.h"

#include <algorithm>

#include "http/http_message.h"

namespace baton {

ServedNames::ServedNames(std::string_view more) {
  while (!more.empty()) {
    const size_t comma = std::min(more.find(','), more.size());
    const std::string_view name = HttpTrim(more.substr(0, comma));
    if (!name.empty() && std::find(more_.begin(), more_.end(), name) == more_.end()) {
      more_.emplace_back(name);
    }
    more.remove_prefix(std::min(comma + 1, more.size()));
  }
}

std::vector<std::string> ServedNames::All(std::string_view model_name) const {
  std::vector<std::string> all = {std::string(model_name)};
  for (const std::string& name : more_) {
    if (name != model_name) all.push_back(name);
  }
  return all;
}

bool ServedNames::Has(std::string_view model_name, std::string_view name) const {
  return name == model_name || std::find(more_.begin(), more_.end(), name) != more_.end();
}

}  // namespace baton
