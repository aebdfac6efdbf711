// `baton inspect metrics`: lists the metrics that routers and workers have.
#include <memory>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "metrics/metric_document.h"

namespace baton {
namespace {

constexpr size_t kColumns = 100;

}  // namespace

void AddMetricsCommand(CommandLine& inspect) {
  CommandLine& metrics =
      inspect.AddCommand("metrics", "List the metrics of routers and workers, with their meaning");
  auto markdown = std::make_shared<bool>(false);
  metrics.AddFlag("--markdown", markdown.get(), "Print docs/METRICS.md");
  metrics.OnRun([markdown] {
    const std::string text = *markdown ? MetricsMarkdown() : MetricsText(kColumns);
    return PrintResult(text) ? kExitSuccess : kExitFailed;
  });
}

}  // namespace baton
