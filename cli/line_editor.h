// Line editor for a terminal, with history, by libedit. A paste of many lines becomes one line with
// line breaks in it.
//
// The editor turns on "bracketed paste" while it reads, so that the terminal marks a paste. Text is
// UTF-8.
//
// Thread safety: belongs to one thread; Interrupt from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace baton {

enum class LineEdit : uint8_t { kLine, kTooLong, kInterrupted, kEnd };

class LineEditor {
 public:
  // Reads standard input and writes standard output. Both must be terminals that take escape
  // sequences. `colours`: shows the prompt in colour. `max_bytes`: limit of a line.
  // `history_file` keeps the history from one editor to the next; empty: none does.
  LineEditor(bool colours, size_t max_bytes, const std::string& history_file);
  ~LineEditor();

  // Reads the next line, without its newline. kTooLong: the line, or a paste into it, has more than
  // `max_bytes`. kInterrupted: Interrupt was called. Both drop the line.
  LineEdit Read(std::string& line);
  // Adds the line to the history, and writes the history file, which only its owner can read.
  // Creates its folder.
  void Remember(const std::string& line);
  // Ends the current Read, or the next one.
  void Interrupt();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace baton
