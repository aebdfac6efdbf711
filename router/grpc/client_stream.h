// The client's side of a Generate call, independent of the client's protocol. GenerateCall sends
// its answer to a ClientStream and implements ClientListener. Each edge implements ClientStream.
//
// Life: the stream holds its listener until the connection is done with the call, then releases it.
// The listener may live longer. What it sends after that is dropped.
//
// Lock order: the listener's lock, then the stream's. A stream never calls its listener from within
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

  // Queues an event; never blocks. Returns false if the stream has ended, the client is gone, or
  // too many events are unread. In the last case the stream has ended with ResourceExhausted.
  virtual bool Send(const v1::GenerateResponse& event) = 0;

  // Ends the stream after the queued events. Later calls have no effect.
  virtual void End(const absl::Status& status) = 0;
};

class ClientListener {
 public:
  virtual ~ClientListener() = default;

  // The client cancelled, its deadline passed, or its connection broke. Called at most once, and
  // not after the stream has ended.
  virtual void OnClientGone() = 0;

  // The edge ends the call and the client gets `status`. Reasons: the router shuts down, or the
  // request cannot be parsed.
  virtual void CallOff(absl::Status status) = 0;
};

}  // namespace baton
