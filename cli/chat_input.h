// Input of `baton chat`.
//
// Thread safety: belongs to one thread; Interrupt from any.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/input_file.h"
#include "cli/jobs.h"
#include "cli/line_editor.h"

namespace baton {

// Limit of a typed line with its pastes.
inline constexpr size_t kMaxTypedBytes = 1 << 20;

// Returns baton/chat_history in $XDG_STATE_HOME, or else in ~/.local/state; empty without a home
// folder.
std::string DefaultHistoryFile();

// Reads lines, with editing at a terminal. Reads a file, a pipe or a terminal without escape
// sequences without editing.
class ChatInput {
 public:
  // `colours`, `history_file`: those of LineEditor.
  ChatInput(bool colours, const std::string& history_file);

  bool is_terminal() const { return editor_.has_value(); }
  size_t max_line_bytes() const { return is_terminal() ? kMaxTypedBytes : kMaxJobLineBytes; }
  // kFailed only occurs with a file; status() has the reason.
  enum class Read : uint8_t { kLine, kTooLong, kInterrupted, kEnd, kFailed };
  Read Next(std::string& line);
  const absl::Status& status() const { return file_.status(); }
  // Returns true if the terminal was closed. This can be visible before SIGHUP arrives.
  bool TerminalIsGone() const { return is_terminal() && isatty(STDIN_FILENO) == 0; }
  // Ends a Next at a terminal. Returns false if the input has no editor. Any thread may call it.
  bool Interrupt() {
    if (editor_) editor_->Interrupt();
    return editor_.has_value();
  }

 private:
  std::optional<LineEditor> editor_;
  InputFile file_ = InputFile::StandardInput();
};

}  // namespace baton
