// Ends a process on SIGINT or SIGTERM. The first signal asks for a clean end; the second kills the
// process.
//
// Create the Termination before any other thread starts. All threads then inherit the blocked
// signals, and only Wait() receives them.
//
// Thread safety: one thread waits; Request from any thread.
#pragma once

#include <atomic>

namespace baton {

class Termination {
 public:
  // Blocks SIGINT and SIGTERM in this thread and all threads that it starts.
  Termination();

  // Returns the signal's number, 0 after Request(), or -1 after `timeout_ms` (negative: no
  // timeout). After Wait() has returned a signal, the next signal kills the process.
  int Wait(int timeout_ms = -1);

  // Makes Wait() return from another thread, as if a signal had come.
  void Request();

 private:
  std::atomic<bool> requested_{false};
};

// Unblocks the signals for a child process. Call it between fork and exec, or in a thread of its
// own.
void UnblockTerminationSignals();

}  // namespace baton
