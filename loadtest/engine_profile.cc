#include "loadtest/engine_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/check.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostProfileValueBytes = 80;

std::string ShownValue(const Json& value) {
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace),
                   kMostProfileValueBytes);
}

absl::Status ProfileFault(std::string_view field, std::string_view message) {
  return absl::InvalidArgumentError(StrCat("profile: ", field, " ", message));
}

absl::StatusOr<const Json*> FieldOf(const Json& object, const std::string& path, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return ProfileFault(StrCat(path, name), "is missing");
  return &*at;
}

absl::StatusOr<int64_t> WholeNumberOf(const Json& value, const std::string& field, int64_t minimum,
                                      int64_t maximum) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<uint64_t>() >= static_cast<uint64_t>(minimum) &&
                    value.get<uint64_t>() <= static_cast<uint64_t>(maximum);
  if (fits) return value.get<int64_t>();
  return ProfileFault(field, StrCat("is ", ShownValue(value), "; must be a whole number from ",
                                    minimum, " to ", maximum));
}

absl::StatusOr<std::string> TextOf(const Json& object, const char* name) {
  ASSIGN_OR_RETURN(const Json* const value, FieldOf(object, "", name));
  if (!value->is_string()) {
    return ProfileFault(name, StrCat("is ", ShownValue(*value), "; must be a text"));
  }
  return value->get<std::string>();
}

absl::StatusOr<std::vector<int64_t>> AxisOf(const Json& grid, const std::string& path,
                                            const char* name, int64_t minimum, int64_t maximum,
                                            size_t fewest) {
  ASSIGN_OR_RETURN(const Json* const values, FieldOf(grid, path, name));
  const std::string field = StrCat(path, name);
  if (!values->is_array() || values->size() < fewest ||
      values->size() > EngineProfile::kMostPoints) {
    return ProfileFault(field, StrCat("is ", ShownValue(*values), "; must be an array of ", fewest,
                                      " to ", EngineProfile::kMostPoints, " numbers"));
  }
  std::vector<int64_t> axis;
  for (const Json& value : *values) {
    ASSIGN_OR_RETURN(const int64_t number,
                     WholeNumberOf(value, StrCat(field, "[", axis.size(), "]"), minimum, maximum));
    if (!axis.empty() && number <= axis.back()) {
      return ProfileFault(
          StrCat(field, "[", axis.size(), "]"),
          StrCat("is ", number, "; must be above the number before it, ", axis.back()));
    }
    axis.push_back(number);
  }
  return axis;
}

absl::StatusOr<double> TimeOf(const Json& value, const std::string& field) {
  const double us = value.is_number() ? value.get<double>() : -1;
  if (us > 0 && us <= EngineProfile::kMostUs) return us;
  return ProfileFault(field, StrCat("is ", ShownValue(value),
                                    "; must be a number above 0 and at "
                                    "most ",
                                    EngineProfile::kMostUs));
}

absl::Status ReadTimes(const Json& object, const std::string& path, TimeGrid& grid) {
  ASSIGN_OR_RETURN(const Json* const rows, FieldOf(object, path, "us"));
  const std::string field = StrCat(path, "us");
  if (!rows->is_array() || rows->size() != grid.rows.size()) {
    return ProfileFault(field, StrCat("must be an array of ", grid.rows.size(), " arrays"));
  }
  for (const Json& row : *rows) {
    const std::string place = StrCat(field, "[", grid.us.size(), "]");
    if (!row.is_array() || row.size() != grid.columns.size()) {
      return ProfileFault(place, StrCat("must be an array of ", grid.columns.size(), " numbers"));
    }
    std::vector<double>& times = grid.us.emplace_back();
    for (const Json& value : row) {
      ASSIGN_OR_RETURN(const double us, TimeOf(value, StrCat(place, "[", times.size(), "]")));
      times.push_back(us);
    }
  }
  return absl::OkStatus();
}

struct AxisRule {
  const char* name;
  int64_t minimum;
  int64_t maximum;
  size_t fewest;
};

absl::StatusOr<TimeGrid> GridOf(const Json& profile, const char* name, const AxisRule& rows,
                                const AxisRule& columns) {
  ASSIGN_OR_RETURN(const Json* const object, FieldOf(profile, "", name));
  if (!object->is_object()) return ProfileFault(name, "must be an object");
  const std::string path = StrCat(name, ".");
  TimeGrid grid;
  ASSIGN_OR_RETURN(grid.rows,
                   AxisOf(*object, path, rows.name, rows.minimum, rows.maximum, rows.fewest));
  ASSIGN_OR_RETURN(grid.columns, AxisOf(*object, path, columns.name, columns.minimum,
                                        columns.maximum, columns.fewest));
  RETURN_IF_ERROR(ReadTimes(*object, path, grid));
  return grid;
}

// Index of the lower one of the two points whose line passes through `x`.
size_t SegmentOf(const std::vector<int64_t>& axis, double x) {
  const auto above = std::upper_bound(axis.begin(), axis.end(), x, [](double value, int64_t point) {
    return value < static_cast<double>(point);
  });
  const auto index = static_cast<size_t>(above - axis.begin());
  return std::clamp<size_t>(index, 1, axis.size() - 1) - 1;
}

// The value at `x` between or outside the points of an axis (TimeGrid::At).
template <typename At>
double OnAxis(const std::vector<int64_t>& axis, double x, const At& at) {
  if (axis.size() == 1) return at(0);
  const size_t low = SegmentOf(axis, x);
  const auto x0 = static_cast<double>(axis[low]);
  const auto x1 = static_cast<double>(axis[low + 1]);
  const double y0 = at(low);
  const double y1 = at(low + 1);
  const double slope = (y1 - y0) / (x1 - x0);
  if (x < x0) return y0 + (x - x0) * std::max(0.0, slope);
  if (x > x1) return y1 + (x - x1) * std::max(0.0, slope);
  return y0 + (x - x0) * slope;
}

Json GridJson(const TimeGrid& grid, const char* rows, const char* columns) {
  return {{rows, grid.rows}, {columns, grid.columns}, {"us", grid.us}};
}

}  // namespace

double TimeGrid::At(double row, double column) const {
  return std::max(0.0, OnAxis(rows, row, [&](size_t r) {
                    return OnAxis(columns, column, [&](size_t c) { return us[r][c]; });
                  }));
}

EngineProfile ComputedProfile() {
  constexpr double kPromptTokenUs = 40, kPositionUs = 0.0013, kWeightsUs = 6000;
  constexpr double kSequenceUs = 25, kContextUs = 0.044;
  EngineProfile profile;
  profile.model = "8 billion parameters, computed";
  profile.device = "3 TB/s, 400 TFLOP/s, computed";
  profile.kv_bytes_per_token = 131'072;
  profile.max_context = 131'072;
  profile.prefill.rows = {0, 4096, 131'072};
  // 150 tokens take as long as reading the weights.
  profile.prefill.columns = {1, 75, 150, 512, 1024, 2048, 4096, 8192};
  for (const int64_t begin : profile.prefill.rows) {
    std::vector<double>& times = profile.prefill.us.emplace_back();
    for (const int64_t count : profile.prefill.columns) {
      const auto tokens = static_cast<double>(count);
      times.push_back(std::max(kWeightsUs, kPromptTokenUs * tokens) +
                      kPositionUs * tokens * (static_cast<double>(begin) + tokens / 2));
    }
  }
  profile.decode.rows = {1, 64};
  profile.decode.columns = {1, 131'072};
  for (const int64_t sequences : profile.decode.rows) {
    std::vector<double>& times = profile.decode.us.emplace_back();
    for (const int64_t context : profile.decode.columns) {
      times.push_back(kWeightsUs + static_cast<double>(sequences) *
                                       (kSequenceUs + kContextUs * static_cast<double>(context)));
    }
  }
  return profile;
}

absl::StatusOr<EngineProfile> ParseProfile(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        "profile: is not a JSON object; `engine_bench --profile FILE` writes profiles");
  }
  ASSIGN_OR_RETURN(const std::string format, TextOf(json, "format"));
  if (format != kProfileFormat) {
    return ProfileFault("format", StrCat("is \"", Printable(format, kMostProfileValueBytes),
                                         "\"; must be \"", kProfileFormat, "\""));
  }
  ASSIGN_OR_RETURN(const Json* const version, FieldOf(json, "", "version"));
  RETURN_IF_ERROR(WholeNumberOf(*version, "version", kProfileVersion, kProfileVersion).status());
  EngineProfile profile;
  ASSIGN_OR_RETURN(profile.model, TextOf(json, "model"));
  ASSIGN_OR_RETURN(profile.device, TextOf(json, "device"));
  ASSIGN_OR_RETURN(const Json* const bytes, FieldOf(json, "", "kv_bytes_per_token"));
  ASSIGN_OR_RETURN(profile.kv_bytes_per_token,
                   WholeNumberOf(*bytes, "kv_bytes_per_token", 1, EngineProfile::kMostKvBytes));
  ASSIGN_OR_RETURN(const Json* const context, FieldOf(json, "", "max_context"));
  ASSIGN_OR_RETURN(profile.max_context,
                   WholeNumberOf(*context, "max_context", 2, EngineProfile::kMostTokens));
  ASSIGN_OR_RETURN(profile.prefill,
                   GridOf(json, "prefill", {"begin", 0, EngineProfile::kMostTokens, 1},
                          {"tokens", 1, EngineProfile::kMostTokens, 2}));
  ASSIGN_OR_RETURN(profile.decode,
                   GridOf(json, "decode", {"sequences", 1, EngineProfile::kMostSequences, 1},
                          {"context", 1, EngineProfile::kMostTokens, 1}));
  return profile;
}

std::string ProfileText(const EngineProfile& profile) {
  const Json json = {
      {"format", kProfileFormat},
      {"version", kProfileVersion},
      {"model", profile.model},
      {"device", profile.device},
      {"kv_bytes_per_token", profile.kv_bytes_per_token},
      {"max_context", profile.max_context},
      {"prefill", GridJson(profile.prefill, "begin", "tokens")},
      {"decode", GridJson(profile.decode, "sequences", "context")},
  };
  return StrCat(json.dump(1, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace baton
