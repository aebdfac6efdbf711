// A load test's report as one HTML file: distributions, timeline, goodput curve, ledger waterfall,
// settings and errors. It needs no script and loads nothing; its content security policy forbids
// both. Every string is escaped.
//
// Thread safety: pure function.
#pragma once

#include <string>

#include "loadtest/load_summary.h"

namespace baton {

std::string HtmlReport(const LoadResult& result, const LoadSummary& summary);

}  // namespace baton
