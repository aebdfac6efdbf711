#include "cli/chat_input.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"

namespace baton {

std::string DefaultHistoryFile() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return absl::StrCat(state, "/baton/chat_history");
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return absl::StrCat(home, "/.local/state/baton/chat_history");
}

ChatInput::ChatInput(bool colours, const std::string& history_file) {
  if (TakesEscapes(STDIN_FILENO) && TakesEscapes(STDOUT_FILENO)) {
    editor_.emplace(colours, kMaxTypedBytes, history_file);
  }
}

ChatInput::Read ChatInput::Next(std::string& line) {
  if (editor_) {
    const LineEdit edited = editor_->Read(line);
    if (edited == LineEdit::kLine && !line.empty()) editor_->Remember(line);
    return edited == LineEdit::kLine          ? Read::kLine
           : edited == LineEdit::kTooLong     ? Read::kTooLong
           : edited == LineEdit::kInterrupted ? Read::kInterrupted
                                              : Read::kEnd;
  }
  if (isatty(STDIN_FILENO) == 1) std::cout << "> " << std::flush;
  const LineRead read = file_.ReadLine(kMaxJobLineBytes, line);
  return read == LineRead::kLine      ? Read::kLine
         : read == LineRead::kTooLong ? Read::kTooLong
         : read == LineRead::kFailed  ? Read::kFailed
                                      : Read::kEnd;
}

}  // namespace baton
