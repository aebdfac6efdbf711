// Conversation of `baton chat`, and parser for its commands.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/prompt_chunks.h"
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
  kQuit,
  kUnknown
};

struct ChatLine {
  ChatCommand command = ChatCommand::kMessage;
  // The message, or the text after the command's name without blanks around it. For kUnknown, the
  // name.
  std::string text;
};

// Parses a line. "/save a.jsonl" is a command. A message that begins with "/" needs a second one:
// "//etc is" means "/etc is".
ChatLine ParseChatLine(std::string_view line);

// Returns the text of /help: one line for each command.
std::string ChatHelp();
// Returns the commands' names, "/help" and so on.
std::vector<std::string> ChatCommandNames();

class Conversation {
 public:
  // An empty text means no system message. The first question of the conversation gets the chunks.
  explicit Conversation(const std::string& system, std::vector<PromptPart> chunks = {});

  // Returns the messages: the system message, if any, then user and assistant in turn.
  const std::vector<ChatMessage>& messages() const { return messages_; }
  const std::string& system() const { return system_; }

  void Ask(const std::string& text);
  // Adds the answer. REQUIRES: the last message is a question without an answer.
  void Answer(const std::string& text);
  // Removes the question. REQUIRES: the last message is a question without an answer.
  void TakeBack();

  // Removes the last question and its answer. Returns false if there is none.
  bool Undo();
  // Removes all questions and answers.
  void Reset();
  // Replaces the system message; an empty text removes it.
  void SetSystem(const std::string& text);

  // Writes the messages to a new file, as a job of `baton generate --jobs`.
  //   AlreadyExists: the file exists; it stays unchanged.
  //   InvalidArgument: the file cannot be created.
  //   Unavailable: the data was not written completely.
  absl::Status Save(const std::string& path) const;

 private:
  size_t first_question() const { return system_.empty() ? 0 : 1; }

  const std::vector<PromptPart> chunks_;
  std::string system_;
  std::vector<ChatMessage> messages_;
};

}  // namespace baton
