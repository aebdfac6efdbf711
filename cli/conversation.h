// A conversation of `baton chat`, and the commands that a line of it can be.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "text/chat_message.h"

namespace baton {

enum class ChatCommand : uint8_t {
  kMessage,
  kHelp,
  kReset,
  kUndo,
  kSave,
  kSystem,
  kSettings,
  kUnknown
};

struct ChatLine {
  ChatCommand command = ChatCommand::kMessage;
  // The message, or the text after the command's name without blanks around it. For kUnknown, the
  // name.
  std::string text;
};

// "/save a.jsonl" is a command. A message that begins with "/" has another one in front: "//etc
// is".
ChatLine ParseChatLine(std::string_view line);

// What /help shows: a line for each command.
std::string ChatHelp();
// The commands' names, "/help" and so on.
std::vector<std::string> ChatCommandNames();

class Conversation {
 public:
  // An empty text is no system message.
  explicit Conversation(const std::string& system);

  // A system message comes first, then users and assistant in turn.
  const std::vector<ChatMessage>& messages() const { return messages_; }
  const std::string& system() const { return system_; }

  void Ask(const std::string& text);
  // REQUIRES: a question is open.
  void Answer(const std::string& text);
  // Takes back the question that is open.
  void TakeBack();

  // Forgets the last question and its answer; false when there is none.
  bool Undo();
  // Forgets all questions and answers.
  void Reset();
  // In place of the system message; an empty text removes it.
  void SetSystem(const std::string& text);

  // Writes the messages to a new file, as a job of `baton generate --jobs`. AlreadyExists: there is
  // a file; it is left alone. InvalidArgument: it cannot be made. Unavailable: not all was written.
  absl::Status Save(const std::string& path) const;

 private:
  std::string system_;
  std::vector<ChatMessage> messages_;
};

}  // namespace baton
