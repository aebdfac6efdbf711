// Settings of traces, the same for all programs.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <string>

#include "common/settings.h"

namespace baton {

struct TracingOptions {
  std::string otlp_endpoint;  // HOST:PORT of a collector; empty: off
  double sample = 1;          // share of the traces that begin in this program
};
void RegisterSettings(TracingOptions& options, SettingList& settings);

}  // namespace baton
