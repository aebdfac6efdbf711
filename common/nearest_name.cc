#include "common/nearest_name.h"

#include <algorithm>
#include <vector>

#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kLongestName = 64;  // bounds the work for hostile text
constexpr size_t kShortestPart = 3;  // letters that suffice to recognise a part of a name

std::string_view WithoutDashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// Returns true for "kv-blocks" and "blocks".
bool EndsWithWords(std::string_view name, std::string_view words) {
  return words.size() >= kShortestPart && name.size() > words.size() && name.ends_with(words) &&
         name[name.size() - words.size() - 1] == '-';
}

// Returns the distance, or -1 if the names are too far apart.
int DistanceIfNear(std::string_view given, std::string_view name) {
  if (given.size() >= kShortestPart && name.starts_with(given)) return 1;
  if (EndsWithWords(given, name) || EndsWithWords(name, given)) return 2;
  const int distance = EditDistance(given, name);
  const size_t most = std::max<size_t>(1, std::min(given.size(), name.size()) / 3);
  return static_cast<size_t>(distance) <= most ? distance : -1;
}

}  // namespace

int EditDistance(std::string_view from, std::string_view to) {
  std::vector<int> before(to.size() + 1);  // the row before `last`
  std::vector<int> last(to.size() + 1);
  std::vector<int> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= from.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const int replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[to.size()];
}

std::string NearestName(std::string_view given, std::span<const std::string> names) {
  const std::string_view wanted = WithoutDashes(given);
  if (wanted.empty() || wanted.size() > kLongestName) return "";
  std::string nearest;
  int least = -1;
  for (const std::string& name : names) {
    const int distance = DistanceIfNear(wanted, WithoutDashes(name));
    if (distance < 0 || (least >= 0 && distance >= least)) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string_view Shown(std::string_view value) { return value.empty() ? "empty" : value; }

std::string UnknownChoice(std::string_view value, std::span<const std::string> choices) {
  std::string out = StrCat("is ", Shown(value), "; must be one of ");
  for (const std::string& choice : choices) {
    out += (&choice == choices.data() ? "" : ", ") + choice;
  }
  const std::string near = NearestName(value, choices);
  return near.empty() ? out : StrCat(out, "; did you mean ", near, "?");
}

std::string UnknownName(std::string_view kind, std::string_view given,
                        std::span<const std::string> names) {
  std::string out = "there is no ";
  out.append(kind).append(" ").append(given);
  const std::string nearest = NearestName(given, names);
  if (!nearest.empty()) out.append("; did you mean ").append(nearest).append("?");
  return out;
}

}  // namespace baton
