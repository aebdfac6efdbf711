// Ending a process on SIGINT or SIGTERM: the first asks for a clean end, the second ends at once.
//
// Create one before any other thread starts, so that every thread inherits the blocked signals and
// only Wait sees them.
//
// Thread safety: one thread waits; Request from any thread.
#pragma once

#include <atomic>

namespace baton {

class Termination {
 public:
  // Blocks SIGINT and SIGTERM in this thread and all threads that it starts.
  Termination();

  // Returns the signal's number, or 0 after Request, or -1 when `timeout_ms` passed first
  // (negative: waits for ever). After a signal was returned, the next one kills the process.
  int Wait(int timeout_ms = -1);

  // Ends Wait from another thread, as if a signal had come.
  void Request();

 private:
  std::atomic<bool> requested_{false};
};

// Undoes the blocking for a child process (between fork and exec, or in a thread of its own).
void UnblockTerminationSignals();

}  // namespace baton
