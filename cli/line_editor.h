// Lines that a person types at a terminal: editing and history by libedit, a paste of many lines as
// one line with breaks in it.
//
// Terminals mark a paste when they are asked to ("bracketed paste"), which the editor does while it
// reads. Text is UTF-8.
//
// Thread safety: belongs to one thread; Interrupt from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace baton {

enum class LineEdit : uint8_t { kLine, kInterrupted, kEnd };

class LineEditor {
 public:
  // Reads standard input and shows on standard output, both terminals. `colours`: of the prompt.
  explicit LineEditor(bool colours);
  ~LineEditor();

  // The next line, without its end. kInterrupted: Interrupt came; what was typed is dropped.
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
