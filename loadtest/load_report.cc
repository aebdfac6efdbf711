#include "loadtest/load_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSampledGaps = 1'000'000;  // about 6 MB of JSON

Json FigureJson(const char* name, std::optional<double> value, const char* unit,
                const std::string& absent) {
  Json figure = {
      {"name", name}, {"value", nullptr}, {"unit", unit}, {"limit", nullptr}, {"ratio", nullptr}};
  if (value) {
    figure["value"] = *value;
  } else {
    figure["absent"] = absl::StrCat("not measured: ", absent);
  }
  return figure;
}

std::optional<double> If(bool measured, double value) {
  return measured ? std::optional(value) : std::nullopt;
}

Json FigureListJson(const LoadResult& result, const LoadSummary& summary) {
  Json figures = Json::array();
  const auto add = [&](const char* name, std::optional<double> value, const char* unit,
                       const std::string& absent = "no whole answer") {
    figures.push_back(FigureJson(name, value, unit, absent));
  };
  const bool has_objectives = !result.objectives.empty();
  const auto good = static_cast<double>(summary.good);
  add("ttft_p50_ms", If(summary.ttft_ms.count > 0, summary.ttft_ms.p50), "ms");
  add("ttft_p99_ms", If(summary.ttft_ms.count > 0, summary.ttft_ms.p99), "ms");
  const std::string one_message = "no answer had two messages with content";
  add("itl_p50_ms", If(summary.itl_ms.count > 0, summary.itl_ms.p50), "ms", one_message);
  add("itl_p99_ms", If(summary.itl_ms.count > 0, summary.itl_ms.p99), "ms", one_message);
  add("tpot_p50_ms", If(summary.tpot_ms.count > 0, summary.tpot_ms.p50), "ms",
      "no answer had two tokens");
  add("e2e_p99_ms", If(summary.e2e_ms.count > 0, summary.e2e_ms.p99), "ms");
  add("output_tokens_per_s", If(summary.whole > 0, summary.output_tokens_per_s), "tokens/s");
  add("goodput_per_s", If(has_objectives, summary.PerSecond(good)), "requests/s", "needs --slo");
  add("goodput_share",
      If(has_objectives && summary.requests() > 0,
         good / static_cast<double>(std::max<int64_t>(1, summary.requests()))),
      "1", "needs --slo");
  add("cached_token_share", summary.cached_token_share, "1", "the target does not tell it");
  add("requests_ok", static_cast<double>(summary.whole), "requests");
  add("requests_refused", static_cast<double>(summary.refused), "requests");
  add("requests_failed", static_cast<double>(summary.failed), "requests");
  add("max_rate_per_s",
      If(result.max_rate.has_value(), result.max_rate ? result.max_rate->rate_per_s : 0),
      "requests/s", result.max_rate_absent);
  if (result.max_rate) {
    figures.back()["confidence"] =
        ShareConfidence(result.max_rate->requests, result.max_rate->good, kRateTargetShare);
  }
  add("late_p99_ms", If(!result.closed && summary.late_ms.count > 0, summary.late_ms.p99), "ms",
      result.closed ? "closed arrivals have no lateness" : "no request was sent");
  add("harness_cpu_share", summary.harness_cpu_share, "1");
  for (const MoreFigure& figure : result.more_figures) {
    add(figure.name.c_str(), figure.value, figure.unit.c_str(), figure.absent);
  }
  return figures;
}

Json DistributionJson(const Distribution& distribution) {
  if (distribution.count == 0) return {{"count", 0}};
  return {{"count", distribution.count}, {"mean", distribution.mean}, {"p50", distribution.p50},
          {"p90", distribution.p90},     {"p95", distribution.p95},   {"p99", distribution.p99},
          {"max", distribution.max}};
}

Json ErrorsJson(const LoadSummary& summary) {
  Json errors = Json::array();
  for (const auto& [kind, count] : summary.errors) {
    errors.push_back(
        {{"kind", kind}, {"count", count}, {"example", summary.error_examples.at(kind)}});
  }
  return errors;
}

Json TimelineJson(const std::vector<RequestRecord>& records) {
  Json parts = Json::array();
  for (TimelinePart& part : TimelineOf(records)) {
    const bool has_ttft = !part.ttft_ms.empty();
    parts.push_back({{"begin_s", part.begin_s},
                     {"length_s", part.length_s},
                     {"sent", part.sent},
                     {"ok", part.whole},
                     {"refused", part.refused},
                     {"failed", part.failed},
                     {"output_tokens", part.output_tokens},
                     {"ttft_p50_ms", has_ttft ? Json(QuantileOf(part.ttft_ms, 0.5)) : Json()},
                     {"ttft_p99_ms", has_ttft ? Json(QuantileOf(part.ttft_ms, 0.99)) : Json()}});
  }
  return parts;
}

Json RatesJson(const LoadResult& result) {
  Json rates = Json::array();
  for (const RateStep& step : result.rate_steps) {
    rates.push_back({{"rate_per_s", step.rate_per_s},
                     {"requests", step.requests},
                     {"good", step.good},
                     {"valid", step.is_valid},
                     {"holds", step.holds()},
                     {"confirmation", step.is_confirmation},
                     {"confidence", ShareConfidence(step.requests, step.good, kRateTargetShare)}});
  }
  return rates;
}

// What `baton bench compare` needs: a value for each whole answer, in the order of intended sends.
// Of many gaps, only every n-th is kept.
Json SamplesJson(const LoadResult& result) {
  size_t gaps = 0;
  for (const RequestRecord& record : result.records) gaps += record.gaps_us.size();
  const size_t stride = 1 + gaps / kMaxSampledGaps;
  Json samples = {{"ttft_ms", Json::array()},       {"tpot_ms", Json::array()},
                  {"e2e_ms", Json::array()},        {"output_tokens", Json::array()},
                  {"prompt_tokens", Json::array()}, {"cached_tokens", Json::array()},
                  {"good", Json::array()},          {"ok", Json::array()},
                  {"itl_ms", Json::array()},        {"itl_stride", stride}};
  for (const RequestRecord& record : result.records) {
    const bool whole = record.outcome == RequestOutcome::kWhole;
    samples["ok"].push_back(whole);
    samples["good"].push_back(IsGood(record, result.objectives));
    samples["ttft_ms"].push_back(whole ? Json(record.ttft_ms()) : Json());
    samples["e2e_ms"].push_back(whole ? Json(record.e2e_ms()) : Json());
    samples["tpot_ms"].push_back(whole && record.has_tpot() ? Json(record.tpot_ms()) : Json());
    samples["output_tokens"].push_back(record.output_tokens);
    samples["prompt_tokens"].push_back(record.prompt_tokens);
    samples["cached_tokens"].push_back(record.cached_tokens);
    Json some = Json::array();
    for (size_t i = 0; whole && i < record.gaps_us.size(); i += stride) {
      some.push_back(record.gaps_us[i] / 1000.0);
    }
    samples["itl_ms"].push_back(std::move(some));
  }
  return samples;
}

const char* OutcomeName(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::kWhole:
      return "ok";
    case RequestOutcome::kRefused:
      return "refused";
    case RequestOutcome::kFailed:
      return "failed";
  }
  return "failed";
}

std::string DistributionRow(const char* name, const Distribution& d) {
  if (d.count == 0) return absl::StrFormat("%-22s %10s\n", name, "-");
  return absl::StrFormat("%-22s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %9d\n", name, d.mean,
                         d.p50, d.p90, d.p95, d.p99, d.max, d.count);
}

}  // namespace

Json FiguresJson(const LoadResult& result, const LoadSummary& summary) {
  return {{"bench", result.bench},
          {"seed", result.seed},
          {"conditions", result.conditions},
          {"valid", summary.invalid_reasons.empty()},
          {"invalid_reasons", summary.invalid_reasons},
          {"figures", FigureListJson(result, summary)}};
}

Json ReportJson(const LoadResult& result, const LoadSummary& summary) {
  Json report = FiguresJson(result, summary);
  Json settings = Json::object();
  for (const auto& [name, value] : result.settings) settings[name] = value;
  report["settings"] = std::move(settings);
  report["objectives"] = ObjectivesText(result.objectives);
  report["duration_s"] = summary.duration_s;
  report["distributions"] = {{"ttft_ms", DistributionJson(summary.ttft_ms)},
                             {"itl_ms", DistributionJson(summary.itl_ms)},
                             {"tpot_ms", DistributionJson(summary.tpot_ms)},
                             {"e2e_ms", DistributionJson(summary.e2e_ms)},
                             {"late_ms", DistributionJson(summary.late_ms)}};
  report["errors"] = ErrorsJson(summary);
  report["clipped"] = {{"requests", result.clipped.requests},
                       {"prompt_tokens", result.clipped.prompt_tokens},
                       {"output_tokens", result.clipped.output_tokens},
                       {"conversations", result.clipped.conversations}};
  report["timeline"] = TimelineJson(result.records);
  report["rates"] = RatesJson(result);
  report["samples"] = SamplesJson(result);
  return report;
}

Json RecordJson(const RequestRecord& record) {
  const auto ms = [](int64_t us) { return us < 0 ? Json() : Json(static_cast<double>(us) / 1000); };
  const bool whole = record.outcome == RequestOutcome::kWhole;
  Json json = {{"number", record.number},
               {"intended_ms", ms(record.intended_us)},
               {"sent_ms", ms(record.sent_us)},
               {"first_content_ms", ms(record.first_content_us)},
               {"last_content_ms", ms(record.last_content_us)},
               {"end_ms", ms(record.end_us)},
               {"outcome", OutcomeName(record.outcome)},
               {"late_ms", record.late_ms()},
               {"ttft_ms", record.first_content_us < 0 ? Json() : Json(record.ttft_ms())},
               {"tpot_ms", whole && record.has_tpot() ? Json(record.tpot_ms()) : Json()},
               {"e2e_ms", record.e2e_ms()},
               {"prompt_tokens", record.prompt_tokens},
               {"cached_tokens", record.cached_tokens < 0 ? Json() : Json(record.cached_tokens)},
               {"output_tokens", record.output_tokens}};
  if (record.conversation >= 0) {
    json["conversation"] = record.conversation;
    json["turn"] = record.turn;
  }
  if (!whole) json["error"] = {{"kind", record.error}, {"message", record.error_message}};
  Json gaps = Json::array();
  for (const int32_t gap_us : record.gaps_us) gaps.push_back(gap_us / 1000.0);
  json["itl_ms"] = std::move(gaps);
  if (record.ledger.empty()) return json;
  Json ledger = Json::object();
  for (const auto& [name, value] : record.ledger) ledger[name] = value;
  json["ledger"] = std::move(ledger);
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string LoadTable(const LoadResult& result, const LoadSummary& summary) {
  std::string out = absl::StrFormat("%-22s %10s %10s %10s %10s %10s %10s %9s\n", "milliseconds",
                                    "mean", "p50", "p90", "p95", "p99", "max", "count");
  absl::StrAppend(&out, DistributionRow("time to first token", summary.ttft_ms),
                  DistributionRow("between messages (ITL)", summary.itl_ms),
                  DistributionRow("per output token", summary.tpot_ms),
                  DistributionRow("whole answer", summary.e2e_ms));
  if (!result.closed) absl::StrAppend(&out, DistributionRow("sent late by", summary.late_ms));
  absl::StrAppendFormat(&out, "\n%d ok, %d refused, %d failed in %.2f s; %.1f output tokens/s",
                        summary.whole, summary.refused, summary.failed, summary.duration_s,
                        summary.output_tokens_per_s);
  if (result.cpu_seconds > 0) {  // else it was a simulation
    absl::StrAppendFormat(&out, "; load generator used %.1f %% of %d processors",
                          100 * summary.harness_cpu_share, result.processors);
  }
  out += '\n';
  if (!result.objectives.empty()) {
    absl::StrAppendFormat(&out, "%d of %d requests met %s: %.3f good requests/s\n", summary.good,
                          summary.requests(), ObjectivesText(result.objectives),
                          summary.PerSecond(static_cast<double>(summary.good)));
  }
  for (const auto& [kind, count] : summary.errors) {
    absl::StrAppendFormat(&out, "%d × %s: %s\n", count, kind, summary.error_examples.at(kind));
  }
  if (result.clipped.requests > 0 || result.clipped.conversations > 0) {
    absl::StrAppendFormat(&out,
                          "clipped to the context: %d requests by %d prompt tokens and %d output "
                          "tokens; %d conversations ended early\n",
                          result.clipped.requests, result.clipped.prompt_tokens,
                          result.clipped.output_tokens, result.clipped.conversations);
  }
  if (result.max_rate) {
    absl::StrAppendFormat(
        &out, "highest rate that holds: %.3f requests/s (%d of %d good; confidence %.1f %%)\n",
        result.max_rate->rate_per_s, result.max_rate->good, result.max_rate->requests,
        100 * ShareConfidence(result.max_rate->requests, result.max_rate->good, kRateTargetShare));
  } else if (!result.rate_steps.empty()) {
    absl::StrAppend(&out, "highest rate that holds: none; ", result.max_rate_absent, "\n");
  }
  for (const MoreFigure& figure : result.more_figures) {
    if (!figure.value) continue;
    absl::StrAppendFormat(&out, "%-28s %14.4g %s\n", figure.name, *figure.value,
                          figure.unit == "1" ? "" : figure.unit);
  }
  for (const std::string& condition : result.conditions) absl::StrAppend(&out, condition, "\n");
  for (const std::string& reason : summary.invalid_reasons) {
    absl::StrAppend(&out, "not valid: ", reason, "\n");
  }
  return out;
}

std::vector<TimelinePart> TimelineOf(const std::vector<RequestRecord>& records) {
  constexpr int64_t kMostParts = 60;
  if (records.empty()) return {};
  int64_t begin_us = records.front().intended_us;
  int64_t end_us = records.front().end_us;
  for (const RequestRecord& record : records) {
    begin_us = std::min(begin_us, record.intended_us);
    end_us = std::max(end_us, record.end_us);
  }
  const int64_t length_us =
      std::max<int64_t>(1, ((end_us - begin_us) / kMostParts + 1000) / 1000) * 1000;
  std::vector<TimelinePart> parts(static_cast<size_t>((end_us - begin_us) / length_us + 1));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].length_s = static_cast<double>(length_us) / 1e6;
    parts[i].begin_s = static_cast<double>(i) * parts[i].length_s;
  }
  for (const RequestRecord& record : records) {
    TimelinePart& sent = parts[static_cast<size_t>((record.intended_us - begin_us) / length_us)];
    TimelinePart& ended = parts[static_cast<size_t>((record.end_us - begin_us) / length_us)];
    ++sent.sent;
    switch (record.outcome) {
      case RequestOutcome::kWhole:
        sent.ttft_ms.push_back(record.ttft_ms());
        ++ended.whole;
        ended.output_tokens += record.output_tokens;
        break;
      case RequestOutcome::kRefused:
        ++ended.refused;
        break;
      case RequestOutcome::kFailed:
        ++ended.failed;
        break;
    }
  }
  return parts;
}

}  // namespace baton
