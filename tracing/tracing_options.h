// Settings of traces, the same for all programs.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <string>

#include "common/settings.h"

namespace baton {

struct TracingOptions {
  std::string otlp_endpoint = {};     // [http://]HOST:PORT, or https://HOST:PORT; empty: off
  std::string otlp_authorities = {};  // empty: the system's
  std::string otlp_certificate = {};  // of this program; empty: none
  std::string otlp_key = {};          // empty: it is in the file of the certificate
  double sample = 1;                  // share of the traces that begin in this program
};
void RegisterSettings(TracingOptions& options, SettingList& settings);

}  // namespace baton
