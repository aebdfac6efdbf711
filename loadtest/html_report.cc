#include "loadtest/html_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadtest/load_report.h"
#include "loadtest/svg_chart.h"

namespace baton {
namespace {

constexpr char kPageBegin[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Baton load test</title>
<style>
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--grid:#d9dde2;--bad:#b3261e;
--c0:#2a6fdb;--c1:#c2571a;--c2:#2e8540;--c3:#8a3ffc;--c4:#ad7f00;--c5:#007d79;--c6:#a2191f;--c7:#6f6f6f;--c8:#d02670}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#16191d;--grid:#3a4048;--bad:#ff8a80;
--c0:#78a9ff;--c1:#ff9d57;--c2:#6fdc8c;--c3:#be95ff;--c4:#f1c21b;--c5:#3ddbd9;--c6:#ff8389;--c7:#a8a8a8;--c8:#ff7eb6}}
body{font:16px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:0 auto;padding:1rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:1rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}svg text{font-size:12px;fill:var(--ink)}
.grid{stroke:var(--grid)}.mark{stroke:var(--bad);stroke-dasharray:4 3}path{fill:none;stroke-width:2}
table{border-collapse:collapse;margin:.5rem 0;display:block;overflow-x:auto}th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left}.legend{list-style:none;padding:0;margin:.2rem 0;display:flex;flex-wrap:wrap;gap:.2rem 1rem}
.legend span{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem}.bad{color:var(--bad);font-weight:600}
)";

std::string SeriesStyles() {
  std::string out;
  for (int i = 0; i < 9; ++i) {
    absl::StrAppendFormat(
        &out, ".s%d{stroke:var(--c%d)}.b%d{fill:var(--c%d);background:var(--c%d)}", i, i, i, i, i);
  }
  return out;
}

std::string HtmlRow(const std::vector<std::string>& cells, const char* cell = "td") {
  std::string out = "<tr>";
  for (const std::string& text : cells) {
    absl::StrAppend(&out, "<", cell, ">", HtmlEscaped(text), "</", cell, ">");
  }
  return absl::StrCat(out, "</tr>\n");
}

// The distribution function of `values`, which get sorted.
ChartSeries CumulativeSeries(const std::string& name, std::vector<double>& values) {
  ChartSeries series = {.name = name, .points = {}, .steps = true, .dots = false};
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    series.points.emplace_back(values[i], static_cast<double>(i + 1) / count);
  }
  return series;
}

std::string DistributionChart(const std::string& name, std::vector<double> values,
                              const std::optional<double>& objective_ms) {
  ChartOptions options = {.title = absl::StrCat(name, ": share of values up to"),
                          .x_label = "milliseconds (logarithmic)",
                          .y_label = "share",
                          .log_x = true,
                          .x_marks = {}};
  if (objective_ms) options.x_marks.emplace_back(*objective_ms, "objective");
  return LineChart(options, {CumulativeSeries(name, values)});
}

std::string DistributionCharts(const LoadResult& result) {
  std::vector<double> ttft;
  std::vector<double> gaps;
  std::vector<double> tpot;
  std::vector<double> e2e;
  for (const RequestRecord& record : result.records) {
    if (record.outcome != RequestOutcome::kWhole) continue;
    ttft.push_back(record.ttft_ms());
    e2e.push_back(record.e2e_ms());
    if (record.has_tpot()) tpot.push_back(record.tpot_ms());
    for (const int32_t gap_us : record.gaps_us) gaps.push_back(gap_us / 1000.0);
  }
  const ServiceObjectives& slo = result.objectives;
  return absl::StrCat("<section><h2>Distributions</h2><div class=\"charts\">",
                      DistributionChart("Time to first token", std::move(ttft), slo.ttft_ms),
                      DistributionChart("Between messages (ITL)", std::move(gaps), slo.itl_ms),
                      DistributionChart("Time per output token", std::move(tpot), slo.tpot_ms),
                      DistributionChart("Whole answer", std::move(e2e), slo.e2e_ms),
                      "</div></section>\n");
}

std::string TimelineCharts(const LoadResult& result) {
  ChartSeries p50 = {.name = "p50", .points = {}, .steps = false, .dots = false};
  ChartSeries p99 = {.name = "p99", .points = {}, .steps = false, .dots = false};
  ChartSeries sent = {.name = "sent", .points = {}, .steps = false, .dots = false};
  ChartSeries ok = {.name = "ok", .points = {}, .steps = false, .dots = false};
  ChartSeries bad = {.name = "refused or failed", .points = {}, .steps = false, .dots = false};
  ChartSeries tokens = {.name = "output tokens", .points = {}, .steps = false, .dots = false};
  for (TimelinePart& part : TimelineOf(result.records)) {
    const double at = part.begin_s + part.length_s / 2;
    const auto per_s = [&part](int64_t count) {
      return static_cast<double>(count) / part.length_s;
    };
    sent.points.emplace_back(at, per_s(part.sent));
    ok.points.emplace_back(at, per_s(part.whole));
    bad.points.emplace_back(at, per_s(part.refused + part.failed));
    tokens.points.emplace_back(at, per_s(part.output_tokens));
    if (part.ttft_ms.empty()) continue;
    p50.points.emplace_back(at, QuantileOf(part.ttft_ms, 0.5));
    p99.points.emplace_back(at, QuantileOf(part.ttft_ms, 0.99));
  }
  const auto chart = [](const char* title, const char* unit,
                        const std::vector<ChartSeries>& series) {
    return LineChart({.title = title,
                      .x_label = "seconds since the first request",
                      .y_label = unit,
                      .log_x = false,
                      .x_marks = {}},
                     series);
  };
  return absl::StrCat("<section><h2>Timeline</h2><div class=\"charts\">",
                      chart("Time to first token, by intended send", "milliseconds", {p50, p99}),
                      chart("Requests", "requests/s", {sent, ok, bad}),
                      chart("Output tokens of ended answers", "tokens/s", {tokens}),
                      "</div></section>\n");
}

// Of a rate search: goodput at each rate. Otherwise the goodput that a bound on the time to first
// token gives.
std::string GoodputCurve(const LoadResult& result, const LoadSummary& summary) {
  std::string chart;
  if (!result.rate_steps.empty()) {
    std::vector<RateStep> steps = result.rate_steps;
    std::sort(steps.begin(), steps.end(),
              [](const RateStep& a, const RateStep& b) { return a.rate_per_s < b.rate_per_s; });
    ChartSeries share = {
        .name = "share of good requests", .points = {}, .steps = false, .dots = true};
    for (const RateStep& step : steps) {
      if (!step.is_valid) continue;
      const auto requests = static_cast<double>(std::max<int64_t>(1, step.requests));
      share.points.emplace_back(step.rate_per_s, static_cast<double>(step.good) / requests);
    }
    ChartOptions options = {.title = "Share of good requests at each tried rate",
                            .x_label = "requests/s (logarithmic)",
                            .y_label = "share",
                            .log_x = true,
                            .x_marks = {}};
    if (result.max_rate) options.x_marks.emplace_back(result.max_rate->rate_per_s, "holds");
    chart = LineChart(options, {share});
  } else {
    std::vector<double> ttft;
    for (const RequestRecord& record : result.records) {
      if (record.outcome == RequestOutcome::kWhole) ttft.push_back(record.ttft_ms());
    }
    ChartSeries goodput = CumulativeSeries("goodput", ttft);
    for (auto& point : goodput.points) {
      point.second = summary.PerSecond(point.second * static_cast<double>(ttft.size()));
    }
    ChartOptions options = {.title = "Goodput if the time to first token were bounded",
                            .x_label = "bound in milliseconds (logarithmic)",
                            .y_label = "requests/s",
                            .log_x = true,
                            .x_marks = {}};
    if (result.objectives.ttft_ms)
      options.x_marks.emplace_back(*result.objectives.ttft_ms, "objective");
    chart = LineChart(options, {goodput});
  }
  return absl::StrCat("<section><h2>Goodput</h2><div class=\"charts\">", chart,
                      "</div></section>\n");
}

// The parts of the time to the first token in Baton's ledger, in their order.
constexpr std::array<std::pair<const char*, const char*>, 7> kLedgerParts = {
    {{"tokenize_us", "tokenise"},
     {"route_us", "route"},
     {"pull_us", "prefix pull"},
     {"queue_us", "queue"},
     {"prefill_us", "prefill"},
     {"kv_exposed_us", "KV transfer"},
     {"admit_us", "admit"}}};

// One bar. What the ledger's parts leave of the measured time is the rest: network, client, and
// work between the parts.
std::optional<BarRow> LedgerRow(const std::string& name, const RequestRecord& record) {
  const std::map<std::string, int64_t> ledger(record.ledger.begin(), record.ledger.end());
  BarRow row = {.name = name, .parts = {}};
  double sum = 0;
  const double waited = record.late_ms();
  if (waited > 0) row.parts.push_back({.name = "sent late", .value = waited});
  sum += std::max(0.0, waited);
  bool has_parts = false;
  for (const auto& [key, label] : kLedgerParts) {
    const auto at = ledger.find(key);
    if (at == ledger.end()) continue;
    has_parts = true;
    const double value = std::max(0.0, static_cast<double>(at->second) / 1000);
    row.parts.push_back({.name = label, .value = value});
    sum += value;
  }
  if (!has_parts) return std::nullopt;
  row.parts.push_back({.name = "rest", .value = std::max(0.0, record.ttft_ms() - sum)});
  return row;
}

std::string LedgerWaterfall(const LoadResult& result) {
  std::vector<const RequestRecord*> whole;
  for (const RequestRecord& record : result.records) {
    if (record.outcome == RequestOutcome::kWhole && !record.ledger.empty())
      whole.push_back(&record);
  }
  std::string out = "<section><h2>Where the first token's time went</h2>";
  if (whole.empty()) {
    return absl::StrCat(out, "<p>The target sent no ledger.</p></section>\n");
  }
  std::sort(whole.begin(), whole.end(), [](const RequestRecord* a, const RequestRecord* b) {
    return a->ttft_ms() < b->ttft_ms();
  });
  std::vector<BarRow> rows;
  for (const double q : {0.1, 0.5, 0.9, 0.99, 1.0}) {
    const RequestRecord& record = *whole[QuantileIndex(whole.size(), q)];
    const std::string name = absl::StrFormat("p%g: request %d", q * 100, record.number);
    if (std::optional<BarRow> row = LedgerRow(name, record)) rows.push_back(std::move(*row));
  }
  return absl::StrCat(out,
                      StackedBars("Requests at quantiles of the time to first token", "ms", rows),
                      "</section>\n");
}

std::string FiguresTable(const LoadResult& result, const LoadSummary& summary) {
  std::string out = "<section><h2>Figures</h2><table>\n";
  absl::StrAppend(&out, HtmlRow({"figure", "value", "unit"}, "th"));
  const auto figures = FiguresJson(result, summary);
  for (const auto& figure : figures["figures"]) {
    const bool measured = !figure["value"].is_null();
    absl::StrAppend(&out, HtmlRow({figure["name"].get<std::string>(),
                                   measured ? ShortNumber(figure["value"].get<double>())
                                            : figure["absent"].get<std::string>(),
                                   figure["unit"].get<std::string>()}));
  }
  return absl::StrCat(out, "</table></section>\n");
}

std::string ErrorsTable(const LoadSummary& summary) {
  if (summary.errors.empty()) return "";
  std::string out = "<section><h2>Errors</h2><table>\n";
  absl::StrAppend(&out, HtmlRow({"kind", "count", "example"}, "th"));
  for (const auto& [kind, count] : summary.errors) {
    absl::StrAppend(&out, HtmlRow({kind, absl::StrCat(count), summary.error_examples.at(kind)}));
  }
  return absl::StrCat(out, "</table></section>\n");
}

std::string SettingsTable(const LoadResult& result) {
  std::string out = "<section><h2>Settings</h2><table>\n";
  for (const auto& [name, value] : result.settings) absl::StrAppend(&out, HtmlRow({name, value}));
  absl::StrAppend(&out, HtmlRow({"seed", absl::StrCat(result.seed)}), "</table>\n");
  for (const std::string& condition : result.conditions) {
    absl::StrAppend(&out, "<p>", HtmlEscaped(condition), "</p>\n");
  }
  return absl::StrCat(out, "</section>\n");
}

}  // namespace

std::string HtmlReport(const LoadResult& result, const LoadSummary& summary) {
  std::string out =
      absl::StrCat(kPageBegin, SeriesStyles(), "</style></head><body>\n<h1>Baton load test</h1>\n");
  absl::StrAppendFormat(&out, "<p>%d answers ok, %d refused, %d failed in %.2f s.</p>\n",
                        summary.whole, summary.refused, summary.failed, summary.duration_s);
  for (const std::string& reason : summary.invalid_reasons) {
    absl::StrAppend(&out, "<p class=\"bad\">Not valid: ", HtmlEscaped(reason), "</p>\n");
  }
  absl::StrAppend(&out, FiguresTable(result, summary), DistributionCharts(result),
                  TimelineCharts(result), GoodputCurve(result, summary), LedgerWaterfall(result),
                  ErrorsTable(summary), SettingsTable(result), "</body></html>\n");
  return out;
}

}  // namespace baton
