// An engine's inspection as text for people: op path, pool accounting, block tables, allocation
// trace. It proves that paging is in use.
#pragma once

#include <string>

#include "engine/engine.h"

namespace baton {

std::string InspectionTable(const EngineInspection& inspection);

}  // namespace baton
