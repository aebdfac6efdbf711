// The client's side of a Generate call, whatever protocol the client speaks. GenerateCall answers
// through a ClientStream and hears of its client as a ClientListener; an edge implements the
// stream.
//
// Life: the stream holds its listener until the connection is done with the call, and lets it go
// then. The listener may outlive that: what it sends goes nowhere.
//
// Lock order: a listener's lock, then the stream's. A stream never calls its listener from within
// Send or End.
//
// Thread safety: every function, from any thread.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"

namespace baton {

class ClientStream {
 public:
  virtual ~ClientStream() = default;

  // Queues an event; never blocks. False once the stream has ended, the client is gone, or it has
  // left more unread than the edge allows: the stream has then ended with ResourceExhausted.
  virtual bool Send(const v1::GenerateResponse& event) = 0;

  // Ends the stream behind what is queued. The first call counts.
  virtual void End(const absl::Status& status) = 0;
};

class ClientListener {
 public:
  virtual ~ClientListener() = default;

  // The client cancelled, its deadline passed, or its connection broke. Comes once, or not at all
  // when the stream ended before.
  virtual void OnClientGone() = 0;

  // The edge ends the call, and the client is told `status`: the router shuts down, or the client's
  // request cannot be read.
  virtual void CallOff(absl::Status status) = 0;
};

}  // namespace baton
