#include "cli/merged_log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

absl::Status NoPipe() {
  return absl::InternalError(absl::StrCat("cannot create a pipe: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MergedLog>> MergedLog::Create(int output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NoPipe();
  std::unique_ptr<MergedLog> log(new MergedLog(output));
  log->wake_read_ = ends[0];
  log->wake_write_ = ends[1];
  log->thread_ = std::thread([raw = log.get()] { raw->Run(); });
  return log;
}

MergedLog::~MergedLog() {
  Finish();
  close(wake_read_);
}

absl::StatusOr<int> MergedLog::AddWriter(const std::string& name) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NoPipe();
  {
    std::lock_guard lock(mutex_);
    new_writers_.push_back({.name = name,
                            .prefix = absl::StrFormat("%-10s | ", name),
                            .input = ends[0],
                            .pending = ""});
  }
  while (write(wake_write_, "w", 1) < 0 && errno == EINTR) continue;
  return ends[1];
}

void MergedLog::Finish() {
  if (!thread_.joinable()) return;
  finishing_.store(true);
  close(wake_write_);
  thread_.join();
}

void MergedLog::Run() {
  sigset_t broken_pipe;  // a log without readers must not end this process
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  bool finishing = false;
  std::vector<pollfd> polled;
  while (!finishing || !writers_.empty()) {
    polled.clear();
    for (const Writer& writer : writers_) {
      polled.push_back({.fd = writer.input, .events = POLLIN, .revents = 0});
    }
    if (!finishing) polled.push_back({.fd = wake_read_, .events = POLLIN, .revents = 0});
    if (poll(polled.data(), polled.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (size_t i = writers_.size(); i-- > 0;) {
      if (polled[i].revents == 0 || Read(writers_[i])) continue;
      close(writers_[i].input);
      writers_.erase(writers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (finishing || polled.back().revents == 0) continue;
    char wakes[64];
    const ssize_t count = read(wake_read_, wakes, sizeof(wakes));
    finishing = count == 0;
    TakeNewWriters();
  }
}

void MergedLog::TakeNewWriters() {
  std::lock_guard lock(mutex_);
  writers_.insert(writers_.end(), std::make_move_iterator(new_writers_.begin()),
                  std::make_move_iterator(new_writers_.end()));
  new_writers_.clear();
}

bool MergedLog::Read(Writer& writer) {
  char buffer[4096];
  const ssize_t count = read(writer.input, buffer, sizeof(buffer));
  if (count < 0) return errno == EINTR;
  writer.pending.append(buffer, static_cast<size_t>(count));
  std::string_view left = writer.pending;
  for (size_t end; (end = left.find('\n')) != std::string_view::npos;) {
    Print(writer, left.substr(0, end));
    left.remove_prefix(end + 1);
  }
  const bool ended = count == 0;
  if (left.size() >= kMaxLineBytes || (ended && !left.empty())) {
    Print(writer, left);
    left = {};
  }
  writer.pending.erase(0, writer.pending.size() - left.size());
  return !ended;
}

void MergedLog::Print(const Writer& writer, std::string_view line) {
  std::string text = writer.prefix;
  text += line;
  text += '\n';
  for (size_t done = 0; done < text.size();) {
    if (!WaitForRoom()) return;
    // A pipe with room takes PIPE_BUF bytes without blocking, even if another process has made it
    // non-blocking.
    const size_t most = std::min<size_t>(text.size() - done, PIPE_BUF);
    const ssize_t count = write(output_, text.data() + done, most);
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return;  // the log no longer has a reader
  }
}

bool MergedLog::WaitForRoom() {
  constexpr int kSliceMs = 100;
  while (true) {
    pollfd output = {.fd = output_, .events = POLLOUT, .revents = 0};
    const bool given_up = finish_waited_ms_ >= kFinishWaitMs;
    const int ready = poll(&output, 1, given_up ? 0 : kSliceMs);
    if (ready > 0) return true;  // room, or an error that write will report
    if (given_up || (ready < 0 && errno != EINTR)) return false;
    if (!finishing_.load()) continue;
    finish_waited_ms_ += kSliceMs;
  }
}

}  // namespace baton
