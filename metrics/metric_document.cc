#include "metrics/metric_document.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_format.h"
#include "common/str_cat.h"
#include "common/wrapped_text.h"
#include "metrics/metric_table.h"

namespace baton {
namespace {

constexpr std::string_view kHead = R"(# Metrics

Each program of Baton serves its metrics over HTTP if it gets `--metrics-listen HOST:PORT`:

| Path | Answers |
|---|---|
| `/metrics` | all metrics, in Prometheus's text format 0.0.4 |
| `/livez` | 200, or 503 while the engine hangs. Restart the process then |
| `/readyz` | 200 while the program can take requests: its model, and at a router its workers, are there, and it does not drain. Else 503 with the reason. Overload does not count |
| `/targets` | router only: the addresses of all programs' metrics, as Prometheus's `http_sd_configs` reads them |
| `/` | router only: status page, which reads `/status.json` |

A scrape configuration for a whole fleet needs only the router's address:

```yaml
scrape_configs:
  - job_name: baton
    http_sd_configs: [{url: "http://ROUTER:PORT/targets"}]
```

[deploy/alerts.yaml](../deploy/alerts.yaml) has alerts, [deploy/dashboard.json](../deploy/dashboard.json) a dashboard for Grafana.

Every series exists from the start, with the value 0. The number of series is fixed, because labels have only the values that the tables name.
Metrics of routers count requests of clients. Metrics of workers count the work of one engine. So a request that uses two workers counts once at
the router, and once at each worker.

`baton inspect metrics --markdown` prints this file. Its source is [metrics/metric_table.h](../metrics/metric_table.h).
)";

std::string LabelText(const MetricDeclaration& declaration) {
  std::string text;
  for (const MetricLabel& label : declaration.labels) {
    if (label.name.empty()) continue;
    if (!text.empty()) text += "; ";
    text += StrCat("`", label.name, "`");
    if (label.values.empty()) continue;
    if (label.values.data() == kStatusCodeNames.data()) {
      text += ": a status code";
      continue;
    }
    text += ": ";
    for (const std::string_view value : label.values) {
      text += StrCat(value, value == label.values.back() ? "" : ", ");
    }
  }
  return text;
}

std::string BucketText(const MetricDeclaration& declaration) {
  std::string text;
  for (const int64_t bound : declaration.buckets) {
    const double value = static_cast<double>(bound) / static_cast<double>(declaration.scale());
    text += StrCat(text.empty() ? "" : ", ", absl::StrFormat("%g", value));
  }
  return text;
}

void AddTable(std::string_view title, MetricPrograms programs, std::string& out) {
  out += StrCat("\n## ", title, "\n\n| Metric | Type | Unit | Labels | Meaning |\n",
                "|---|---|---|---|---|\n");
  for (const MetricDeclaration& declaration : MetricTable()) {
    if (ProgramsOf(declaration.id) != programs) continue;
    out += StrCat("| `", declaration.name, "` | ", MetricTypeName(declaration.type), " | ",
                  declaration.unit, " | ", LabelText(declaration), " | ", declaration.help);
    if (!declaration.buckets.empty()) out += StrCat(" Buckets: ", BucketText(declaration));
    out += " |\n";
  }
}

std::string Quoted(std::string_view name) { return name.empty() ? "" : StrCat("`", name, "`"); }

void AddNamesElsewhere(std::string& out) {
  out += R"(
## The same figures elsewhere

Gateways and dashboards that know other servers can read these metrics instead. For the Gateway API inference extension, give its endpoint picker
the names in the first column. Labels: vLLM's `num_gpu_blocks` and SGLang's `num_pages` are `num_blocks`; SGLang's `page_size` is `block_size`.

| Baton | Programs | vLLM | SGLang | Gateway API inference extension |
|---|---|---|---|---|
)";
  for (const MetricDeclaration& declaration : MetricTable()) {
    const MetricElsewhere& names = declaration.elsewhere;
    if (names.vllm.empty() && names.sglang.empty() && names.gateway.empty()) continue;
    const bool router = ProgramsOf(declaration.id) == MetricPrograms::kRouters;
    out += StrCat("| `", declaration.name, "` | ", router ? "routers" : "workers", " | ",
                  Quoted(names.vllm), " | ", Quoted(names.sglang), " | ", Quoted(names.gateway),
                  " |\n");
  }
}

}  // namespace

std::string MetricsMarkdown() {
  std::string out(kHead);
  AddTable("Every program", MetricPrograms::kAll, out);
  AddTable("Routers", MetricPrograms::kRouters, out);
  AddTable("Workers", MetricPrograms::kWorkers, out);
  AddNamesElsewhere(out);
  return out;
}

std::string MetricsText(size_t columns) {
  constexpr size_t kIndent = 2;
  const size_t width = std::max<size_t>(columns, 40) - kIndent;
  std::string out;
  for (const MetricDeclaration& declaration : MetricTable()) {
    std::string labels;
    for (const MetricLabel& label : declaration.labels) {
      if (!label.name.empty()) labels += StrCat(labels.empty() ? "{" : ",", label.name);
    }
    if (!labels.empty()) labels += "}";
    out += StrCat(declaration.name, labels, "  ", MetricTypeName(declaration.type));
    if (!declaration.unit.empty()) out += StrCat(", ", declaration.unit);
    out += StrCat("\n", std::string(kIndent, ' '), WrappedText(declaration.help, width, kIndent),
                  "\n");
  }
  return out;
}

}  // namespace baton
