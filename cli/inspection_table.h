// Formats an engine's inspection as text: op path, pool accounting, block tables, allocation trace.
// The text shows that paging is in use.
#pragma once

#include <string>

#include "engine/engine.h"

namespace baton {

std::string InspectionTable(const EngineInspection& inspection);

}  // namespace baton
