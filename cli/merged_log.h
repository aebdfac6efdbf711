// One log of several writers. Each line that a writer writes to its pipe appears in the output at
// once, after the writer's name. Text from before a writer's death is not lost, even half a line.
//
//   router     | listening 127.0.0.1:8090
//   prefill-0  | ready 127.0.0.1:40123
//
// A line is printed with one write (a long one with several, one after the other), so that lines do
// not mix. If a writer does not end its line, up to kMaxLineBytes are stored and then printed as a
// line. An output that accepts no data blocks the writers, but not the end: Finish drops the text
// that it cannot print within kFinishWaitMs.
//
// Thread safety: all functions on one thread. The log reads and prints on its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

class MergedLog {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;
  static constexpr int kFinishWaitMs = 2000;

  // Internal if no pipe can be created. `output` is a file descriptor that stays open.
  static absl::StatusOr<std::unique_ptr<MergedLog>> Create(int output);
  // Calls Finish.
  ~MergedLog();

  // Returns the end of a pipe for writing. The caller closes it after the writer has its own copy.
  absl::StatusOr<int> AddWriter(const std::string& name);

  // Prints the rest and returns when every writer has closed its pipe, as a process does when it
  // ends. REQUIRES: no AddWriter afterwards. Idempotent.
  void Finish();

 private:
  struct Writer {
    std::string name;
    std::string prefix;
    int input = -1;
    std::string pending;  // an incomplete line
  };

  explicit MergedLog(int output) : output_(output) {}
  void Run();
  void TakeNewWriters();
  // Returns false if the writer has closed its end.
  bool Read(Writer& writer);
  void Print(const Writer& writer, std::string_view line);
  // Waits until the output takes PIPE_BUF bytes. Returns false if the wait limit is reached.
  bool WaitForRoom();

  const int output_;
  int wake_read_ = -1;  // wakes the thread when it is written to or closed
  int wake_write_ = -1;
  std::mutex mutex_;
  std::vector<Writer> new_writers_;  // guarded by mutex_
  std::vector<Writer> writers_;      // only the thread uses it
  std::atomic<bool> finishing_ = false;
  int finish_waited_ms_ = 0;  // only the thread uses it
  std::thread thread_;
};

}  // namespace baton
