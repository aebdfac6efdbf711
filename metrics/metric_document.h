// The document about all metrics, for docs/METRICS.md and `baton inspect metrics`.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>

namespace baton {

// Returns the Markdown text of docs/METRICS.md.
std::string MetricsMarkdown();
// Returns the table of metrics for a terminal of this many columns.
std::string MetricsText(size_t columns);

}  // namespace baton
