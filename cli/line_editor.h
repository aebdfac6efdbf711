// Lines that a person types at a terminal: editing and history by libedit, a paste of many lines as
// one line with breaks in it.
//
// Terminals mark a paste when they are asked to ("bracketed paste"), which the editor does while it
// reads. Text is UTF-8.
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
  // Reads standard input and shows on standard output, both terminals that take escape sequences.
  // `colours`: of the prompt. `max_bytes`: of a line.
  LineEditor(bool colours, size_t max_bytes);
  ~LineEditor();

  // The next line, without its end. kTooLong: the line, or a paste into it, has more than
  // `max_bytes`. kInterrupted: Interrupt came. Both drop the line.
  LineEdit Read(std::string& line);
  // Into the history.
  void Remember(const std::string& line);
  // Ends the Read that runs, or the next one.
  void Interrupt();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace baton
