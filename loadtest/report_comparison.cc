#include "loadtest/report_comparison.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "loadtest/quantiles.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

constexpr size_t kBlocks = 20;
constexpr size_t kMaxReportRequests = 10'000'000;
constexpr size_t kDrawnValues = 40'000'000;  // of one figure in all draws, which bounds the time

absl::Status ReportFault(std::string_view field, std::string_view must) {
  return absl::InvalidArgumentError(StrCat(field, " must be ", must));
}

absl::StatusOr<nlohmann::json> SampleList(const nlohmann::json& samples, const char* name,
                                          size_t count) {
  const auto at = samples.find(name);
  if (at == samples.end() || !at->is_array() || at->size() != count) {
    return ReportFault(StrCat("samples.", name), StrCat("a list of ", count, " values"));
  }
  return *at;
}

absl::Status ReadFlags(const nlohmann::json& samples, const char* name, size_t count,
                       std::vector<bool>& out) {
  ASSIGN_OR_RETURN(const nlohmann::json list, SampleList(samples, name, count));
  for (const nlohmann::json& value : list) {
    if (!value.is_boolean()) return ReportFault(StrCat("samples.", name), "a list of booleans");
    out.push_back(value.get<bool>());
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const nlohmann::json& samples, const char* name, size_t count,
                         std::vector<double>& out) {
  ASSIGN_OR_RETURN(const nlohmann::json list, SampleList(samples, name, count));
  for (const nlohmann::json& value : list) {
    if (!value.is_number()) return ReportFault(StrCat("samples.", name), "a list of numbers");
    out.push_back(value.get<double>());
  }
  return absl::OkStatus();
}

absl::Status ReadOptionalNumbers(const nlohmann::json& samples, const char* name, size_t count,
                                 std::vector<std::optional<double>>& out) {
  ASSIGN_OR_RETURN(const nlohmann::json list, SampleList(samples, name, count));
  for (const nlohmann::json& value : list) {
    if (!value.is_number() && !value.is_null()) {
      return ReportFault(StrCat("samples.", name), "a list of numbers and nulls");
    }
    out.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
  }
  return absl::OkStatus();
}

absl::Status ReadGaps(const nlohmann::json& samples, size_t count,
                      std::vector<std::vector<double>>& out) {
  ASSIGN_OR_RETURN(const nlohmann::json lists, SampleList(samples, "itl_ms", count));
  for (const nlohmann::json& list : lists) {
    const auto is_number = [](const nlohmann::json& value) { return value.is_number(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_number)) {
      return ReportFault("samples.itl_ms", "a list of lists of numbers");
    }
    out.push_back(list.get<std::vector<double>>());
  }
  return absl::OkStatus();
}

using Picks = std::vector<size_t>;  // numbers of requests
using Figure = std::function<std::optional<double>(const ReportSamples&, const Picks&)>;

struct ComparedFigure {
  const char* name;
  const char* unit;
  bool higher_is_better;
  Figure of;
};

Figure QuantileFigure(std::vector<std::optional<double>> ReportSamples::*list, double q) {
  return [list, q](const ReportSamples& samples, const Picks& picks) -> std::optional<double> {
    std::vector<double> values;
    for (const size_t pick : picks) {
      if (const auto& value = (samples.*list)[pick]) values.push_back(*value);
    }
    return values.empty() ? std::nullopt : std::optional(QuantileOf(values, q));
  };
}

Figure GapFigure(double q) {
  return [q](const ReportSamples& samples, const Picks& picks) -> std::optional<double> {
    std::vector<double> values;
    for (const size_t pick : picks) {
      values.insert(values.end(), samples.itl_ms[pick].begin(), samples.itl_ms[pick].end());
    }
    return values.empty() ? std::nullopt : std::optional(QuantileOf(values, q));
  };
}

std::optional<double> OutputRate(const ReportSamples& samples, const Picks& picks) {
  double tokens = 0;
  for (const size_t pick : picks) {
    if (samples.ok[pick]) tokens += samples.output_tokens[pick];
  }
  return samples.duration_s > 0 ? std::optional(tokens / samples.duration_s) : std::nullopt;
}

double GoodCount(const ReportSamples& samples, const Picks& picks) {
  return static_cast<double>(std::count_if(picks.begin(), picks.end(),
                                           [&samples](size_t pick) { return samples.good[pick]; }));
}

std::optional<double> GoodRate(const ReportSamples& samples, const Picks& picks) {
  if (!samples.has_objectives || samples.duration_s <= 0) return std::nullopt;
  return GoodCount(samples, picks) / samples.duration_s;
}

std::optional<double> GoodShare(const ReportSamples& samples, const Picks& picks) {
  if (!samples.has_objectives || picks.empty()) return std::nullopt;
  return GoodCount(samples, picks) / static_cast<double>(picks.size());
}

std::optional<double> CachedShare(const ReportSamples& samples, const Picks& picks) {
  double cached = 0;
  double prompt = 0;
  for (const size_t pick : picks) {
    if (!samples.ok[pick] || samples.cached_tokens[pick] < 0) continue;
    cached += samples.cached_tokens[pick];
    prompt += samples.prompt_tokens[pick];
  }
  return prompt > 0 ? std::optional(cached / prompt) : std::nullopt;
}

std::optional<double> OkShare(const ReportSamples& samples, const Picks& picks) {
  const auto ok = std::count_if(picks.begin(), picks.end(),
                                [&samples](size_t pick) { return samples.ok[pick]; });
  return static_cast<double>(ok) / static_cast<double>(picks.size());
}

std::vector<ComparedFigure> ComparedFigures() {
  return {{"ok_share", "1", true, OkShare},
          {"ttft_p50_ms", "ms", false, QuantileFigure(&ReportSamples::ttft_ms, 0.5)},
          {"ttft_p99_ms", "ms", false, QuantileFigure(&ReportSamples::ttft_ms, 0.99)},
          {"itl_p50_ms", "ms", false, GapFigure(0.5)},
          {"itl_p99_ms", "ms", false, GapFigure(0.99)},
          {"tpot_p50_ms", "ms", false, QuantileFigure(&ReportSamples::tpot_ms, 0.5)},
          {"e2e_p99_ms", "ms", false, QuantileFigure(&ReportSamples::e2e_ms, 0.99)},
          {"output_tokens_per_s", "tokens/s", true, OutputRate},
          {"goodput_per_s", "requests/s", true, GoodRate},
          {"goodput_share", "1", true, GoodShare},
          {"cached_token_share", "1", true, CachedShare}};
}

Picks AllRequests(const ReportSamples& samples) {
  Picks picks(samples.ok.size());
  for (size_t i = 0; i < picks.size(); ++i) picks[i] = i;
  return picks;
}

// Draws as many requests as there are, as blocks of neighbours.
Picks DrawRequests(const ReportSamples& samples, SeededRandom& random) {
  const size_t count = samples.ok.size();
  const size_t length = std::max<size_t>(1, count / kBlocks);
  Picks picks;
  picks.reserve(count + length);
  while (picks.size() < count) {
    const size_t begin = random.Below(count);
    for (size_t i = 0; i < length; ++i) picks.push_back((begin + i) % count);
  }
  picks.resize(count);
  return picks;
}

size_t ValueCount(const ReportSamples& samples) {
  size_t count = samples.ok.size();
  for (const auto& gaps : samples.itl_ms) count += gaps.size();
  return count;
}

// What the load depends on. All other settings belong to the service.
constexpr const char* kLoadSettings[] = {"workload",
                                         "arrivals",
                                         "rate",
                                         "burstiness",
                                         "requests",
                                         "duration-s",
                                         "concurrency",
                                         "warmup",
                                         "prompt-tokens",
                                         "output-tokens",
                                         "length-spread",
                                         "text",
                                         "stop-at-eos",
                                         "prefixes",
                                         "prefix-tokens",
                                         "system-tokens",
                                         "turns",
                                         "think-s",
                                         "chunk-pool",
                                         "chunks",
                                         "chunk-tokens",
                                         "trace",
                                         "trace-block-tokens",
                                         "swing-ratio",
                                         "swing-period-s",
                                         "slo"};

// A text of the reports, which are not trusted.
std::string Shown(const std::string& text) { return absl::CHexEscape(text.substr(0, 60)); }

const char* Verdict(const FigureDifference& difference) {
  if (!difference.a || !difference.b) return "not compared";
  if (!difference.has_interval()) {
    return *difference.a == *difference.b ? "equal" : "different; no interval";
  }
  if (!difference.is_clear()) return "no clear difference";
  return (difference.low > 0) == difference.higher_is_better ? "better" : "worse";
}

}  // namespace

absl::StatusOr<ReportSamples> ParseReport(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json bench =
      json.is_object() ? json.value("bench", nlohmann::json()) : nlohmann::json();
  if (bench != "load" && bench != "simulate") {
    return ReportFault("the file",
                       "a report that `baton bench --json FILE`, or `baton simulate --json FILE`, "
                       "wrote");
  }
  const auto samples = json.find("samples");
  if (samples == json.end() || !samples->is_object()) return ReportFault("samples", "an object");
  const auto duration = json.find("duration_s");
  if (duration == json.end() || !duration->is_number())
    return ReportFault("duration_s", "a number");
  ReportSamples out;
  out.valid = json.value("valid", nlohmann::json()) != false;
  const nlohmann::json seed = json.value("seed", nlohmann::json());
  if (seed.is_number_unsigned()) out.seed = seed.get<uint64_t>();
  const nlohmann::json objectives = json.value("objectives", nlohmann::json());
  out.has_objectives = objectives.is_string() && !objectives.get<std::string>().empty();
  out.duration_s = duration->get<double>();
  const nlohmann::json settings = json.value("settings", nlohmann::json::object());
  for (const auto& [name, value] : settings.items()) {
    if (value.is_string()) out.settings[name] = value.get<std::string>();
  }
  const auto ok = samples->find("ok");
  const size_t count = ok != samples->end() && ok->is_array() ? ok->size() : 0;
  if (count == 0 || count > kMaxReportRequests) {
    return ReportFault("samples.ok", StrCat("a list of 1 to ", kMaxReportRequests, " values"));
  }
  RETURN_IF_ERROR(ReadFlags(*samples, "ok", count, out.ok));
  RETURN_IF_ERROR(ReadFlags(*samples, "good", count, out.good));
  RETURN_IF_ERROR(ReadOptionalNumbers(*samples, "ttft_ms", count, out.ttft_ms));
  RETURN_IF_ERROR(ReadOptionalNumbers(*samples, "tpot_ms", count, out.tpot_ms));
  RETURN_IF_ERROR(ReadOptionalNumbers(*samples, "e2e_ms", count, out.e2e_ms));
  RETURN_IF_ERROR(ReadNumbers(*samples, "output_tokens", count, out.output_tokens));
  RETURN_IF_ERROR(ReadNumbers(*samples, "prompt_tokens", count, out.prompt_tokens));
  RETURN_IF_ERROR(ReadNumbers(*samples, "cached_tokens", count, out.cached_tokens));
  RETURN_IF_ERROR(ReadGaps(*samples, count, out.itl_ms));
  return out;
}

std::vector<FigureDifference> CompareReports(const ReportSamples& a, const ReportSamples& b) {
  const size_t draws =
      std::clamp<size_t>(kDrawnValues / (ValueCount(a) + ValueCount(b) + 1), 200, 1000);
  const std::vector<ComparedFigure> figures = ComparedFigures();
  std::vector<FigureDifference> out;
  for (const ComparedFigure& figure : figures) {
    out.push_back({.name = figure.name,
                   .unit = figure.unit,
                   .a = figure.of(a, AllRequests(a)),
                   .b = figure.of(b, AllRequests(b)),
                   .higher_is_better = figure.higher_is_better});
  }
  std::vector<std::vector<double>> drawn(figures.size());
  SeededRandom random(MixBits(a.seed) ^ b.seed);
  for (size_t draw = 0; draw < draws; ++draw) {
    const Picks from_a = DrawRequests(a, random);
    const Picks from_b = DrawRequests(b, random);
    for (size_t i = 0; i < figures.size(); ++i) {
      if (!out[i].a || !out[i].b) continue;
      const std::optional<double> of_a = figures[i].of(a, from_a);
      const std::optional<double> of_b = figures[i].of(b, from_b);
      if (of_a && of_b) drawn[i].push_back(*of_b - *of_a);
    }
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    if (drawn[i].empty()) continue;
    out[i].low = QuantileOf(drawn[i], 0.025);
    out[i].high = QuantileOf(drawn[i], 0.975);
  }
  return out;
}

std::vector<std::string> ComparisonWarnings(const ReportSamples& a, const ReportSamples& b) {
  std::vector<std::string> out;
  if (!a.valid) out.emplace_back("report A is not valid");
  if (!b.valid) out.emplace_back("report B is not valid");
  for (const char* name : kLoadSettings) {
    const auto in_a = a.settings.find(name), in_b = b.settings.find(name);
    const bool has_a = in_a != a.settings.end(), has_b = in_b != b.settings.end();
    if (has_a == has_b && (!has_a || in_a->second == in_b->second)) continue;
    out.push_back(StrCat("the loads differ: ", name, " is ",
                         has_a ? Shown(in_a->second) : "not set", " in A and ",
                         has_b ? Shown(in_b->second) : "not set", " in B"));
  }
  if (a.seed != b.seed) {
    out.push_back(StrCat("the loads differ: the seed is ", a.seed, " in A and ", b.seed, " in B"));
  }
  return out;
}

nlohmann::ordered_json ComparisonJson(const ReportSamples& a, const ReportSamples& b,
                                      const std::vector<FigureDifference>& differences) {
  using Json = nlohmann::ordered_json;
  const Json conditions = ComparisonWarnings(a, b);
  Json figures = Json::array();
  for (const FigureDifference& difference : differences) {
    const bool both = difference.a && difference.b;
    const auto number = [](const std::optional<double>& value) {
      return value ? Json(*value) : Json();
    };
    Json figure = {
        {"name", difference.name},
        {"value", both ? Json(*difference.b - *difference.a) : Json()},
        {"unit", difference.unit},
        {"limit", nullptr},
        {"ratio", both && *difference.a != 0 ? Json(*difference.b / *difference.a) : Json()},
        {"a", number(difference.a)},
        {"b", number(difference.b)},
        {"low", difference.has_interval() ? Json(difference.low) : Json()},
        {"high", difference.has_interval() ? Json(difference.high) : Json()},
        {"verdict", Verdict(difference)}};
    if (!both) figure["absent"] = "not measured: a report does not have it";
    figures.push_back(std::move(figure));
  }
  return {{"bench", "load_compare"},
          {"seed", a.seed},
          {"conditions", conditions},
          {"figures", figures}};
}

std::string ComparisonTable(const std::vector<std::string>& warnings,
                            const std::vector<FigureDifference>& differences) {
  std::string out;
  for (const std::string& warning : warnings) absl::StrAppend(&out, "warning: ", warning, "\n");
  absl::StrAppendFormat(&out, "%-22s %12s %12s %12s   %-26s %s\n", "figure", "A", "B", "B - A",
                        "95 % interval", "B is");
  for (const FigureDifference& difference : differences) {
    if (!difference.a || !difference.b) {
      absl::StrAppendFormat(&out, "%-22s %s\n", difference.name, Verdict(difference));
      continue;
    }
    absl::StrAppendFormat(&out, "%-22s %12.4g %12.4g %+12.4g   %-26s %s\n", difference.name,
                          *difference.a, *difference.b, *difference.b - *difference.a,
                          difference.has_interval()
                              ? absl::StrFormat("%+.4g to %+.4g", difference.low, difference.high)
                              : "none",
                          Verdict(difference));
  }
  return out;
}

}  // namespace baton
