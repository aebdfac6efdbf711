// Converts the events of an answer from protobuf.
//
// Thread safety: pure functions.
#pragma once

#include <optional>

#include "baton/v1/inference.pb.h"
#include "requests/answer_events.h"

namespace baton {

// Returns nothing for an event of a newer protocol.
std::optional<AnswerEvent> AnswerEventFromWire(const v1::GenerateResponse& wire);

}  // namespace baton
