#include "loadtest/service_objectives.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "loadtest/quantiles.h"

namespace baton {
namespace {

struct ObjectiveField {
  const char* name;
  std::optional<double> ServiceObjectives::*field;
};
constexpr ObjectiveField kObjectiveFields[] = {{"ttft_ms", &ServiceObjectives::ttft_ms},
                                               {"itl_ms", &ServiceObjectives::itl_ms},
                                               {"tpot_ms", &ServiceObjectives::tpot_ms},
                                               {"e2e_ms", &ServiceObjectives::e2e_ms}};

const ObjectiveField* FindObjective(const std::string& name) {
  for (const ObjectiveField& field : kObjectiveFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

bool MeetsObjective(const std::optional<double>& limit, double value) {
  return !limit || value <= *limit;
}

}  // namespace

absl::StatusOr<ServiceObjectives> ParseObjectives(const std::string& text) {
  ServiceObjectives out;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const ObjectiveField* field = FindObjective(name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", name, "\" is no objective; the objectives are ttft_ms, itl_ms, tpot_ms, e2e_ms"));
    }
    if (out.*(field->field)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
    }
    double value = 0;
    const std::string number = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (!absl::SimpleAtod(number, &value) || !(value > 0) || value > kMaxObjectiveMs) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is \"", number,
                                                     "\"; must be above 0 and at most ",
                                                     static_cast<int64_t>(kMaxObjectiveMs)));
    }
    out.*(field->field) = value;
  }
  return out;
}

std::string ObjectivesText(const ServiceObjectives& objectives) {
  std::vector<std::string> parts;
  for (const ObjectiveField& field : kObjectiveFields) {
    const std::optional<double>& value = objectives.*(field.field);
    if (value) parts.push_back(absl::StrCat(field.name, "=", *value));
  }
  return absl::StrJoin(parts, ",");
}

double GapP99Ms(const RequestRecord& record) {
  if (record.gaps_us.empty()) return 0;
  std::vector<double> gaps(record.gaps_us.begin(), record.gaps_us.end());
  return QuantileOf(gaps, 0.99) / 1000;
}

bool IsGood(const RequestRecord& record, const ServiceObjectives& objectives) {
  if (record.outcome != RequestOutcome::kWhole) return false;
  return MeetsObjective(objectives.ttft_ms, record.ttft_ms()) &&
         MeetsObjective(objectives.e2e_ms, record.e2e_ms()) &&
         (!record.has_tpot() || MeetsObjective(objectives.tpot_ms, record.tpot_ms())) &&
         (!objectives.itl_ms || MeetsObjective(objectives.itl_ms, GapP99Ms(record)));
}

}  // namespace baton
